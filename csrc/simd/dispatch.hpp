// Chooses the instruction set at run time.
#pragma once

#include <string>
#include <vector>

#include "simd/op_table.hpp"

namespace prismem {

// The table called `isa`; "" means the environment variable PRISMEM_ISA or, where that is unset, the best set of this CPU.
// Throws ArgumentError for a set that this build does not have or this CPU cannot run.
const OpTable& op_table(const std::string& isa);

// Sets that were built and that this CPU runs, worst first.
const std::vector<const OpTable*>& runnable_tables();

}  // namespace prismem
