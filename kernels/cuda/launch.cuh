// Launching kernels from the host, and what went wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "prim.cuh"
#include "prismem/cuda.h"
#include "rows.cuh"

namespace prismem::cuda {

// Keeps the message for prismem_cuda_message and returns the code.
int failed(int code, const std::string& message);

// How many blocks a device runs at the same time, if each is as large as may be: its multiprocessors.
int processors(int device);

#ifdef __CUDACC__
int failed(cudaError_t error, const char* during);

// Makes `device` current for a scope.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  int code() const { return code_; }

 private:
  int before_ = -1;
  int code_ = PRISMEM_CUDA_OK;
};

template <class... Parameters, class... Arguments>
int launch(void (*kernel)(Parameters...), std::int64_t blocks, int threads, int shared_bytes, void* stream, const Arguments&... arguments) {
  if (blocks == 0) return PRISMEM_CUDA_OK;
  if (blocks > 0x7fffffff) return failed(PRISMEM_CUDA_ARGUMENT, "the call needs more than 2147483647 blocks; cut it into smaller ones");
  if (shared_bytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != cudaSuccess) return failed(error, "asking for shared memory");
  }
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), static_cast<std::size_t>(shared_bytes),
           static_cast<cudaStream_t>(stream)>>>(static_cast<Parameters>(arguments)...);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? PRISMEM_CUDA_OK : failed(error, "launching a kernel");
}
#else
class OnDevice {
 public:
  explicit OnDevice(int) {}
  int code() const { return PRISMEM_CUDA_OK; }
};

template <class... Parameters, class... Arguments>
int launch(void (*kernel)(Parameters...), std::int64_t blocks, int threads, int shared_bytes, void*, const Arguments&... arguments) {
  const std::string fault =
      emulator::launch(blocks, threads, static_cast<std::size_t>(shared_bytes), [&] { kernel(static_cast<Parameters>(arguments)...); });
  return fault.empty() ? PRISMEM_CUDA_OK : failed(PRISMEM_CUDA_FAILURE, "emulator: " + fault);
}
#endif

RowsView view_of(const prismem_cuda_rows& rows);

// Calls `run` with a value of the type of a kind.
template <class Run>
int with_kind(Kind kind, Run run) {
  switch (kind) {
    case Kind::float16:
      return run(Half{});
    case Kind::bfloat16:
      return run(BFloat16{});
    default:
      return run(float{});
  }
}

// The same for the kinds that tensor cores take.
template <class Run>
int with_half_kind(Kind kind, Run run) {
  return kind == Kind::float16 ? run(Half{}) : run(BFloat16{});
}

int launch_row_scales(const RowsView& rows, std::int64_t dim, float* powers, float* inverses, void* stream);

}  // namespace prismem::cuda
