// The execution cache as prismem_core._native.ExecutionCache: conversion only; prismem_core.cache is its face.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prismem/cache.hpp"
#include "python/array_views.hpp"
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

Key key_of(py::handle value) {
  if (PyBytes_Check(value.ptr()) && PyBytes_GET_SIZE(value.ptr()) == sizeof(Key)) {
    Key key;
    std::memcpy(key.data(), PyBytes_AS_STRING(value.ptr()), key.size());
    return key;
  }
  if (!PyUnicode_Check(value.ptr())) {
    const std::string size = PyBytes_Check(value.ptr()) ? std::to_string(PyBytes_GET_SIZE(value.ptr())) + " bytes" : type_name(value);
    throw ArgumentError("key must be 64 lowercase hex digits (as digests.digest returns) or 32 bytes, got " + size);
  }
  return cache::parse_key(text_of(value, "key"));
}

// A tuple of its own, whose elements stay alive whatever happens to the caller's sequence.
py::tuple tuple_of(py::handle values, const char* name) {
  if (PyUnicode_Check(values.ptr()) || PyBytes_Check(values.ptr())) {
    throw ArgumentError(std::string(name) + " must be a sequence of them, got one " + type_name(values));
  }
  if (PyAnySet_Check(values.ptr()) || PyDict_Check(values.ptr())) {
    throw ArgumentError(std::string(name) + " must be a sequence, whose order says what belongs together, got " + type_name(values));
  }
  PyObject* tuple = PySequence_Tuple(values.ptr());
  if (tuple == nullptr) {
    PyErr_Clear();
    throw ArgumentError(std::string(name) + " must be a sequence, got " + type_name(values));
  }
  return py::reinterpret_steal<py::tuple>(tuple);
}

std::vector<Key> keys_of(py::handle values) {
  const py::tuple tuple = tuple_of(values, "keys");
  std::vector<Key> keys;
  keys.reserve(tuple.size());
  for (std::size_t i = 0; i < tuple.size(); ++i) {
    constexpr std::size_t kAhead = 8;  // keys of a large batch lie anywhere in memory
    if (i + kAhead < tuple.size()) {
      const char* next = reinterpret_cast<const char*>(PyTuple_GET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i + kAhead)));
      __builtin_prefetch(next);
      __builtin_prefetch(next + 64);
    }
    keys.push_back(key_of(PyTuple_GET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i))));
  }
  return keys;
}

std::vector<double> costs_of(py::handle cost, std::size_t count) {
  if (PyFloat_Check(cost.ptr()) || PyLong_Check(cost.ptr())) return std::vector<double>(count, py::cast<double>(cost));
  const py::tuple tuple = tuple_of(cost, "cost");
  if (tuple.size() != count) {
    throw ArgumentError("cost must be one number or one for each of the " + std::to_string(count) + " values, got " +
                        std::to_string(tuple.size()));
  }
  std::vector<double> costs;
  costs.reserve(count);
  for (const py::handle value : tuple) {
    const double number = PyFloat_AsDouble(value.ptr());
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      throw ArgumentError("cost must be numbers, got " + type_name(value));
    }
    costs.push_back(number);
  }
  return costs;
}

// Makes the value a bytes object while it is looked at, so that it is copied once.
class BytesSink : public cache::ValueSink {
 public:
  void take(std::string_view value) override {
    object = py::reinterpret_steal<py::object>(PyBytes_FromStringAndSize(value.data(), static_cast<py::ssize_t>(value.size())));
    if (!object) throw py::error_already_set();
  }
  py::object object = py::none();
};

py::object to_bytes(const Value& value) {
  if (!value) return py::none();
  return py::bytes(value->data(), value->size());
}

std::unique_ptr<ExecutionCache> open(py::object directory, std::uint64_t memory_bytes, std::uint64_t disk_bytes, bool read_only,
                                     std::uint64_t segment_bytes, bool durable) {
  cache::Options options;
  if (!directory.is_none()) options.directory = std::string(bytes_of(directory, "directory"));
  options.memory_bytes = memory_bytes;
  options.disk_bytes = disk_bytes;
  options.segment_bytes = segment_bytes;
  options.read_only = read_only;
  options.durable = durable;
  py::gil_scoped_release release;
  return std::make_unique<ExecutionCache>(options);
}

py::object get(ExecutionCache& self, py::handle stage, py::handle key) {
  BytesSink sink;
  self.get(text_of(stage, "stage"), key_of(key), sink);
  return std::move(sink.object);
}

// `get` again, called by the interpreter without pybind11's dispatch, which takes longer than a look-up.
PyObject* get_directly(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 2) {
    PyErr_Format(PyExc_TypeError, "get() takes a stage and a key, got %zd arguments", count);
    return nullptr;
  }
  try {
    // The descriptor has checked the type, which has no other bases, so the one value is where pybind11 keeps it.
    void* cache = reinterpret_cast<py::detail::instance*>(self)->simple_value_holder[0];
    if (cache == nullptr) throw CacheError("this execution cache was never opened: its constructor was not run");
    return get(*static_cast<ExecutionCache*>(cache), arguments[0], arguments[1]).release().ptr();
  } catch (...) {
    py::detail::try_translate_exceptions();
    return nullptr;
  }
}

