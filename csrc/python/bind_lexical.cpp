// LexicalIndex as prismem_core._native.LexicalIndex: conversion only; prismem_core.index is its face. No call holds the interpreter lock
// while it waits or works.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>

#include "index/lexical_index.hpp"
#include "python/index_views.hpp"
#include "support/error.hpp"

namespace prismem::python {
namespace {

// A copy of lists of tokens: while the interpreter runs on, their owner may change them.
class CopiedTokens {
 public:
  CopiedTokens(const py::list& texts, const char* name) {
    std::vector<std::size_t> ends;
    for (const py::handle text : texts) {
      if (!PyList_Check(text.ptr())) throw ArgumentError(std::string(name) + ": the tokenizer must return lists of str, got " + Py_TYPE(text.ptr())->tp_name);
      const py::ssize_t count = PyList_GET_SIZE(text.ptr());
      for (py::ssize_t i = 0; i < count; ++i) {
        add(PyList_GET_ITEM(text.ptr(), i), name);
        ends.push_back(bytes_.size());
      }
      lists_.offsets.push_back(static_cast<std::int64_t>(ends.size()));
    }
    lists_.tokens.reserve(ends.size());
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      lists_.tokens.emplace_back(bytes_.data() + begin, end - begin);
      begin = end;
    }
  }
  const TokenLists& lists() const { return lists_; }

 private:
  void add(PyObject* token, const char* name) {
    if (!PyUnicode_Check(token)) throw ArgumentError(std::string(name) + ": the tokenizer must return lists of str, got " + Py_TYPE(token)->tp_name + " in one");
    py::ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(token, &size);
    if (text == nullptr) {
      PyErr_Clear();
      throw ArgumentError(std::string(name) + ": the tokenizer returned a token with lone surrogates, which is no text");
    }
    bytes_.append(text, static_cast<std::size_t>(size));
  }

  std::string bytes_;
  TokenLists lists_;
};

Integers add(LexicalIndex& self, const py::list& texts, const std::optional<Integers>& ids) {
  const CopiedTokens tokens(texts, "texts");
  const std::int64_t count = tokens.lists().count();
  const std::int64_t* given = ids ? ids_of(*ids, count) : nullptr;
  std::vector<std::int64_t> added = unlocked([&] { return self.add(tokens.lists(), given); });
  return handed_over(std::move(added), {static_cast<py::ssize_t>(count)});
}

void update(LexicalIndex& self, const Integers& ids, const py::list& texts) {
  const CopiedTokens tokens(texts, "texts");
  const std::int64_t* given = ids_of(ids, tokens.lists().count());
  unlocked([&] { self.update(tokens.lists(), given); });
}

void remove(LexicalIndex& self, const Integers& ids) {
  const std::int64_t* given = ids_of(ids);
  unlocked([&] { self.remove(given, ids.size()); });
}

Result search(const LexicalIndex& self, const py::list& queries, std::int64_t k, std::optional<float> min_score, const py::object& filter, int threads) {
  const CopiedTokens tokens(queries, "queries");
  const IndexFilter allowed = filter_of(filter);
  const SearchOptions options{k, min_score.has_value(), min_score.value_or(0.0f)};
  return result_of(unlocked([&] { return self.search(tokens.lists(), options, allowed, threads); }));
}

Integers ids(const LexicalIndex& self) {
  std::vector<std::int64_t> every = unlocked([&] { return self.ids(); });
  const py::ssize_t count = static_cast<py::ssize_t>(every.size());
  return handed_over(std::move(every), {count});
}

py::dict stats(const LexicalIndex& self) {
  const LexicalStats stats = unlocked([&] { return self.stats(); });
  py::dict result;
  result["count"] = stats.count;
  result["removed"] = stats.removed;
  result["terms"] = stats.terms;
  result["tokens"] = stats.tokens;
  result["bytes"] = stats.bytes;
  return result;
}

}  // namespace

void bind_lexical(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<LexicalIndex>(module, "LexicalIndex", "Engine of prismem_core.index.LexicalIndex.")
      .def(py::init([](double k1, double b, const std::string& tokenizer) {
             return std::make_unique<LexicalIndex>(index::Bm25Options{k1, b}, tokenizer);
           }),
           py::arg("k1"), py::arg("b"), py::arg("tokenizer"))
      .def_static("load", [](const std::string& path) { return LexicalIndex::load(path); }, py::arg("path"), without_gil)
      .def("k1", [](const LexicalIndex& self) { return self.options().k1; })
      .def("b", [](const LexicalIndex& self) { return self.options().b; })
      .def("tokenizer", [](const LexicalIndex& self) { return py::bytes(self.tokenizer()); })
      .def("size", &LexicalIndex::size, without_gil)
      .def("contains", &LexicalIndex::contains, py::arg("id"), without_gil)
      .def("ids", &ids)
      .def("stats", &stats)
      .def("add", &add, py::arg("texts"), py::arg("ids").noconvert())
      .def("update", &update, py::arg("ids").noconvert(), py::arg("texts"))
      .def("remove", &remove, py::arg("ids").noconvert())
      .def("search", &search, py::arg("queries"), py::arg("k"), py::arg("min_score"), py::arg("filter"), py::arg("threads"))
      .def("save", &LexicalIndex::save, py::arg("path"), without_gil);
}

}  // namespace prismem::python
