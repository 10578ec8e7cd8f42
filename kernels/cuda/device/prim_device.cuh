// The primitives as device code of sm_80 and later.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#define PRISMEM_DEVICE __device__ __forceinline__
#define PRISMEM_HOST_DEVICE __host__ __device__ __forceinline__
#define PRISMEM_KERNEL(threads, blocks) __global__ void __launch_bounds__(threads, blocks)

namespace prismem::cuda {

PRISMEM_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
PRISMEM_DEVICE std::int64_t block_index() { return static_cast<std::int64_t>(blockIdx.x); }

PRISMEM_DEVICE float float_of_bits(std::uint32_t bits) { return __uint_as_float(bits); }
PRISMEM_DEVICE std::uint32_t bits_of_float(float value) { return __float_as_uint(value); }
PRISMEM_DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// Without these a compiler may fuse what the definition rounds twice.
PRISMEM_DEVICE double multiply(double a, double b) { return __dmul_rn(a, b); }
PRISMEM_DEVICE double add_rounded(double a, double b) { return __dadd_rn(a, b); }
PRISMEM_DEVICE double subtract(double a, double b) { return __dsub_rn(a, b); }

PRISMEM_DEVICE float to_float(Half value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}

// Barriers. `id` is for the emulator.
template <int id>
PRISMEM_DEVICE void sync_block() {
  __syncthreads();
}

PRISMEM_DEVICE double inverse_root(float value) { return 1.0 / sqrt(static_cast<double>(value)); }

template <class T>
PRISMEM_DEVICE T shuffle_xor(T value, int bit) {
  return __shfl_xor_sync(0xffffffffu, value, bit);
}
template <class T>
PRISMEM_DEVICE T shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
PRISMEM_DEVICE std::uint32_t ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }

PRISMEM_DEVICE int count_bits(std::uint32_t bits) { return __popc(bits); }

// Global memory.
template <class T>
PRISMEM_DEVICE T load(const T* at) {
  return *at;
}
template <>
PRISMEM_DEVICE Half load(const Half* at) {
  return Half{__ldg(&at->bits)};
}
template <>
PRISMEM_DEVICE BFloat16 load(const BFloat16* at) {
  return BFloat16{__ldg(&at->bits)};
}
// Of an address that all threads of a warp share.
template <class T>
PRISMEM_DEVICE T load_uniform(const T* at) {
  return __ldg(at);
}
PRISMEM_DEVICE Quad load_quad(const void* at) {
  const uint4 raw = __ldg(static_cast<const uint4*>(at));
  return Quad{{raw.x, raw.y, raw.z, raw.w}};
}
template <class T>
PRISMEM_DEVICE void store(T* at, T value) {
  *at = value;
}
PRISMEM_DEVICE void atomic_min(std::int64_t* at, std::int64_t value) {
  atomicMin(reinterpret_cast<long long*>(at), static_cast<long long>(value));
}

// Shared memory: the dynamic part of a launch, cut by byte offsets.
extern __shared__ uint4 prismem_shared_memory[];

template <class T>
struct Shared {
  T* data;

  static PRISMEM_DEVICE Shared at(int byte_offset) {
    return Shared{reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(prismem_shared_memory) + byte_offset)};
  }
  PRISMEM_DEVICE Shared operator+(int elements) const { return Shared{data + elements}; }
  PRISMEM_DEVICE T get(int i) const { return data[i]; }
  PRISMEM_DEVICE void set(int i, T value) const { data[i] = value; }
  PRISMEM_DEVICE T add(int i, T value) const { return atomicAdd(data + i, value); }
  PRISMEM_DEVICE void maximum(int i, T value) const {
    static_assert(sizeof(T) == 8 && T(-1) > T(0), "the maximum of unsigned 64-bit numbers");
    atomicMax(reinterpret_cast<unsigned long long*>(data + i), static_cast<unsigned long long>(value));
  }
  // Sixteen bytes from element i, which starts at a multiple of sixteen bytes.
  PRISMEM_DEVICE Quad get_quad(int i) const {
    const uint4 raw = *reinterpret_cast<const uint4*>(data + i);
    return Quad{{raw.x, raw.y, raw.z, raw.w}};
  }
  PRISMEM_DEVICE void set_quad(int i, const Quad& value) const {
    *reinterpret_cast<uint4*>(data + i) = make_uint4(value.words[0], value.words[1], value.words[2], value.words[3]);
  }
};

// Copies sixteen bytes to shared memory behind the thread's back: the first `bytes` of them from `from`, then zeros.
template <class T>
PRISMEM_DEVICE void copy_async(Shared<T> to, const void* from, int bytes) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to.data));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}
PRISMEM_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `left` of the thread's newest groups of copies are unfinished.
template <int id, int left>
PRISMEM_DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

// Four 8x8 matrices of two-byte elements: lane l gives the address of row l % 8 of matrix l / 8, and gets of each matrix the two
// elements of row l / 4 from column 2 * (l % 4).
template <class T>
PRISMEM_DEVICE void load_matrices(std::uint32_t (&to)[4], Shared<T> row) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row.data));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// sums (16, 8) += a (16, 16) * b (16, 8) in the fragments of mma.m16n8k16.
PRISMEM_DEVICE void multiply_tiles(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, Half) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
PRISMEM_DEVICE void multiply_tiles(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, BFloat16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A pair of bfloat16 times a power of two, which is given twice in `power` as bfloat16.
PRISMEM_DEVICE std::uint32_t scale_pair(std::uint32_t pair, std::uint32_t power) {
  std::uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(pair), "r"(power), "r"(0x80008000u));
  return result;
}

}  // namespace prismem::cuda
