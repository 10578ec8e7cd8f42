// Python face of the ranking ops: views of arrays in, filled arrays out. prismem_core.ops has checked the values already;
// here only what would make a view unsafe is checked again.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "codes/code_search.hpp"
#include "codes/segment_search.hpp"
#include "prismem/ops.hpp"
#include "python/op_calls.hpp"

namespace py = pybind11;

namespace prismem::python {
namespace {

Outcome py_similarity(const py::array& x, const py::array& y, bool normalize, Floats out, const std::string& isa, int threads) {
  const Rows left = rows_of(x, "x");
  const Rows right = rows_of(y, "y");
  if (left.dim != right.dim) refuse("y", "as many dimensions as x");
  float* scores = filled(out, "out", left.count * right.count);
  return run([&] { return similarity(left, right, normalize, scores, RunOptions{isa, threads}); });
}

Outcome py_top_k(const py::array& queries, const py::array& keys, const std::optional<Integers>& ranges, const std::optional<Integers>& groups,
                 const std::optional<Booleans>& mask, std::int64_t k, bool normalize, std::optional<float> min_score, Floats scores,
                 Integers indices, Integers counts, const RowCodes* codes, const std::string& isa, int threads) {
  const Rows query_rows = rows_of(queries, "queries");
  const Rows key_rows = rows_of(keys, "keys");
  if (query_rows.dim != key_rows.dim) refuse("keys", "as many dimensions as queries");
  const Segments segments = segments_of(ranges, groups, query_rows.count, key_rows.count);
  const Mask allowed = mask_of(mask, query_rows.count, key_rows.count);
  const std::int64_t width = width_of(scores, k, segments, key_rows.count);
  const TopKOptions options{k, normalize, min_score.has_value(), min_score.value_or(0.0f)};
  float* score_cells = filled(scores, "scores", query_rows.count * width);
  std::int64_t* index_cells = filled(indices, "indices", query_rows.count * width);
  std::int64_t* count_cells = filled(counts, "counts", query_rows.count);
  if (codes != nullptr && (codes->count() != key_rows.count || codes->dim() != key_rows.dim)) refuse("codes", "the codes of these keys");
  return run([&] {
    if (codes != nullptr && !ranges) {
      return coded_top_k(query_rows, key_rows, codes->view(), allowed, options, width, score_cells, index_cells, count_cells, RunOptions{isa, threads});
    }
    return top_k(query_rows, key_rows, segments, allowed, options, width, score_cells, index_cells, count_cells, RunOptions{isa, threads});
  });
}

Outcome py_mmr_select(const py::array& queries, const py::array& keys, const std::optional<Integers>& ranges,
                      const std::optional<Integers>& groups, const std::optional<Booleans>& mask, std::int64_t k, double relevance_weight,
                      std::optional<float> min_relevance, bool normalize, Integers indices, Floats scores, Integers counts,
                      const std::string& isa, int threads) {
  const Rows query_rows = rows_of(queries, "queries");
  const Rows key_rows = rows_of(keys, "keys");
  if (query_rows.dim != key_rows.dim) refuse("keys", "as many dimensions as queries");
  const Segments segments = segments_of(ranges, groups, query_rows.count, key_rows.count);
  const Mask allowed = mask_of(mask, query_rows.count, key_rows.count);
  const std::int64_t width = width_of(scores, k, segments, key_rows.count);
  const MmrOptions options{k, relevance_weight, normalize, min_relevance.has_value(), min_relevance.value_or(0.0f)};
  std::int64_t* index_cells = filled(indices, "indices", query_rows.count * width);
  float* score_cells = filled(scores, "scores", query_rows.count * width);
  std::int64_t* count_cells = filled(counts, "counts", query_rows.count);
  return run([&] {
    return mmr_select(query_rows, key_rows, segments, allowed, options, width, index_cells, score_cells, count_cells, RunOptions{isa, threads});
  });
}

Outcome py_mmr_select_from(const Floats& relevance, const Floats& similarity, const std::optional<Integers>& lengths, std::int64_t k,
                           double relevance_weight, std::optional<float> min_relevance, Integers indices, Floats scores, Integers counts,
                           const std::string& isa, int threads) {
  const Rows rows = rows_of(relevance, "relevance");
  const py::ssize_t axes = similarity.ndim();
  if (axes != 2 && axes != 3) refuse("similarity", "shape (n, n) or (m, n, n)");
  if (similarity.shape(axes - 1) != rows.dim || similarity.shape(axes - 2) != rows.dim || (axes == 3 && similarity.shape(0) != rows.count)) {
    refuse("similarity", "shape (n, n) or (m, n, n)");
  }
  if (similarity.size() > 0 && rows.dim > 1 && similarity.strides(axes - 1) != similarity.itemsize()) refuse("similarity", "rows without gaps");
  const std::int64_t row_stride = element_stride(similarity, "similarity", axes - 2);
  const std::int64_t batch_stride = axes == 3 ? element_stride(similarity, "similarity", 0) : 0;
  const std::int64_t* row_lengths = nullptr;
  if (lengths) {
    if (lengths->ndim() != 1 || lengths->size() != rows.count || (lengths->flags() & py::array::c_style) == 0) refuse("lengths", "a contiguous (m,) array");
    row_lengths = lengths->data();
    for (std::int64_t i = 0; i < rows.count; ++i) {
      if (row_lengths[i] < 0 || row_lengths[i] > rows.dim) refuse("lengths", "values from 0 to n");
    }
  }
  const std::int64_t width = width_of(scores, k, Segments{nullptr, 0, nullptr}, rows.dim);
  const MmrOptions options{k, relevance_weight, false, min_relevance.has_value(), min_relevance.value_or(0.0f)};
  std::int64_t* index_cells = filled(indices, "indices", rows.count * width);
  float* score_cells = filled(scores, "scores", rows.count * width);
  std::int64_t* count_cells = filled(counts, "counts", rows.count);
  const float* cells = similarity.data();
  return run([&] {
    return mmr_select_from(rows, cells, batch_stride, row_stride, row_lengths, options, width, index_cells, score_cells, count_cells,
                           RunOptions{isa, threads});
  });
}

Outcome py_segment_max_similarity(const py::array& evidence, const py::array& items, const std::optional<Integers>& ranges,
                                  const std::optional<Integers>& groups, bool normalize, Floats values, Integers indices,
                                  const RowCodes* codes, const std::string& isa, int threads) {
  const Rows evidence_rows = rows_of(evidence, "evidence");
  const Rows item_rows = rows_of(items, "items");
  if (evidence_rows.dim != item_rows.dim) refuse("items", "as many dimensions as evidence");
  const Segments segments = segments_of(ranges, groups, evidence_rows.count, item_rows.count);
  float* value_cells = filled(values, "values", evidence_rows.count);
  std::int64_t* index_cells = filled(indices, "indices", evidence_rows.count);
  if (codes != nullptr && (codes->count() != item_rows.count || codes->dim() != item_rows.dim)) refuse("codes", "the codes of these items");
  return run([&] {
    if (codes != nullptr) {
      return coded_segment_max_similarity(evidence_rows, item_rows, *codes, segments, normalize, value_cells, index_cells, RunOptions{isa, threads});
    }
    return segment_max_similarity(evidence_rows, item_rows, segments, normalize, value_cells, index_cells, RunOptions{isa, threads});
  });
}

Outcome py_segment_mean(const py::array& values, const Integers& offsets, Doubles means, const std::string& isa, int threads) {
  const bool is_double = values.dtype().kind() == 'f' && values.itemsize() == 8;
  if (!is_double && kind_of(values, "values") != Kind::f32) refuse("values", "float32 or float64");
  if (values.ndim() != 1 || (values.flags() & py::array::c_style) == 0) refuse("values", "a contiguous (n,) array");
  if (offsets.ndim() != 1 || offsets.size() < 1 || (offsets.flags() & py::array::c_style) == 0) refuse("offsets", "a contiguous (s + 1,) array");
  const void* cells = values.data();
  const std::int64_t* bounds = offsets.data();
  const std::int64_t count = offsets.size() - 1;
  for (std::int64_t i = 0; i < count; ++i) {
    if (bounds[i] < 0 || bounds[i] > bounds[i + 1] || bounds[i + 1] > values.size()) refuse("offsets", "values that never fall, within the values");
  }
  double* mean_cells = filled(means, "means", count);
  return run([&] { return segment_mean(cells, is_double, bounds, count, mean_cells, RunOptions{isa, threads}); });
}

IdSets sets_of(const Ids& ids, const Integers& offsets, const char* name) {
  if (ids.ndim() != 1 || (ids.flags() & py::array::c_style) == 0) refuse(name, "contiguous ids (p,)");
  if (offsets.ndim() != 1 || offsets.size() < 1 || (offsets.flags() & py::array::c_style) == 0) refuse(name, "contiguous offsets (n + 1,)");
  const IdSets sets{ids.data(), offsets.data(), offsets.size() - 1};
  if (sets.offsets[0] < 0 || sets.offsets[sets.count] > ids.size()) refuse(name, "offsets within the ids");
  for (std::int64_t i = 0; i < sets.count; ++i) {
    if (sets.offsets[i] > sets.offsets[i + 1]) refuse(name, "offsets that never fall");
  }
  return sets;
}

Outcome py_token_overlap(const Ids& queries, const Integers& query_offsets, const Ids& keys, const Integers& key_offsets,
                         const std::optional<Integers>& ranges, const std::optional<Integers>& groups, bool dice, const Integers& out_offsets,
                         Doubles out, const std::string& isa, int threads) {
  const IdSets left = sets_of(queries, query_offsets, "queries");
  const IdSets right = sets_of(keys, key_offsets, "keys");
  const Segments segments = segments_of(ranges, groups, left.count, right.count);
  if (out_offsets.ndim() != 1 || out_offsets.size() != left.count || (out_offsets.flags() & py::array::c_style) == 0) {
    refuse("out_offsets", "a contiguous (m,) array");
  }
  double* cells = filled(out, "out", 0);
  const std::int64_t* starts = out_offsets.data();
  for (std::int64_t i = 0; i < left.count; ++i) {
    const std::int64_t segment = segments.groups != nullptr ? segments.groups[i] : i;
    const std::int64_t length = segments.ranges == nullptr ? right.count : segments.ranges[2 * segment + 1] - segments.ranges[2 * segment];
    if (starts[i] < 0 || starts[i] > out.size() - length) refuse("out_offsets", "room for each query's shares");
  }
  return run([&] { return token_overlap(left, right, segments, dice, starts, cells, RunOptions{isa, threads}); });
}

py::str environment_variable(const char* name) {
  const char* text = std::getenv(name);
  return py::reinterpret_steal<py::str>(PyUnicode_DecodeFSDefault(text != nullptr ? text : ""));
}

py::tuple settings() {
  return py::make_tuple(environment_variable("PRISMEM_BACKEND"), environment_variable("PRISMEM_ISA"), environment_variable("PRISMEM_THREADS"));
}

}  // namespace

void bind_ops(py::module_& module) {
  module.def("settings", &settings, "PRISMEM_BACKEND, PRISMEM_ISA and PRISMEM_THREADS as they are now; empty where unset.");
  module.def("isas", &available_isas, "Instruction sets that were built and that this CPU runs, worst first.");
  module.def("chosen_isa", &chosen_isa, py::arg("isa") = "", "The set a call would use: the one named, PRISMEM_ISA, or the best.");
  module.def("similarity", &py_similarity, py::arg("x").noconvert(), py::arg("y").noconvert(), py::arg("normalize"),
             py::arg("out").noconvert(), py::kw_only(), py::arg("isa") = "", py::arg("threads") = 0);
  module.def("top_k", &py_top_k, py::arg("queries").noconvert(), py::arg("keys").noconvert(), py::arg("ranges").noconvert(),
             py::arg("groups").noconvert(), py::arg("mask").noconvert(), py::arg("k"), py::arg("normalize"), py::arg("min_score"),
             py::arg("scores").noconvert(), py::arg("indices").noconvert(), py::arg("counts").noconvert(), py::kw_only(),
             py::arg("codes") = nullptr, py::arg("isa") = "", py::arg("threads") = 0);
  module.def("mmr_select", &py_mmr_select, py::arg("queries").noconvert(), py::arg("keys").noconvert(), py::arg("ranges").noconvert(),
             py::arg("groups").noconvert(), py::arg("mask").noconvert(), py::arg("k"), py::arg("relevance_weight"),
             py::arg("min_relevance"), py::arg("normalize"), py::arg("indices").noconvert(), py::arg("scores").noconvert(),
             py::arg("counts").noconvert(), py::kw_only(), py::arg("isa") = "", py::arg("threads") = 0);
  module.def("mmr_select_from", &py_mmr_select_from, py::arg("relevance").noconvert(), py::arg("similarity").noconvert(),
             py::arg("lengths").noconvert(), py::arg("k"), py::arg("relevance_weight"), py::arg("min_relevance"),
             py::arg("indices").noconvert(), py::arg("scores").noconvert(), py::arg("counts").noconvert(), py::kw_only(),
             py::arg("isa") = "", py::arg("threads") = 0);
  module.def("segment_max_similarity", &py_segment_max_similarity, py::arg("evidence").noconvert(), py::arg("items").noconvert(),
             py::arg("ranges").noconvert(), py::arg("groups").noconvert(), py::arg("normalize"), py::arg("values").noconvert(),
             py::arg("indices").noconvert(), py::kw_only(), py::arg("codes") = nullptr, py::arg("isa") = "", py::arg("threads") = 0);
  module.def("segment_mean", &py_segment_mean, py::arg("values").noconvert(), py::arg("offsets").noconvert(),
             py::arg("means").noconvert(), py::kw_only(), py::arg("isa") = "", py::arg("threads") = 0);
  module.def("token_overlap", &py_token_overlap, py::arg("queries").noconvert(), py::arg("query_offsets").noconvert(),
             py::arg("keys").noconvert(), py::arg("key_offsets").noconvert(), py::arg("ranges").noconvert(), py::arg("groups").noconvert(),
             py::arg("dice"), py::arg("out_offsets").noconvert(), py::arg("out").noconvert(), py::kw_only(), py::arg("isa") = "",
             py::arg("threads") = 0);
}

}  // namespace prismem::python
