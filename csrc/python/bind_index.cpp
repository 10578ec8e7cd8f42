// VectorIndex as prismem_core._native.VectorIndex: conversion only; prismem_core.index is its face. No call holds the interpreter lock
// while it waits or works.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/index_views.hpp"

namespace prismem::python {
namespace {

Integers add(VectorIndex& self, const py::array& vectors, const std::optional<Integers>& ids, int threads) {
  const Rows rows = rows_of(vectors, "vectors");
  const std::int64_t* given = ids ? ids_of(*ids, rows.count) : nullptr;
  std::vector<std::int64_t> added = unlocked([&] { return self.add(rows, given, RunOptions{"", threads}); });
  return handed_over(std::move(added), {static_cast<py::ssize_t>(rows.count)});
}

void update(VectorIndex& self, const Integers& ids, const py::array& vectors, int threads) {
  const Rows rows = rows_of(vectors, "vectors");
  const std::int64_t* given = ids_of(ids, rows.count);
  unlocked([&] { self.update(rows, given, RunOptions{"", threads}); });
}

void remove(VectorIndex& self, const Integers& ids, int threads) {
  const std::int64_t* given = ids_of(ids);
  unlocked([&] { self.remove(given, ids.size(), RunOptions{"", threads}); });
}

py::array_t<float> get(const VectorIndex& self, const Integers& ids) {
  const std::int64_t* given = ids_of(ids);
  py::array_t<float> rows({ids.size(), static_cast<py::ssize_t>(self.options().dim)});
  float* out = rows.mutable_data();
  unlocked([&] { self.get(given, ids.size(), out); });
  return rows;
}

Result search(const VectorIndex& self, const py::array& queries, std::int64_t k, std::optional<float> min_score, const py::object& filter,
              const std::string& isa, int threads) {
  const Rows rows = rows_of(queries, "queries");
  const IndexFilter allowed = filter_of(filter);
  const SearchOptions options{k, min_score.has_value(), min_score.value_or(0.0f)};
  return result_of(unlocked([&] { return self.search(rows, options, allowed, RunOptions{isa, threads}); }));
}

Result mmr(const VectorIndex& self, const py::array& queries, std::int64_t k, std::int64_t pool, double relevance_weight,
           std::optional<float> min_relevance, const py::object& filter, const std::string& isa, int threads) {
  const Rows rows = rows_of(queries, "queries");
  const IndexFilter allowed = filter_of(filter);
  const MmrSearchOptions options{k, pool, relevance_weight, min_relevance.has_value(), min_relevance.value_or(0.0f)};
  return result_of(unlocked([&] { return self.mmr(rows, options, allowed, RunOptions{isa, threads}); }));
}

std::shared_ptr<PreparedFilter> prepare(const VectorIndex& self, const py::object& filter) {
  const IndexFilter allowed = filter_of(filter);
  return unlocked([&] { return self.prepare(allowed); });
}

Integers ids(const VectorIndex& self) {
  std::vector<std::int64_t> every = unlocked([&] { return self.ids(); });
  const py::ssize_t count = static_cast<py::ssize_t>(every.size());
  return handed_over(std::move(every), {count});
}

py::dict stats(const VectorIndex& self) {
  const IndexStats stats = unlocked([&] { return self.stats(); });
  py::dict result;
  result["count"] = stats.count;
  result["removed"] = stats.removed;
  result["capacity"] = stats.capacity;
  result["row_bytes"] = stats.row_bytes;
  result["id_bytes"] = stats.id_bytes;
  result["coded"] = stats.coded;
  result["code_bytes"] = stats.code_bytes;
  result["code_seconds"] = stats.code_seconds;
  return result;
}

std::unique_ptr<VectorIndex> make(std::int64_t dim, int kind, bool cosine, int codes) {
  return std::make_unique<VectorIndex>(IndexOptions{dim, static_cast<Kind>(kind), cosine ? Metric::cosine : Metric::inner_product},
                                       static_cast<CodePolicy>(codes));
}

std::unique_ptr<VectorIndex> load(const std::string& path, int codes) { return VectorIndex::load(path, static_cast<CodePolicy>(codes)); }

std::unique_ptr<VectorIndex> open(const std::string& path, bool verify, int codes) {
  return VectorIndex::open(path, verify, static_cast<CodePolicy>(codes));
}

void build_codes(const VectorIndex& self, int threads) { self.build_codes(RunOptions{"", threads}); }

void save(const VectorIndex& self, const std::string& path, int threads) { self.save(path, RunOptions{"", threads}); }

}  // namespace

void bind_index(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<PreparedFilter, std::shared_ptr<PreparedFilter>>(module, "PreparedFilter", "What VectorIndex.prepare made of a filter.");
  py::class_<VectorIndex>(module, "VectorIndex", "Engine of prismem_core.index.VectorIndex.")
      .def(py::init(&make), py::arg("dim"), py::arg("kind"), py::arg("cosine"), py::arg("codes"))
      .def_static("load", &load, py::arg("path"), py::arg("codes"), without_gil)
      .def_static("open", &open, py::arg("path"), py::arg("verify"), py::arg("codes"), without_gil)
      .def("dim", [](const VectorIndex& self) { return self.options().dim; })
      .def("kind", [](const VectorIndex& self) { return static_cast<int>(self.options().kind); })
      .def("cosine", [](const VectorIndex& self) { return self.options().metric == Metric::cosine; })
      .def("read_only", &VectorIndex::read_only)
      .def("size", &VectorIndex::size, without_gil)
      .def("contains", &VectorIndex::contains, py::arg("id"), without_gil)
      .def("ids", &ids)
      .def("stats", &stats)
      .def("add", &add, py::arg("vectors").noconvert(), py::arg("ids").noconvert(), py::arg("threads"))
      .def("update", &update, py::arg("ids").noconvert(), py::arg("vectors").noconvert(), py::arg("threads"))
      .def("remove", &remove, py::arg("ids").noconvert(), py::arg("threads"))
      .def("reserve", &VectorIndex::reserve, py::arg("count"), without_gil)
      .def("get", &get, py::arg("ids").noconvert())
      .def("search", &search, py::arg("queries").noconvert(), py::arg("k"), py::arg("min_score"), py::arg("filter"), py::arg("isa"),
           py::arg("threads"))
      .def("mmr", &mmr, py::arg("queries").noconvert(), py::arg("k"), py::arg("pool"), py::arg("relevance_weight"), py::arg("min_relevance"),
           py::arg("filter"), py::arg("isa"), py::arg("threads"))
      .def("prepare", &prepare, py::arg("filter"))
      .def("build_codes", &build_codes, py::arg("threads"), without_gil)
      .def("save", &save, py::arg("path"), py::arg("threads"), without_gil);
}

}  // namespace prismem::python
