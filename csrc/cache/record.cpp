#include "cache/record.hpp"

#include <cstring>
#include <limits>

#include "cache/stages.hpp"
#include "support/crc32c.hpp"
#include "support/little_endian.hpp"

namespace prismem::cache {
namespace {

constexpr std::size_t kHeadCrc = 0, kKind = 4, kStageBytes = 5, kValueHigh = 6, kValueLow = 8, kValueCrc = 12, kCost = 16, kStoredAt = 20,
                      kKey = 24;

static_assert(kKey + sizeof(Key) == kFixedHeadBytes && aligned(kFixedHeadBytes + kMaxStageBytes) == kMaxHeadBytes);

float sound_cost(float cost) { return cost > 0.0f && cost <= std::numeric_limits<float>::max() ? cost : 0.0f; }

// Whether a stage of `size` bytes is printable ASCII, and zeros follow it up to a multiple of 8: is_stage_name, eight bytes at a time.
bool sound_stage(const char* stage, std::size_t size) {
  constexpr std::uint64_t kEach = 0x0101010101010101ull;
  std::uint64_t wrong = 0;
  for (std::size_t at = 0; at < size; at += 8) {
    std::uint64_t word = load_le64(stage + at);
    if (const std::size_t left = size - at; left < 8) {
      const std::uint64_t behind = ~std::uint64_t{0} << (8 * left);
      if ((word & behind) != 0) return false;
      word |= behind & (0x20 * kEach);
    }
    // The upper bit of a byte gets set from 0x7F on by adding 1, below 0x20 by subtracting that.
    wrong |= word | (word + kEach) | (word - 0x20 * kEach);
  }
  return (wrong & (0x80 * kEach)) == 0;
}

}  // namespace

std::size_t write_head(char* out, std::uint8_t kind, std::string_view stage, const Key& key, std::uint64_t value_bytes,
                       std::uint32_t value_crc, float cost, std::uint32_t stored_at, std::uint32_t seed) {
  const std::size_t head_bytes = aligned(kFixedHeadBytes + stage.size());
  std::memset(out + head_bytes - kRecordAlignment, 0, kRecordAlignment);
  out[kKind] = static_cast<char>(kind);
  out[kStageBytes] = static_cast<char>(stage.size());
  out[kValueHigh] = static_cast<char>(value_bytes >> 32);
  out[kValueHigh + 1] = static_cast<char>(value_bytes >> 40);
  store_le32(out + kValueLow, static_cast<std::uint32_t>(value_bytes));
  store_le32(out + kValueCrc, value_crc);
  cost = sound_cost(cost);
  std::uint32_t cost_bits;
  std::memcpy(&cost_bits, &cost, sizeof cost);
  store_le32(out + kCost, cost_bits);
  store_le32(out + kStoredAt, stored_at);
  std::memcpy(out + kKey, key.data(), key.size());
  std::memcpy(out + kFixedHeadBytes, stage.data(), stage.size());
  store_le32(out + kHeadCrc, crc32c(out + kKind, kFixedHeadBytes - kKind + stage.size(), seed));
  return head_bytes;
}

Parse parse_head(const char* data, std::size_t available, std::uint32_t seed, RecordHeader& header) {
  if (available <= kStageBytes) return Parse::cut;
  const std::size_t stage_bytes = static_cast<unsigned char>(data[kStageBytes]);
  if (stage_bytes == 0 || stage_bytes > kMaxStageBytes) return Parse::damaged;
  if (available < aligned(kFixedHeadBytes + stage_bytes)) return Parse::cut;
  if (load_le32(data + kHeadCrc) != crc32c(data + kKind, kFixedHeadBytes - kKind + stage_bytes, seed)) return Parse::damaged;
  if (!sound_stage(data + kFixedHeadBytes, stage_bytes)) return Parse::damaged;
  header.kind = static_cast<std::uint8_t>(data[kKind]);
  header.stage = std::string_view(data + kFixedHeadBytes, stage_bytes);
  std::memcpy(header.key.data(), data + kKey, header.key.size());
  // The length has 48 bits: the two bytes of its high part are the last of these eight.
  header.value_bytes = (load_le64(data) >> 48) << 32 | load_le32(data + kValueLow);
  header.value_crc = load_le32(data + kValueCrc);
  const std::uint32_t cost_bits = load_le32(data + kCost);
  float cost;
  std::memcpy(&cost, &cost_bits, sizeof cost);
  header.cost = sound_cost(cost);
  header.stored_at = load_le32(data + kStoredAt);
  return Parse::ok;
}

bool sound_value(const char* value, const RecordHeader& header, std::uint32_t seed) {
  const std::size_t size = static_cast<std::size_t>(header.value_bytes);
  if (crc32c(value, size, seed) != header.value_crc) return false;
  const std::size_t in_last = size % kRecordAlignment;
  return in_last == 0 || load_le64(value + size - in_last) >> (8 * in_last) == 0;
}

}  // namespace prismem::cache
