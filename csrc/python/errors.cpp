#include "python/errors.hpp"

#include <pybind11/pybind11.h>

#include <exception>
#include <string>

#include "support/error.hpp"

namespace py = pybind11;

namespace prismem::python {
namespace {

void set_error(const char* name, const std::string& message) {
  const py::object type = py::module_::import("prismem_core.errors").attr(name);
  // Paths may hold bytes that are no UTF-8.
  const py::object text = py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(message.data(), static_cast<py::ssize_t>(message.size()), "backslashreplace"));
  PyErr_SetObject(type.ptr(), text.ptr());
}

void translate(std::exception_ptr failure) {
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const ArgumentError& error) {
    set_error("ArgumentError", error.what());
  } catch (const CacheError& error) {
    set_error("CacheError", error.what());
  } catch (const VectorIndexError& error) {
    set_error("VectorIndexError", error.what());
  } catch (const LexicalIndexError& error) {
    set_error("LexicalIndexError", error.what());
  }
}

}  // namespace

void translate_errors() { py::register_exception_translator(&translate); }

}  // namespace prismem::python
