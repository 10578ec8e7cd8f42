// The index of the disk tier: a mapped hash table from entry hashes to places in segments. Any number of threads and
// processes read it without locks while one writer changes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace prismem::cache {

// Where a record starts: its segment, 1 .. 2^22 - 1, and its offset there in units of 8 bytes, 0 .. 2^24 - 1.
struct Location {
  std::uint32_t segment;
  std::uint32_t unit;
};

// What eviction wants to know of an entry. Written without order beside the readers and covered by no checksum: a hint.
struct Detail {
  double priority;
  std::uint32_t units;    // bytes of the record / 8, at most 2^32 - 1
  std::uint32_t used_at;  // Unix seconds
};

// How far the index speaks for the log.
struct LogState {
  std::uint64_t tail_segment;
  std::uint64_t tail_bytes;
  std::uint64_t entries;
  std::uint64_t live_bytes;
  std::uint64_t log_bytes;
  double inflation;
  std::uint64_t next_segment;
};

// File: one header page, `slots` slots of 16 bytes, `slots` details of 16 bytes; numbers in the byte order of the machine.
//
// A slot is two words, {hash, place}; place = location << 18 | check. Open addressing: the home of a hash is the first
// slot of one group of 4 (a cache line), and slots are probed one after the other.
//   {0, 0}        empty: ends every probe
//   {hash, 0}     erased, or an insertion that has not come further: passed over, and free to be used
//   {hash, place} an entry, if the check is right
//   anything else is damage
// The check is the XOR of all 18-bit pieces of hash and location: an error within 18 neighbouring bits never passes, so no
// flipped byte does. A probe that ends without a hit has checked every slot on its way, since a damaged hash looks like
// another one, and tells by Probe::damaged.
//
// Readers and the writer. The writer stores single words, each with release, in these orders only:
//   insert   hash, then place, in a slot whose place is 0     {0, 0} or {erased, 0} -> {hash, 0} -> {hash, place}
//   replace  place, where the hash stays                      {hash, old} -> {hash, new}
//   erase    place = 0, then hash = kErasedHash               {hash, place} -> {hash, 0} -> {erased, 0}
//            and hash = 0 where the next slot is empty        {erased, 0} -> {0, 0}
// Every state on the way is one of the four above and says nothing wrong, so it does not matter where a kill -9 ends the
// writer: the words stay in the page cache, and the next writer finds a free or a finished slot. A hash changes only while
// the place is 0. A reader loads hash, place and hash again, with acquire. Had the slot changed its owner in between, the
// place it saw came after the new hash, and so the second load shows the new hash: it looks again. (The old hash could
// be back by then, after an erasure and another insertion, all within those loads; then the check, made for the other
// hash, fails but for 1 in 2^18, and the record at that place has another key.)
// A slot becomes empty only when the next one is empty: a probe that stands before either ends at the same entries.
// An entry that moves is missing for nobody only by replace(); erase() and insert() leave a moment without it.
class MappedIndex {
 public:
  static constexpr char kName[] = "index";
  static constexpr char kUnfinished[] = "index.new";
  static constexpr std::size_t kHeaderBytes = 4096;
  static constexpr std::uint64_t kGroup = 4;
  static constexpr std::uint64_t kMaxSlots = 0xFFFFFFFCu;

  // Makes a table of at least `slots` slots, lets `fill` fill it, and gives it the name `index` in the directory: it appears
  // there whole or not at all. An index that it takes the place of is marked as superseded right before. The space is
  // allocated at once, so that a full disk shows here and never as SIGBUS. Needs the lock. SystemFailure; ArgumentError
  // for more than kMaxSlots.
  static std::unique_ptr<MappedIndex> create(int directory, std::uint64_t slots,
                                             const std::function<void(MappedIndex&)>& fill = {}, MappedIndex* old = nullptr);
  // Null: there is none, its header is damaged or of another format, or its size is wrong. SystemFailure for what else
  // keeps it from being opened.
  static std::unique_ptr<MappedIndex> open(int directory, bool writable);
  static std::unique_ptr<MappedIndex> in_memory(std::uint64_t slots);
  // A table in memory with the bytes of an index file; null as for open().
  static std::unique_ptr<MappedIndex> from_bytes(std::string_view file);
  ~MappedIndex();
  MappedIndex(const MappedIndex&) = delete;
  MappedIndex& operator=(const MappedIndex&) = delete;

  struct Probe {
    std::uint64_t hash;
    std::uint64_t slot;    // the one looked at last; after a hit the slot of the location
    std::uint64_t looked;  // slots looked at
    bool damaged;          // a slot was damaged: what was looked for may have been there
  };
  Probe probe(std::uint64_t hash) const { return {hash, home(hash) - 1, 0, false}; }
  // Goes on to the next entry with this hash; false at an empty slot or after a whole round.
  bool next(Probe& probe, Location& location) const;
  // Fetches the cache lines in which a probe of `hash` will start, and where most details of what it finds will be.
  void prefetch(std::uint64_t hash) const {
    const std::uint64_t slot = home(hash);
    __builtin_prefetch(words_ + 2 * slot);
    __builtin_prefetch(details_ + 2 * slot);
  }

  // For writers, one at a time, under the lock. None of them looks for an entry of the same hash: probe first.
  // False: 5/6 of the slots are taken, erased ones included, and none on the way is free: make a larger table.
  bool insert(std::uint64_t hash, Location location, const Detail& detail);
  void replace(std::uint64_t slot, std::uint64_t hash, Location location, const Detail& detail);
  void erase(std::uint64_t slot);

