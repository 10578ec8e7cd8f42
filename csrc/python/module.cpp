// The extension module: one binding function a room, conversion only.
#include <pybind11/pybind11.h>

#include "python/errors.hpp"

namespace prismem::python {
void bind_ops(pybind11::module_& module);
void bind_cache(pybind11::module_& module);
void bind_index(pybind11::module_& module);
void bind_lexical(pybind11::module_& module);
void bind_bench(pybind11::module_& module);
void bind_codes(pybind11::module_& module);
}  // namespace prismem::python

PYBIND11_MODULE(_native, module) {
  module.doc() = "C++ core of prismem_core: ranking ops, the indexes, the execution cache, the limits of the machine.";
  prismem::python::translate_errors();
  prismem::python::bind_codes(module);
  prismem::python::bind_ops(module);
  prismem::python::bind_cache(module);
  prismem::python::bind_index(module);
  prismem::python::bind_lexical(module);
  prismem::python::bind_bench(module);
}
