#include <exception>

#include "launch.cuh"

#ifndef PRISMEM_CUDA_ARCHITECTURES
#define PRISMEM_CUDA_ARCHITECTURES "emulator"
#endif

namespace prismem::cuda {

namespace {

thread_local std::string message;

#ifdef __CUDACC__
__global__ void any_kernel() {}
#endif

}  // namespace

int failed(int code, const std::string& what) {
  message = what;
  return code;
}

RowsView view_of(const prismem_cuda_rows& rows) {
  const int size = rows.kind == PRISMEM_CUDA_FLOAT32 ? 4 : 2;
  const bool aligned = reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && (rows.count <= 1 || rows.stride * size % 16 == 0);
  return RowsView{rows.data, rows.count, rows.stride, static_cast<Kind>(rows.kind), aligned ? 1 : 0, rows.powers, rows.inverses};
}

#ifdef __CUDACC__

int failed(cudaError_t error, const char* during) {
  const std::string reason = std::string(during) + ": " + cudaGetErrorString(error);
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
    case cudaErrorStubLibrary:
      return failed(PRISMEM_CUDA_NO_DEVICE, reason + "; an NVIDIA driver for CUDA " + std::to_string(CUDART_VERSION / 1000) + " is needed");
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage:
    case cudaErrorUnsupportedPtxVersion:
      return failed(PRISMEM_CUDA_ARCHITECTURE, reason + "; the library was built for " PRISMEM_CUDA_ARCHITECTURES
                                                        ", build it with -DCMAKE_CUDA_ARCHITECTURES for this device");
    case cudaErrorMemoryAllocation:
      return failed(PRISMEM_CUDA_MEMORY, reason);
    default:
      return failed(PRISMEM_CUDA_FAILURE, reason);
  }
}

OnDevice::OnDevice(int device) {
  int current = -1;
  cudaError_t error = cudaGetDevice(&current);
  if (error == cudaSuccess && current != device) {
    error = cudaSetDevice(device);
    if (error == cudaSuccess) before_ = current;
  }
  if (error != cudaSuccess) code_ = failed(error, ("using device " + std::to_string(device)).c_str());
}
OnDevice::~OnDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

int processors(int device) {
  int count = 0;
  return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess && count > 0 ? count : 108;
}

#else

int processors(int) { return 2; }

#endif

}  // namespace prismem::cuda

using namespace prismem::cuda;

extern "C" {

const char* prismem_cuda_message(void) { return message.c_str(); }
const char* prismem_cuda_architectures(void) { return PRISMEM_CUDA_ARCHITECTURES; }

#ifdef __CUDACC__

int prismem_cuda_is_emulator(void) { return 0; }

int prismem_cuda_device_count(void) {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

int prismem_cuda_available(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return failed(error, "looking for devices");
  if (device < 0 || device >= count) {
    return failed(PRISMEM_CUDA_NO_DEVICE, "there is no device " + std::to_string(device) + ", but " + std::to_string(count) + " in all");
  }
  const OnDevice on(device);
  if (on.code() != PRISMEM_CUDA_OK) return on.code();
  cudaFuncAttributes attributes;
  const cudaError_t loaded = cudaFuncGetAttributes(&attributes, any_kernel);
  return loaded == cudaSuccess ? PRISMEM_CUDA_OK : failed(loaded, "loading the kernels");
}

#else

int prismem_cuda_is_emulator(void) { return 1; }
int prismem_cuda_available(int) { return PRISMEM_CUDA_OK; }
int prismem_cuda_device_count(void) { return 1; }

// For tests of the kernels.
__attribute__((visibility("default"))) void prismem_emulator_configure(std::uint64_t seed, int removed_sync, const void* watched,
                                                                       std::uint64_t watched_bytes) {
  emulator::settings() = {seed, removed_sync, watched, static_cast<std::size_t>(watched_bytes)};
}
// bytes read, bytes written, watched bytes read, tensor operations, launches since the last call.
__attribute__((visibility("default"))) void prismem_emulator_counters(std::int64_t* to) {
  const emulator::Counters counted = emulator::counters();
  to[0] = counted.bytes_read;
  to[1] = counted.bytes_written;
  to[2] = counted.watched_bytes_read;
  to[3] = counted.tensor_operations;
  to[4] = counted.launches;
  emulator::counters() = {};
}
__attribute__((visibility("default"))) int prismem_emulator_sync_counts(std::int64_t* to) {
  for (int id = 0; id < emulator::kSyncs; ++id) to[id] = emulator::sync_counts()[id];
  return emulator::kSyncs;
}

#endif

}  // extern "C"
