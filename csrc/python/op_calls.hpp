// What the bindings of ops share: views of their arguments, and the call without the interpreter lock.
#pragma once

#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>

#include "prismem/ops.hpp"
#include "python/array_views.hpp"

namespace prismem::python {

using Floats = py::array_t<float>;
using Doubles = py::array_t<double>;
using Integers = py::array_t<std::int64_t>;
using Ids = py::array_t<std::int32_t>;
using Booleans = py::array_t<bool>;
using Outcome = py::tuple;  // (instruction set that ran, bad query, bad key)

template <class T>
inline T* filled(py::array_t<T>& array, const char* name, std::int64_t least) {
  if ((array.flags() & py::array::c_style) == 0 || array.size() < least) refuse(name, "a contiguous array that is large enough");
  return array.mutable_data();
}

inline Segments segments_of(const std::optional<Integers>& ranges, const std::optional<Integers>& groups, std::int64_t num_rows,
                     std::int64_t num_keys) {
  Segments segments{nullptr, 0, nullptr};
  if (!ranges) return segments;
  if (ranges->ndim() != 2 || ranges->shape(1) != 2 || (ranges->flags() & py::array::c_style) == 0) refuse("ranges", "a contiguous (s, 2) array");
  segments.ranges = ranges->data();
  segments.count = ranges->shape(0);
  for (std::int64_t i = 0; i < segments.count; ++i) {
    const std::int64_t begin = segments.ranges[2 * i];
    const std::int64_t end = segments.ranges[2 * i + 1];
    if (begin < 0 || begin > end || end > num_keys) refuse("ranges", "ranges within the keys");
  }
  if (!groups) {
    if (segments.count != num_rows) refuse("ranges", "one segment a row, or groups");
    return segments;
  }
  if (groups->ndim() != 1 || groups->size() != num_rows || (groups->flags() & py::array::c_style) == 0) refuse("groups", "a contiguous (m,) array");
  segments.groups = groups->data();
  for (std::int64_t i = 0; i < num_rows; ++i) {
    if (segments.groups[i] < 0 || segments.groups[i] >= segments.count) refuse("groups", "numbers of segments");
  }
  return segments;
}

inline Mask mask_of(const std::optional<Booleans>& mask, std::int64_t num_queries, std::int64_t num_keys) {
  if (!mask) return Mask{nullptr, 0, 0};
  const auto* data = reinterpret_cast<const std::uint8_t*>(mask->data());
  if (mask->ndim() == 1 && mask->shape(0) == num_keys) return Mask{data, 0, mask->strides(0)};
  if (mask->ndim() == 2 && mask->shape(0) == num_queries && mask->shape(1) == num_keys) return Mask{data, mask->strides(0), mask->strides(1)};
  refuse("mask", "shape (n,) or (m, n)");
}

// The number of columns, which must hold the hits of the longest segment.
inline std::int64_t width_of(const py::array& cells, std::int64_t k, const Segments& segments, std::int64_t num_keys) {
  std::int64_t longest = segments.ranges == nullptr ? num_keys : 0;
  for (std::int64_t i = 0; i < segments.count; ++i) longest = std::max(longest, segments.ranges[2 * i + 1] - segments.ranges[2 * i]);
  const std::int64_t width = cells.ndim() == 2 ? cells.shape(1) : 0;
  if (width < std::min(k, longest)) refuse("scores and indices", "a column for each hit");
  return width;
}

inline Outcome outcome_of(const Report& report) { return py::make_tuple(report.isa, report.bad_query, report.bad_key); }

// Runs `body` without the interpreter lock.
template <class Body>
Outcome run(Body body) {
  Report report;
  {
    const py::gil_scoped_release unlocked;
    report = body();
  }
  return outcome_of(report);
}

}  // namespace prismem::python
