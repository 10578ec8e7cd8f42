#include "prismem/ops.hpp"
#include "simd/dispatch.hpp"

namespace prismem {

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const OpTable* table : runnable_tables()) names.emplace_back(table->isa);
  return names;
}

std::string chosen_isa(const std::string& isa) { return op_table(isa).isa; }

}  // namespace prismem