  Detail detail(std::uint64_t slot) const;
  // Notes a use; any reader may. Nothing happens where the file is mapped for reading.
  void touch(std::uint64_t slot, double priority, std::uint32_t used_at) const;

  using Visit = std::function<void(std::uint64_t slot, std::uint64_t hash, Location location, const Detail& detail)>;
  // Every entry; `damaged` (may be null) is set, never cleared, when slots were damaged and passed over.
  void for_each(const Visit& visit, bool* damaged) const;
  // Inserts every entry into an index with enough slots, in nearly ascending order of its slots. False: some were damaged
  // and are missing there.
  bool copy_into(MappedIndex& larger) const;

  std::uint64_t slots() const { return slots_; }
  // Slots that are not empty. A writer killed in an insertion leaves it one too high.
  std::uint64_t taken() const;
  std::uint64_t bytes() const { return bytes_; }
  bool writable() const { return writable_; }

  // The state published last, of which a damaged copy means the one before; false when both copies are damaged or none
  // was published.
  bool state(LogState& state) const;
  void set_state(const LogState& state);

  // Whether a new index has taken, or is about to take, this one's place: open again. (After a kill in that moment it
  // may still be the one; begin_writing() takes the mark back.)
  bool superseded() const;
  void supersede();
  // Whether the name in the directory still stands for this file: somebody may have removed it.
  bool bears_name(int directory) const;

  // Whether the file holds what its writers stored: they ran since the last boot, or the last one closed in order.
  bool trusted() const;
  // Before the first change under a lock: takes the mark of an orderly close away, on the disk too. CacheError for an index
  // that is not to be trusted.
  void begin_writing();
  // The last writer: brings everything to the disk, then marks it.
  void mark_clean();

 private:
  enum class Slot { empty, free, entry, damaged };
  struct Words {
    std::uint64_t hash, place;
  };

  static constexpr int kCheckBits = 18;
  static constexpr std::uint64_t kCheckMask = (1u << kCheckBits) - 1;
  static constexpr std::uint64_t kCheckSalt = 0x2C5A9;  // so that equal words, as in a block of one byte, are no entry
  static constexpr std::uint64_t kErasedHash = 0xE5A5EDE5A5EDE5A5u;  // any flipped byte of {kErasedHash, 0} is no entry either

  MappedIndex(char* data, std::size_t bytes, std::uint64_t slots, bool writable, bool file);
  static std::unique_ptr<MappedIndex> make(char* data, std::size_t bytes, std::uint64_t slots, bool file);

  static std::uint64_t load(const std::uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
  static void store(std::uint64_t* word, std::uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
  // The XOR of the 18-bit pieces of a word.
  static std::uint64_t fold(std::uint64_t word) {
    word ^= word >> (2 * kCheckBits);
    return (word ^ word >> kCheckBits) & kCheckMask;
  }
  static bool sound(std::uint64_t hash, std::uint64_t place) { return fold(hash ^ place) == kCheckSalt; }
  static std::uint64_t pack(std::uint64_t hash, Location location);
  static Location unpack(std::uint64_t place) {
    return {static_cast<std::uint32_t>(place >> 42), static_cast<std::uint32_t>(place >> kCheckBits & 0xFFFFFFu)};
  }

  std::uint64_t home(std::uint64_t hash) const {
    return kGroup * static_cast<std::uint64_t>(static_cast<unsigned __int128>(hash) * groups_ >> 64);
  }
  std::uint64_t after(std::uint64_t slot) const { return slot + 1 == slots_ ? 0 : slot + 1; }
  std::uint64_t before(std::uint64_t slot) const { return (slot == 0 ? slots_ : slot) - 1; }
  std::uint64_t* header() const { return reinterpret_cast<std::uint64_t*>(data_); }
  std::array<std::uint64_t, 9> load_state(std::size_t copy) const;
  // The slot as it was at one moment.
  Slot read(std::uint64_t slot, Words& words) const;
  // next() without haste: slot by slot, each with its check.
  bool seek(Probe& probe, Location& location) const;
  void set_detail(std::uint64_t slot, const Detail& detail) const;
  void set_taken(std::uint64_t taken);
  std::uint64_t count_taken() const;
  void sync_header();
  void remember(int file);

  char* data_;
  std::size_t bytes_;
  std::uint64_t slots_;
  std::uint64_t groups_;
  std::uint64_t* words_;    // of the slots
  std::uint64_t* details_;  // two words a slot
  bool writable_;
  bool file_;  // a mapped file, not memory
  std::uint64_t device_ = 0, inode_ = 0;
};

// Most entries lie in the group they are at home in, at any of its slots: all four are compared without a branch between.
__attribute__((always_inline)) inline bool MappedIndex::next(Probe& probe, Location& location) const {
  const std::uint64_t hash = probe.hash;
  if (probe.looked == 0 && hash != 0) {
    const std::uint64_t* group = words_ + 2 * (probe.slot + 1);
    const unsigned first = load(group) == hash, second = load(group + 2) == hash;
    const unsigned third = load(group + 4) == hash, fourth = load(group + 6) == hash;
    const std::uint64_t which = second + 2 * third + 3 * fourth;
    const std::uint64_t place = load(group + 2 * (which & 3) + 1);
    const bool found = first + second + third + fourth == 1 && place != 0 && sound(hash, place) && load(group + 2 * (which & 3)) == hash;
    if (found) {
      probe.slot += which + 1;
      probe.looked = which + 1;
      location = unpack(place);
      return true;
    }
  }
  return seek(probe, location);
}

}  // namespace prismem::cache
