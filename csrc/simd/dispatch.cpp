#include "simd/dispatch.hpp"

#include <cstdlib>

#include "support/error.hpp"

#if defined(PRISMEM_HAVE_AVX2)
#include <cpuid.h>
#endif

namespace prismem {

namespace portable {
extern const OpTable op_table;
}
#if defined(PRISMEM_HAVE_AVX2)
namespace avx2 {
extern const OpTable op_table;
}
#endif
#if defined(PRISMEM_HAVE_AVX512)
namespace avx512 {
extern const OpTable op_table;
}
#endif

namespace {

#if defined(PRISMEM_HAVE_AVX2)
bool runs_avx2() {
  // The built-in also asks whether the system saves the wide registers. It knows no "f16c" in older compilers: leaf 1, ECX bit 29.
  __builtin_cpu_init();
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

#if defined(PRISMEM_HAVE_AVX512)
bool runs_avx512() {
#if defined(PRISMEM_SIMDE)
  return runs_avx2();  // every instruction beyond these is emulated
#else
  return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#endif
}
#endif

std::vector<const OpTable*> find_runnable() {
  std::vector<const OpTable*> tables = {&portable::op_table};
#if defined(PRISMEM_HAVE_AVX2)
  if (runs_avx2()) tables.push_back(&avx2::op_table);
#endif
#if defined(PRISMEM_HAVE_AVX512)
  if (runs_avx512()) tables.push_back(&avx512::op_table);
#endif
  return tables;
}

}  // namespace

const std::vector<const OpTable*>& runnable_tables() {
  static const std::vector<const OpTable*> tables = find_runnable();
  return tables;
}

const OpTable& op_table(const std::string& isa) {
  const std::vector<const OpTable*>& tables = runnable_tables();
  std::string wanted = isa;
  if (wanted.empty()) {
    const char* forced = std::getenv("PRISMEM_ISA");
    if (forced != nullptr) wanted = forced;
  }
  if (wanted.empty()) return *tables.back();
  std::string known;
  for (const OpTable* table : tables) {
    if (wanted == table->isa) return *table;
    known += known.empty() ? table->isa : std::string(", ") + table->isa;
  }
  throw ArgumentError("PRISMEM_ISA: the instruction set \"" + wanted + "\" is not available; this build on this CPU has: " + known);
}

}  // namespace prismem