PyMethodDef get_method = {"get", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&get_directly)), METH_FASTCALL,
                          "get(stage, key): the stored bytes, or None."};

py::list get_many(ExecutionCache& self, py::handle stage, py::handle keys) {
  constexpr py::ssize_t kTurnBytes = 1 << 20;  // copied before other threads of the interpreter get a turn
  const std::string_view name = text_of(stage, "stage");
  const std::vector<Key> parsed = keys_of(keys);
  py::list result(parsed.size());
  py::ssize_t copied = 0;
  for (std::size_t i = 0; i < parsed.size(); ++i) {
    BytesSink sink;
    if (self.get(name, parsed[i], sink)) copied += PyBytes_GET_SIZE(sink.object.ptr());
    result[i] = std::move(sink.object);
    if (copied >= kTurnBytes) {
      copied = 0;
      py::gil_scoped_release release;
    }
  }
  return result;
}

void put(ExecutionCache& self, py::handle stage, py::handle key, py::handle value, double cost) {
  const std::string_view name = text_of(stage, "stage");
  const Key parsed = key_of(key);
  const std::string_view bytes = bytes_of(value, "value");
  py::gil_scoped_release release;
  self.put(name, parsed, bytes, cost);
}

void put_many(ExecutionCache& self, py::handle stage, py::handle keys, py::handle values, py::handle cost) {
  const std::string_view name = text_of(stage, "stage");
  const std::vector<Key> parsed = keys_of(keys);
  const py::tuple held = tuple_of(values, "values");
  if (held.size() != parsed.size()) {
    throw ArgumentError("keys and values must be of one length, got " + std::to_string(parsed.size()) + " keys and " +
                        std::to_string(held.size()) + " values");
  }
  const std::vector<double> costs = costs_of(cost, parsed.size());
  std::vector<cache::Item> items;
  items.reserve(parsed.size());
  for (std::size_t i = 0; i < parsed.size(); ++i) items.push_back({parsed[i], bytes_of(held[i], "value"), costs[i]});
  py::gil_scoped_release release;
  self.put_many(name, items);
}

using FloatRows = py::array_t<float, py::array::c_style>;

void get_rows(ExecutionCache& self, py::handle stage, py::handle keys, FloatRows out, py::array_t<bool, py::array::c_style> found,
              bool verify) {
  const std::string_view name = text_of(stage, "stage");
  const std::vector<Key> parsed = keys_of(keys);
  const auto count = static_cast<py::ssize_t>(parsed.size());
  if (out.ndim() != 2 || out.shape(0) != count) refuse("out", "one row for each key");
  if (found.ndim() != 1 || found.shape(0) != count) refuse("found", "one element for each key");
  float* rows = out.mutable_data();
  auto* flags = reinterpret_cast<unsigned char*>(found.mutable_data());
  const auto dimension = static_cast<std::size_t>(out.shape(1));
  py::gil_scoped_release release;
  self.get_rows(name, parsed.data(), parsed.size(), dimension, rows, flags, verify);
}

void put_rows(ExecutionCache& self, py::handle stage, py::handle keys, const FloatRows& rows, py::handle cost) {
  const std::string_view name = text_of(stage, "stage");
  const std::vector<Key> parsed = keys_of(keys);
  if (rows.ndim() != 2 || rows.shape(0) != static_cast<py::ssize_t>(parsed.size())) refuse("rows", "one row for each key");
  const std::vector<double> costs = costs_of(cost, parsed.size());
  const auto dimension = static_cast<std::size_t>(rows.shape(1));
  const float* data = rows.data();
  py::gil_scoped_release release;
  self.put_rows(name, parsed.data(), parsed.size(), dimension, data, costs.data());
}

