// An index file of any bytes: opening it, probing it, going through it, and writing to it as if it were sound.
#include <cstdlib>
#include <cstring>
#include <string>

#include "cache/mapped_index.hpp"
#include "input_bytes.hpp"
#include "support/crc32c.hpp"

namespace prismem::cache {
namespace {

using testing::InputBytes;

#define REQUIRE(condition) \
  if (!(condition)) std::abort()

constexpr std::size_t kStatePlaces[2] = {512, 1024};

std::uint64_t word_at(const std::string& bytes, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

void set_word(std::string& bytes, std::size_t at, std::uint64_t word) { std::memcpy(bytes.data() + at, &word, sizeof word); }

// The check of a slot, piece by piece: what the 18-bit pieces of hash and place must come to.
std::uint64_t pieces(std::uint64_t hash, std::uint64_t place) {
  std::uint64_t sum = 0;
  for (int shift = 0; shift < 64; shift += 18) sum ^= (hash >> shift ^ place >> shift) & 0x3FFFF;
  return sum;
}

bool is_entry(std::uint64_t hash, std::uint64_t place) { return hash != 0 && place != 0 && pieces(hash, place) == 0x2C5A9; }

// A file made from the input: a header, sound unless the input says otherwise, marks and states here and there, and slots of
// which some get the check that makes them entries.
std::string make_file(InputBytes& input) {
  const auto how = input.number<std::uint8_t>();
  const std::uint64_t slots = 4 * (1 + input.number<std::uint8_t>() % 12u);
  std::string bytes(MappedIndex::kHeaderBytes + slots * 32, '\0');
  set_word(bytes, 0, 0x005845444E494D50u);
  set_word(bytes, 8, 2);
  set_word(bytes, 16, slots);
  for (unsigned patches = how & 7; patches > 0; --patches) {
    const std::size_t at = 8 * (input.number<std::uint16_t>() % (MappedIndex::kHeaderBytes / 8));
    set_word(bytes, at, input.number<std::uint64_t>());
  }
  if ((how & 8) == 0) set_word(bytes, 24, crc32c_portable(bytes.data(), 24));
  for (const std::size_t state : kStatePlaces) {
    if ((how & (state == kStatePlaces[0] ? 16 : 32)) != 0) set_word(bytes, state + 64, crc32c_portable(bytes.data() + state, 64));
  }
  if ((how & 64) != 0) bytes.resize(input.number<std::uint16_t>());
  for (std::size_t at = MappedIndex::kHeaderBytes; at + 16 <= bytes.size() && !input.empty(); at += 16) {
    const auto kind = input.number<std::uint8_t>();
    // Few hashes, near each other's homes; or any.
    const std::uint64_t hash = (kind & 1) != 0 ? input.number<std::uint64_t>() : (kind >> 4) * 0x1111111111111111u;
    std::uint64_t place = (kind & 2) != 0 ? input.number<std::uint64_t>() : std::uint64_t{kind} << 42;
    if ((kind & 4) != 0) place = (place & ~std::uint64_t{0x3FFFF}) | (pieces(hash, place & ~std::uint64_t{0x3FFFF}) ^ 0x2C5A9);
    set_word(bytes, at, hash);
    set_word(bytes, at + 8, (kind & 8) != 0 ? 0 : place);
  }
  return bytes;
}

bool holds(const MappedIndex& index, std::uint64_t hash, Location wanted) {
  bool found = false;
  std::size_t count = 0;
  MappedIndex::Probe probe = index.probe(hash);
  Location location;
  while (index.next(probe, location)) {
    REQUIRE(probe.slot < index.slots() && ++count <= index.slots());
    found = found || (location.segment == wanted.segment && location.unit == wanted.unit);
  }
  return found;
}

// Every place that a probe gives stands in a slot with that hash and the right check.
void check_places(const MappedIndex& index, const std::string& bytes, std::uint64_t hash) {
  MappedIndex::Probe probe = index.probe(hash);
  Location location;
  while (index.next(probe, location)) {
    const std::uint64_t place = word_at(bytes, MappedIndex::kHeaderBytes + 16 * probe.slot + 8);
    REQUIRE(word_at(bytes, MappedIndex::kHeaderBytes + 16 * probe.slot) == hash && is_entry(hash, place));
    REQUIRE(location.segment == place >> 42 && location.unit == (place >> 18 & 0xFFFFFF));
    index.touch(probe.slot, index.detail(probe.slot).priority + 1, 7);
  }
}

void read(InputBytes input) {
  const std::string bytes = make_file(input);
  const auto index = MappedIndex::from_bytes(bytes);
  if (index == nullptr) return;
  REQUIRE(bytes.size() == MappedIndex::kHeaderBytes + 32 * index->slots());
  std::size_t entries = 0;
  bool sound = true;
  for (std::uint64_t slot = 0; slot < index->slots(); ++slot) {
    const std::size_t at = MappedIndex::kHeaderBytes + 16 * slot;
    const std::uint64_t hash = word_at(bytes, at), place = word_at(bytes, at + 8);
    entries += is_entry(hash, place);
    sound = sound && (place == 0 || is_entry(hash, place));
    check_places(*index, bytes, hash);
    check_places(*index, bytes, hash + 1);
  }
  bool damaged = false;
  std::size_t visited = 0;
  index->for_each([&](std::uint64_t, std::uint64_t, Location, const Detail&) { ++visited; }, &damaged);
  REQUIRE(visited == entries && damaged == !sound);
  LogState state{};
  index->state(state);
  index->trusted();
  REQUIRE(index->taken() <= 0xFFFFFFFFu);

  // Entries with a segment of 0 cannot be: a writer makes none, and an index that has some copies no further than that.
  bool possible = true;
  index->for_each([&](std::uint64_t, std::uint64_t, Location location, const Detail&) { possible = possible && location.segment != 0; }, nullptr);
  if (possible) {
    const auto copy = MappedIndex::in_memory(2 * index->slots());
    REQUIRE(index->copy_into(*copy) == sound && copy->taken() == entries);
  }
  for (int step = 0; step < 6; ++step) {
    const std::uint64_t known = word_at(bytes, MappedIndex::kHeaderBytes + 16 * (step % index->slots()));
    const std::uint64_t hash = step % 2 == 0 ? known | 1 : 0x7777777777777777u + step;
    const Location added{static_cast<std::uint32_t>(step + 1), static_cast<std::uint32_t>(0xABC000 + step)};
    const bool inserted = index->insert(hash, added, {1, 2, 3});
    REQUIRE(!inserted || holds(*index, hash, added));
    MappedIndex::Probe probe = index->probe(hash);
    Location location;
    if (!index->next(probe, location)) continue;
    index->replace(probe.slot, hash, {9, 9}, {1, 2, 3});
    REQUIRE(holds(*index, hash, {9, 9}));
    if (step % 3 == 0) index->erase(probe.slot);
  }
  index->set_state({1, 2, 3, 4, 5, 6.0, 7});
  REQUIRE(index->state(state) && state.next_segment == 7 && state.inflation == 6.0);
}

}  // namespace
}  // namespace prismem::cache

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  prismem::cache::read(prismem::testing::InputBytes(data, size));
  return 0;
}
