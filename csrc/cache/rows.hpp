// A float32 row as a value: the array format of docs/formats.md with one dimension.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "cache/key.hpp"

namespace prismem::cache {

constexpr std::size_t kRowHeadBytes = 16;
using RowHead = std::array<char, kRowHeadBytes>;

RowHead row_head(std::size_t dimension);

// Copies the elements of a row; ArgumentError, naming the entry, for a value that is no row of `dimension` elements.
void copy_row(std::string_view value, std::string_view stage, const Key& key, std::size_t dimension, float* out);

}  // namespace prismem::cache
