// Views of arrays for the bindings of ops and of the index: only what would make a view unsafe is checked, the rest was checked in Python.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <string>

#include "prismem/rows.hpp"

namespace prismem::python {

namespace py = pybind11;

[[noreturn]] inline void refuse(const std::string& argument, const std::string& expected) {
  throw py::value_error(argument + ": expected " + expected);
}

inline std::int64_t element_stride(const py::array& array, const char* name, py::ssize_t axis) {
  if (array.shape(axis) <= 1 || array.size() == 0) return 0;
  if (array.strides(axis) % array.itemsize() != 0) refuse(name, "strides that are a multiple of the element size");
  return array.strides(axis) / array.itemsize();
}

inline Kind kind_of(const py::array& array, const char* name) {
  const char kind = array.dtype().kind();
  if (kind == 'f' && array.itemsize() == 4) return Kind::f32;
  if (kind == 'f' && array.itemsize() == 2) return Kind::f16;
  if (kind == 'u' && array.itemsize() == 2) return Kind::bf16;
  refuse(name, "float32, float16 or bfloat16 bits as uint16");
}

inline Rows rows_of(const py::array& array, const char* name) {
  if (array.ndim() != 2) refuse(name, "two axes");
  if (array.size() > 0 && array.shape(1) > 1 && array.strides(1) != array.itemsize()) refuse(name, "rows without gaps");
  return Rows{array.data(), array.shape(0), array.shape(1), element_stride(array, name, 0), kind_of(array, name)};
}

}  // namespace prismem::python
