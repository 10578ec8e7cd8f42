// AVX-512 on a CPU that has AVX2: the intrinsics of SIMDe under their own names, and those that SIMDe lacks.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
