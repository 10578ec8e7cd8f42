#include "cache/record.hpp"

#include <cstring>

#include "cache/stages.hpp"
#include "support/crc32c.hpp"

namespace prismem::cache {
namespace {

constexpr std::size_t kHeadCrc = 4, kKind = 8, kStageBytes = 10, kMetaBytes = 12, kValueBytes = 16, kBodyCrc = 24,
                      kKey = 32;

}  // namespace

std::uint32_t body_crc(std::string_view meta, std::string_view value, std::uint32_t seed) {
  return crc32c(value.data(), value.size(), crc32c(meta.data(), meta.size(), seed));
}

std::string encode_head(std::string_view stage, const Key& key, std::string_view value, std::uint32_t seed) {
  std::string head(aligned(kRecordHeaderBytes + stage.size()), '\0');
  std::memcpy(head.data(), kRecordMagic, sizeof kRecordMagic);
  head[kKind] = static_cast<char>(kValueRecord);
  head[kStageBytes] = static_cast<char>(stage.size());
  store_le64(head.data() + kValueBytes, value.size());
  store_le32(head.data() + kBodyCrc, body_crc({}, value, seed));
  std::memcpy(head.data() + kKey, key.data(), key.size());
  std::memcpy(head.data() + kRecordHeaderBytes, stage.data(), stage.size());
  const std::size_t checked = kRecordHeaderBytes - kKind + stage.size();
  store_le32(head.data() + kHeadCrc, crc32c(head.data() + kKind, checked, seed));
  return head;
}

Parse parse_head(const char* data, std::size_t available, std::uint32_t seed, RecordHeader& header) {
  const std::size_t magic_seen = available < sizeof kRecordMagic ? available : sizeof kRecordMagic;
  if (std::memcmp(data, kRecordMagic, magic_seen) != 0) return Parse::damaged;
  if (available < kRecordHeaderBytes) return Parse::cut;
  const std::size_t stage_bytes = static_cast<unsigned char>(data[kStageBytes]);
  if (stage_bytes == 0 || stage_bytes > kMaxStageBytes) return Parse::damaged;
  if (available < kRecordHeaderBytes + stage_bytes) return Parse::cut;
  const std::size_t checked = kRecordHeaderBytes - kKind + stage_bytes;
  if (load_le32(data + kHeadCrc) != crc32c(data + kKind, checked, seed)) return Parse::damaged;
  header.kind = static_cast<std::uint8_t>(data[kKind]);
  header.meta_bytes = load_le32(data + kMetaBytes);
  header.value_bytes = load_le64(data + kValueBytes);
  header.body_crc = load_le32(data + kBodyCrc);
  std::memcpy(header.key.data(), data + kKey, header.key.size());
  header.stage = std::string_view(data + kRecordHeaderBytes, stage_bytes);
  // The checksum vouches for the lengths; the bounds only keep their sums from wrapping.
  if (header.meta_bytes > kMaxMetaBytes || header.value_bytes > (1ull << 48)) return Parse::damaged;
  return is_stage_name(header.stage) ? Parse::ok : Parse::damaged;
}

}  // namespace prismem::cache
