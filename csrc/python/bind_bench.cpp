// Python face of the machine's limits, for prismem_core.bench.
#include <pybind11/pybind11.h>

#include "bench/limit_probe.hpp"

namespace py = pybind11;

namespace prismem::python {

void bind_bench(py::module_& module) {
  using unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<LimitProbe>(module, "LimitProbe", "Fixed work at the limits of the machine, for a caller that times it.")
      .def(py::init<std::int64_t, const std::string&, int>(), py::arg("bytes"), py::arg("isa") = "", py::arg("threads") = 1, unlocked())
      .def_property_readonly("isa", &LimitProbe::isa)
      .def("read", &LimitProbe::read, py::arg("bytes"), py::arg("times") = 1, py::arg("four_streams") = false, unlocked())
      .def("multiply_floats", &LimitProbe::multiply_floats, py::arg("rounds"), unlocked())
      .def("multiply_bytes", &LimitProbe::multiply_bytes, py::arg("rounds"), py::arg("sums_of_16") = false, unlocked());
}

}  // namespace prismem::python
