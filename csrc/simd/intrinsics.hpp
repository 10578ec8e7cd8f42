// The x86 intrinsics, from one place: the compiler's own, or, in builds for testing that define PRISMEM_SIMDE, the same names in
// portable C, so that a kernel for a newer CPU runs, slowly, on an older one.
#pragma once

#if defined(PRISMEM_SIMDE)
#include "simde_intrinsics.hpp"  // tests/native/simde
#else
// GCC 12 takes the undefined register behind some of its own intrinsics for a fault of whoever calls them.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace prismem {
namespace PRISMEM_NAMESPACE {

// Keeps a vector in its register at this point: compilers spill the accumulators of unrolled loops without it.
template <class V>
inline void keep_in_register(V& vector) {
#if defined(PRISMEM_SIMDE)
  (void)vector;
#elif defined(PRISMEM_TARGET_AVX512)
  asm volatile("" : "+v"(vector));  // any of the 32 registers
#else
  asm volatile("" : "+x"(vector));
#endif
}

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
