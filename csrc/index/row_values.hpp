// Values of rows: are they finite, and the same rows in another kind.
#pragma once

#include <cstdint>

#include "prismem/rows.hpp"

namespace prismem::index {

std::int64_t bytes_of(Kind kind);
const char* name_of(Kind kind);

// The first row with NaN or infinity, or -1.
std::int64_t first_nonfinite(const Rows& rows);

// Writes the rows without gaps as elements of `kind`, rounded to nearest, ties to even. Returns the first row whose values leave the range of
// `kind` (NaN and infinities do), or -1; what is written behind such a row has no meaning.
std::int64_t convert_rows(const Rows& rows, Kind kind, void* out);

}  // namespace prismem::index
