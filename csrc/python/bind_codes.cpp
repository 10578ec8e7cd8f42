// Certified codes of rows as prismem_core._native.RowCodes; prismem_core.ops.encode is their face.
#include <string>

#include "codes/row_codes.hpp"
#include "python/array_views.hpp"

namespace prismem::python {
namespace {

RowCodes make_codes(const py::array& array, bool normalize, const std::string& isa, int threads) {
  const Rows rows = rows_of(array, "rows");
  RowCodes codes(rows.dim, normalize);
  const py::gil_scoped_release unlocked;
  codes.build(rows, RunOptions{isa, threads});
  return codes;
}

}  // namespace

void bind_codes(py::module_& module) {
  py::class_<RowCodes>(module, "RowCodes", "Certified codes of rows (simd/codes.hpp).")
      .def(py::init(&make_codes), py::arg("rows").noconvert(), py::arg("normalize"), py::kw_only(), py::arg("isa") = "",
           py::arg("threads") = 0)
      .def_property_readonly("normalize", &RowCodes::normalize)
      .def_property_readonly("bytes", &RowCodes::bytes)
      .def_property_readonly("build_seconds", &RowCodes::build_seconds)
      .def_static("supports", &RowCodes::supports, py::arg("dim"));
}

}  // namespace prismem::python
