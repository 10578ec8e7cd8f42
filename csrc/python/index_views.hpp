// What the bindings of the indexes share: ids and filters in, hits out.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <utility>
#include <vector>

#include "index/selection.hpp"
#include "prismem/index.hpp"
#include "python/array_views.hpp"

namespace prismem::python {

using Integers = py::array_t<std::int64_t>;
using Booleans = py::array_t<bool>;
using Result = py::tuple;  // scores, ids, counts

// An array that keeps the vector it shows alive.
template <class T>
py::array_t<T> handed_over(std::vector<T> values, std::vector<py::ssize_t> shape) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  const T* data = kept->data();
  const py::capsule owner(kept.get(), [](void* held) { delete static_cast<std::vector<T>*>(held); });
  kept.release();
  return py::array_t<T>(std::move(shape), data, owner);
}

inline Result result_of(Found found) {
  const py::ssize_t rows = static_cast<py::ssize_t>(found.counts.size());
  return py::make_tuple(handed_over(std::move(found.scores), {rows, found.width}), handed_over(std::move(found.ids), {rows, found.width}),
                        handed_over(std::move(found.counts), {rows}));
}

inline const std::int64_t* ids_of(const Integers& ids) {
  if (ids.ndim() != 1 || (ids.flags() & py::array::c_style) == 0) refuse("ids", "a contiguous (n,) array");
  return ids.data();
}

inline const std::int64_t* ids_of(const Integers& ids, std::int64_t count) {
  if (ids.size() != count) refuse("ids", "one for each row of vectors");
  return ids_of(ids);
}

// None, ids (n,) int64, a mask (n,) or (m, n) bool, or a prepared filter.
inline IndexFilter filter_of(const py::object& filter) {
  IndexFilter result;
  if (filter.is_none()) return result;
  if (py::isinstance<PreparedFilter>(filter)) {
    result.prepared = filter.cast<PreparedFilter*>();
  } else if (py::isinstance<Integers>(filter)) {
    const auto ids = py::reinterpret_borrow<Integers>(filter);
    result.ids = ids_of(ids);
    result.id_count = ids.size();
  } else if (py::isinstance<Booleans>(filter)) {
    const auto mask = py::reinterpret_borrow<Booleans>(filter);
    const py::ssize_t axes = mask.ndim();
    if (axes != 1 && axes != 2) refuse("filter", "a mask of shape (n,) or (m, n)");
    result.mask = Mask{reinterpret_cast<const std::uint8_t*>(mask.data()), axes == 2 ? mask.strides(0) : 0, mask.strides(axes - 1)};
    result.mask_count = mask.shape(axes - 1);
    result.mask_queries = axes == 2 ? mask.shape(0) : 0;
  } else {
    refuse("filter", "int64 ids, a boolean mask, a prepared filter or None");
  }
  return result;
}

template <class Body>
auto unlocked(Body body) {
  const py::gil_scoped_release release;
  return body();
}

}  // namespace prismem::python
