// Rows gathered into a matrix: the memory is asked for the index slots, heads and values of rows to come while one is copied.
#include <algorithm>
#include <array>
#include <cstring>

#include "cache/disk_tier.hpp"
#include "cache/rows.hpp"
#include "support/error.hpp"
#include "support/little_endian.hpp"

namespace prismem::cache {
namespace {

constexpr std::size_t kBlock = 64;        // looked up at a time
constexpr std::size_t kLookAhead = 4;      // rows whose first bytes are asked for early
constexpr std::size_t kHeadBytes = 128;    // of a record
constexpr std::size_t kFirstBytes = 384;   // of the value; the processor follows from there
constexpr std::size_t kPageStart = 256;    // and begins anew at every page
constexpr std::uintptr_t kPageBytes = 4096;

class RowSink : public ValueSink {
 public:
  RowSink(std::string_view stage, const Key& key, std::size_t dimension, float* out)
      : stage_(stage), key_(key), dimension_(dimension), out_(out) {}
  void take(std::string_view value) override { copy_row(value, stage_, key_, dimension_, out_); }

 private:
  std::string_view stage_;
  const Key& key_;
  std::size_t dimension_;
  float* out_;
};

}  // namespace

RowHead row_head(std::size_t dimension) {
  RowHead head{'P', 'M', 'A', '1', 'f', '4', '\0', 1};
  store_le64(head.data() + 8, dimension);
  return head;
}

void copy_row(std::string_view value, std::string_view stage, const Key& key, std::size_t dimension, float* out) {
  const RowHead head = row_head(dimension);
  if (value.size() != kRowHeadBytes + dimension * sizeof(float) || std::memcmp(value.data(), head.data(), kRowHeadBytes) != 0) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string name;
    for (const unsigned char byte : key) name += {kDigits[byte >> 4], kDigits[byte & 15]};
    throw ArgumentError("the entry " + name + " of stage '" + std::string(stage) + "' is no float32 row of " +
                        std::to_string(dimension) + " elements (" + std::to_string(value.size()) +
                        " bytes): ask for the dimension it was stored with, or read it with the method that matches how it was put");
  }
  std::memcpy(out, value.data() + kRowHeadBytes, dimension * sizeof(float));
}

double DiskTier::read_rows(Stage& stage, const Key* keys, std::size_t count, std::size_t dimension, float* out, unsigned char* found,
                           bool verify) {
  if (!directory_) return 0.0;
  double saved = 0.0;
  std::array<std::uint64_t, kBlock> hashes;
  std::array<Hit, kBlock> hits;
  std::array<bool, kBlock> located;
  const std::uint32_t now = unix_seconds();
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t here = std::min(kBlock, count - start);
    {
      std::shared_lock lock(view_mutex_);
      for (std::size_t i = 0; i < here; ++i) {
        hashes[i] = entry_hash(keys[start + i], stage.seed);
        index_->prefetch(hashes[i]);
      }
      const bool current = !index_->superseded();
      // The places first, so that the heads of all rows are on their way before the first is read.
      for (std::size_t i = 0; i < here; ++i) {
        MappedIndex::Probe probe = index_->probe(hashes[i]);
        Segment* segment = nullptr;
        located[i] = current && found[start + i] == 0 && index_->next(probe, hits[i].location) &&
                     (segment = segments_.find(hits[i].location.segment)) != nullptr;
        hits[i].segment = segment;
        hits[i].slot = probe.slot;
        if (located[i]) {
          const std::string_view bytes = segment->bytes(offset_of(hits[i].location), kFixedHeadBytes);
          located[i] = !bytes.empty();
          fetch(bytes.data(), kHeadBytes);
        }
      }
      for (std::size_t i = 0; i < here; ++i) {
        const std::size_t ahead = i + kLookAhead;
        if (ahead < here && located[ahead]) {
          const char* next = hits[ahead].segment->bytes(offset_of(hits[ahead].location), kFixedHeadBytes).data();
          fetch(next + kHeadBytes, kFirstBytes);
          const char* page = next + (kPageBytes - reinterpret_cast<std::uintptr_t>(next) % kPageBytes);
          if (page < next + dimension * sizeof(float)) fetch(page, kPageStart);
        }
        if (!located[i]) continue;
        Hit& hit = hits[i];
        const RecordHeader& header = hit.record.header;
        located[i] = hit.segment->record(offset_of(hit.location), hit.record) && header.kind == kValueRecord &&
                     header.key == keys[start + i] && header.stage == stage.name && (!verify || hit.segment->sound(hit.record));
        if (!located[i]) continue;
        copy_row(hit.record.value, stage.name, keys[start + i], dimension, out + (start + i) * dimension);
        found[start + i] = 1;
        saved += static_cast<double>(header.cost);
        touch(hit, now);
      }
    }
    // The rest goes the long way: not there, in a segment not opened yet, damaged.
    for (std::size_t i = 0; i < here; ++i) {
      if (found[start + i] != 0) continue;
      RowSink sink(stage.name, keys[start + i], dimension, out + (start + i) * dimension);
      double cost = 0.0;
      if (read({stage, keys[start + i], hashes[i]}, sink, cost)) {
        found[start + i] = 1;
        saved += cost;
      }
    }
  }
  return saved;
}

}  // namespace prismem::cache