// Lets Ctrl-C end the wait of the main thread.
void check_signals() {
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

py::object get_or_compute(ExecutionCache& self, py::handle stage, py::handle key, const py::function& compute, std::optional<double> cost) {
  const std::string_view name = text_of(stage, "stage");
  const Key parsed = key_of(key);
  const auto call = [&compute]() -> std::string {
    py::gil_scoped_acquire gil;
    try {
      const py::object value = compute();
      return std::string(bytes_of(value, "what compute returns"));
    } catch (const py::error_already_set& error) {
      throw PythonFailure(error);
    }
  };
  Value value;
  {
    py::gil_scoped_release release;
    value = self.get_or_compute(name, parsed, call, cost.value_or(-1.0), check_signals);
  }
  return to_bytes(value);
}

py::list contains(ExecutionCache& self, py::handle stage, py::handle keys) {
  const std::string_view name = text_of(stage, "stage");
  py::list result;
  for (const Key& key : keys_of(keys)) result.append(self.contains(name, key));
  return result;
}

std::uint64_t remove(ExecutionCache& self, py::handle stage, py::handle keys) {
  const std::string_view name = text_of(stage, "stage");
  const std::vector<Key> parsed = keys_of(keys);
  py::gil_scoped_release release;
  return self.remove(name, parsed);
}

py::list entries(const ExecutionCache& self, py::handle stage) {
  std::optional<std::string_view> name;
  if (!stage.is_none()) name = text_of(stage, "stage");
  std::vector<cache::EntryInfo> found;
  {
    py::gil_scoped_release release;
    found = self.entries(name);
  }
  py::list result(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const cache::EntryInfo& entry = found[i];
    const py::bytes key(reinterpret_cast<const char*>(entry.key.data()), entry.key.size());
    result[i] = py::make_tuple(entry.stage, key, entry.value_bytes, entry.cost, entry.stored_at, entry.used_at);
  }
  return result;
}

ExecutionCache::Lease lease(ExecutionCache& self, py::handle stage, py::handle keys) {
  const std::string_view name = text_of(stage, "stage");
  const std::vector<Key> parsed = keys_of(keys);
  py::gil_scoped_release release;
  return self.lease(name, parsed, check_signals);
}

py::dict counters(const ExecutionCache& self) {
  py::dict result;
  for (const auto& [stage, count] : self.counters()) {
    result[py::str(stage)] =
        py::make_tuple(count.hits, count.misses, count.stores, count.evictions, count.waits, count.damaged, count.saved_cost);
  }
  return result;
}

py::dict stats(const ExecutionCache& self) {
  const cache::CacheStats stats = self.stats();
  py::dict result;
  result["entries"] = stats.entries;
  result["live_bytes"] = stats.live_bytes;
  result["disk_bytes"] = stats.disk_bytes;
  result["index_bytes"] = stats.index_bytes;
  result["segments"] = stats.segments;
  result["memory_entries"] = stats.memory_entries;
  result["memory_bytes"] = stats.memory_bytes;
  return result;
}

py::dict verify(ExecutionCache& self) {
  cache::VerifyReport report;
  {
    py::gil_scoped_release release;
    report = self.verify();
  }
  py::dict result;
  result["entries"] = report.entries;
  result["bytes"] = report.bytes;
  result["damaged"] = report.damaged;
  result["damaged_index"] = report.damaged_index;
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
  py::class_<ExecutionCache::Lease>(module, "Lease", "Entries that this thread computes and no other.")
      .def_property_readonly("held", &ExecutionCache::Lease::held)
      .def_property_readonly("waited", &ExecutionCache::Lease::waited)
      .def("release", &ExecutionCache::Lease::release, without_gil);
  py::class_<ExecutionCache> face(module, "ExecutionCache", "Engine of prismem_core.cache.ExecutionCache.");
  face.attr("get") = py::reinterpret_steal<py::object>(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(face.ptr()), &get_method));
  face.def(py::init(&open), py::arg("directory"), py::arg("memory_bytes"), py::arg("disk_bytes"), py::arg("read_only"),
           py::arg("segment_bytes"), py::arg("durable"))
      .def("get_many", &get_many, py::arg("stage"), py::arg("keys"))
      .def("put", &put, py::arg("stage"), py::arg("key"), py::arg("value"), py::arg("cost") = 0.0)
      .def("put_many", &put_many, py::arg("stage"), py::arg("keys"), py::arg("values"), py::arg("cost") = 0.0)
      .def("get_rows", &get_rows, py::arg("stage"), py::arg("keys"), py::arg("out").noconvert(), py::arg("found").noconvert(),
           py::arg("verify") = true)
      .def("put_rows", &put_rows, py::arg("stage"), py::arg("keys"), py::arg("rows").noconvert(), py::arg("cost") = 0.0)
      .def("get_or_compute", &get_or_compute, py::arg("stage"), py::arg("key"), py::arg("compute"), py::arg("cost") = py::none())
      .def("contains", &contains, py::arg("stage"), py::arg("keys"))
      .def("remove", &remove, py::arg("stage"), py::arg("keys"))
      .def("entries", &entries, py::arg("stage") = py::none())
      .def("lease", &lease, py::arg("stage"), py::arg("keys"), py::keep_alive<0, 1>())
      .def("counters", &counters)
      .def("stats", &stats)
      .def("verify", &verify)
      .def("compact", &ExecutionCache::compact, without_gil)
      .def("clear", &ExecutionCache::clear, without_gil)
      .def("damaged", &ExecutionCache::damaged)
      .def("take_notice", &ExecutionCache::take_notice)
      .def("flush", &ExecutionCache::flush, without_gil)
      .def("close", &ExecutionCache::close, without_gil);
}

}  // namespace prismem::python
