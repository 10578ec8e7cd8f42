// Certified codes of rows as prismem_core._native.RowCodes; prismem_core.ops.encode is their face.
#include <string>

#include "codes/code_search.hpp"
#include "codes/row_codes.hpp"
#include "python/op_calls.hpp"

namespace prismem::python {
namespace {

RowCodes make_codes(const py::array& array, bool normalize, const std::string& isa, int threads) {
  const Rows rows = rows_of(array, "rows");
  RowCodes codes(rows.dim, normalize);
  const py::gil_scoped_release unlocked;
  codes.build(rows, RunOptions{isa, threads});
  return codes;
}

void bounds_of(const RowCodes& codes, const py::array& queries, int bits, Floats out, const std::string& isa) {
  const Rows rows = rows_of(queries, "queries");
  if (rows.dim != codes.dim()) refuse("queries", "as many dimensions as the rows");
  if (bits != 0 && bits != 4 && bits != 8) refuse("bits", "0, 4 or 8");
  float* cells = filled(out, "out", rows.count * codes.count());
  const py::gil_scoped_release unlocked;
  code_bounds(rows, codes.view(), bits, cells, RunOptions{isa, 1});
}

Rows matrix_of(const RowCodes& codes, const py::array& array, std::int64_t least) {
  const Rows rows = rows_of(array, "rows");
  if (rows.dim != codes.dim() || rows.count < least) refuse("rows", "the whole matrix that the codes are of");
  return rows;
}

void extend_codes(RowCodes& codes, const py::array& rows) { codes.extend(matrix_of(codes, rows, codes.count()), RunOptions{}); }

void encode_again(RowCodes& codes, const py::array& rows, std::int64_t begin, std::int64_t end) {
  if (begin < 0 || begin > end || end > codes.count()) refuse("begin and end", "a range of rows that have codes");
  codes.encode(matrix_of(codes, rows, end), begin, end, RunOptions{});
}

void truncate_codes(RowCodes& codes, std::int64_t count) {
  if (count < 0) refuse("count", "at least 0");
  codes.truncate(count);
}

}  // namespace

void bind_codes(py::module_& module) {
  py::class_<RowCodes>(module, "RowCodes", "Certified codes of rows (simd/codes.hpp).")
      .def(py::init(&make_codes), py::arg("rows").noconvert(), py::arg("normalize"), py::kw_only(), py::arg("isa") = "",
           py::arg("threads") = 0)
      .def("bounds", &bounds_of, py::arg("queries").noconvert(), py::arg("bits"), py::arg("out").noconvert(), py::kw_only(), py::arg("isa") = "")
      .def("extend", &extend_codes, py::arg("rows").noconvert())
      .def("encode", &encode_again, py::arg("rows").noconvert(), py::arg("begin"), py::arg("end"))
      .def("truncate", &truncate_codes, py::arg("count"))
      .def_property_readonly("normalize", &RowCodes::normalize)
      .def_property_readonly("regular", &RowCodes::regular)
      .def_property_readonly("bytes", &RowCodes::bytes)
      .def_property_readonly("build_seconds", &RowCodes::build_seconds)
      .def_static("supports", &RowCodes::supports, py::arg("dim"));
}

}  // namespace prismem::python
