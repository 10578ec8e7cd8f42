// The execution cache as prismem_core._native.ExecutionCache: conversion only; prismem_core.cache is its face.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/execution_cache.hpp"
#include "python/errors.hpp"
#include "support/crc32c.hpp"
#include "support/error.hpp"

namespace py = pybind11;

namespace prismem::python {
namespace {

using cache::ExecutionCache;
using cache::Key;
using cache::Value;

// A Python exception on its way to every thread that waited. It is held outside of pybind11's error_already_set,
// which can be given back to Python only once.
class PythonFailure : public std::exception {
 public:
  explicit PythonFailure(const py::error_already_set& error)
      : value_(error.value().inc_ref().ptr(), [](PyObject* value) {
          if (Py_IsInitialized() == 0) return;  // too late to count references; the process is ending
          py::gil_scoped_acquire gil;
          Py_DECREF(value);
        }) {
    if (error.trace()) PyException_SetTraceback(value_.get(), error.trace().ptr());
  }
  const char* what() const noexcept override { return "the compute function raised a Python exception"; }
  void restore() const { PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value_.get())), value_.get()); }

 private:
  std::shared_ptr<PyObject> value_;
};

void translate(std::exception_ptr failure) {
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const PythonFailure& error) {
    error.restore();
  }
}

std::string type_name(py::handle value) { return Py_TYPE(value.ptr())->tp_name; }

std::string_view text_of(py::handle value, const char* name) {
  if (!PyUnicode_Check(value.ptr())) {
    throw ArgumentError(std::string(name) + " must be str, got " + type_name(value));
  }
  py::ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    throw ArgumentError(std::string(name) + " must be ASCII text, got lone surrogates");
  }
  return {text, static_cast<std::size_t>(size)};
}

std::string_view bytes_of(py::handle value, const char* name) {
  if (!PyBytes_Check(value.ptr())) {
    throw ArgumentError(std::string(name) + " must be bytes, got " + type_name(value) +
                        "; encode it, or use the json or array methods");
  }
  return {PyBytes_AS_STRING(value.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(value.ptr()))};
}

py::object to_bytes(const Value& value) {
  if (!value) return py::none();
  return py::bytes(value->data(), value->size());
}

std::unique_ptr<ExecutionCache> open(py::object directory, std::uint64_t memory_bytes, bool read_only,
                                     std::uint64_t segment_bytes) {
  cache::Options options;
  if (!directory.is_none()) options.directory = std::string(bytes_of(directory, "directory"));
  options.memory_bytes = memory_bytes;
  options.segment_bytes = segment_bytes;
  options.read_only = read_only;
  py::gil_scoped_release release;
  return std::make_unique<ExecutionCache>(options);
}

py::object get(ExecutionCache& self, py::handle stage, py::handle key) {
  const std::string_view name = text_of(stage, "stage");
  const Key parsed = cache::parse_key(text_of(key, "key"));
  Value value;
  {
    py::gil_scoped_release release;
    value = self.get(name, parsed);
  }
  return to_bytes(value);
}

py::list get_many(ExecutionCache& self, py::handle stage, const py::sequence& keys) {
  const std::string_view name = text_of(stage, "stage");
  std::vector<Key> parsed;
  parsed.reserve(keys.size());
  for (const py::handle key : keys) parsed.push_back(cache::parse_key(text_of(key, "key")));
  std::vector<Value> values;
  {
    py::gil_scoped_release release;
    values = self.get_many(name, parsed);
  }
  py::list result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) result[i] = to_bytes(values[i]);
  return result;
}

void put(ExecutionCache& self, py::handle stage, py::handle key, py::handle value) {
  const std::string_view name = text_of(stage, "stage");
  const Key parsed = cache::parse_key(text_of(key, "key"));
  const std::string_view bytes = bytes_of(value, "value");
  py::gil_scoped_release release;
  self.put(name, parsed, std::string(bytes));
}

py::object get_or_compute(ExecutionCache& self, py::handle stage, py::handle key, const py::function& compute) {
  const std::string_view name = text_of(stage, "stage");
  const Key parsed = cache::parse_key(text_of(key, "key"));
  const auto call = [&compute]() -> std::string {
    py::gil_scoped_acquire gil;
    try {
      const py::object value = compute();
      return std::string(bytes_of(value, "what compute returns"));
    } catch (const py::error_already_set& error) {
      throw PythonFailure(error);
    }
  };
  // Lets Ctrl-C end the wait of the main thread.
  const auto check_signals = [] {
    py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  };
  Value value;
  {
    py::gil_scoped_release release;
    value = self.get_or_compute(name, parsed, call, check_signals);
  }
  return to_bytes(value);
}

py::dict counters(const ExecutionCache& self) {
  py::dict result;
  for (const auto& [stage, count] : self.counters()) {
    result[py::str(stage)] =
        py::make_tuple(count.hits, count.misses, count.stores, count.evictions, count.waits, count.damaged);
  }
  return result;
}

std::uint32_t checksum(py::handle data, std::uint32_t previous, bool portable) {
  const std::string_view bytes = bytes_of(data, "data");
  return (portable ? crc32c_portable : crc32c)(bytes.data(), bytes.size(), previous);
}

}  // namespace

void bind_cache(py::module_& module) {
  py::register_exception_translator(&translate);
  module.def("crc32c", &checksum, "CRC-32C of data, continued from previous; portable forces the table-driven form.",
             py::arg("data"), py::arg("previous") = 0, py::arg("portable") = false);
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<ExecutionCache>(module, "ExecutionCache", "Engine of prismem_core.cache.ExecutionCache.")
      .def(py::init(&open), py::arg("directory"), py::arg("memory_bytes"), py::arg("read_only"),
           py::arg("segment_bytes"))
      .def("get", &get, py::arg("stage"), py::arg("key"))
      .def("get_many", &get_many, py::arg("stage"), py::arg("keys"))
      .def("put", &put, py::arg("stage"), py::arg("key"), py::arg("value"))
      .def("get_or_compute", &get_or_compute, py::arg("stage"), py::arg("key"), py::arg("compute"))
      .def("counters", &counters)
      .def("damaged", &ExecutionCache::damaged)
      .def("take_notice", &ExecutionCache::take_notice)
      .def("flush", &ExecutionCache::flush, without_gil)
      .def("close", &ExecutionCache::close, without_gil);
}

}  // namespace prismem::python
