#include "cache/mapped_index.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string>

#include "support/crc32c.hpp"
#include "support/error.hpp"
#include "support/file.hpp"

namespace prismem::cache {
namespace {

// The header page, in words of 8 bytes. Each group of fields that changes on its own has its own cache line.
constexpr std::size_t kMagicWord = 0;       // "PMINDEX\0"; another byte order or format shows here
constexpr std::size_t kFormatWord = 1;
constexpr std::size_t kSlotsWord = 2;
constexpr std::size_t kCrcWord = 3;         // CRC of the three above
constexpr std::size_t kBootWord = 8;        // two words: the boot id of the last writer's system; 0 where it has none
constexpr std::size_t kCleanWord = 10;      // kClean after an orderly close
constexpr std::size_t kSupersededWord = 16; // kSuperseded once there is a newer file
constexpr std::size_t kTakenWord = 24;      // low half: taken slots; high half: its complement
constexpr std::size_t kStateWords[2] = {64, 128};

constexpr std::uint64_t kMagic = 0x005845444E494D50u;
constexpr std::uint64_t kFormat = 2;
constexpr std::uint64_t kClean = 0xC1EA2C10535D0F11u;
constexpr std::uint64_t kSuperseded = 0x5C6E25EDED5E6CA5u;

using BootId = std::array<std::uint64_t, 2>;

// The number that the running system got when it booted; zeros where it tells none.
BootId read_boot_id() {
  BootId id{};
  const Descriptor file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!file) return id;
  char text[64];
  const ssize_t size = ::read(file.get(), text, sizeof text);
  std::size_t digits = 0;
  for (ssize_t i = 0; i < size && digits < 32; ++i) {
    const char symbol = text[i];
    const int digit = symbol >= '0' && symbol <= '9' ? symbol - '0' : symbol >= 'a' && symbol <= 'f' ? symbol - 'a' + 10 : -1;
    if (digit < 0) continue;
    id[digits / 16] = id[digits / 16] << 4 | static_cast<std::uint64_t>(digit);
    ++digits;
  }
  return digits == 32 ? id : BootId{};
}

const BootId& boot_id() {
  static const BootId id = read_boot_id();
  return id;
}

// A copy of the state: sequence number, fields, CRC of both.
using StateWords = std::array<std::uint64_t, 9>;

std::uint64_t state_crc(const StateWords& words) { return crc32c(words.data(), sizeof words - sizeof words[0]); }

// The sound copy with the higher sequence number, which may wrap around; -1 when none is sound.
int newest_of(const std::array<StateWords, 2>& copies) {
  const bool first = copies[0].back() == state_crc(copies[0]), second = copies[1].back() == state_crc(copies[1]);
  if (first && second) return static_cast<std::int64_t>(copies[1][0] - copies[0][0]) > 0 ? 1 : 0;
  return first ? 0 : second ? 1 : -1;
}

std::size_t file_bytes(std::uint64_t slots) { return MappedIndex::kHeaderBytes + static_cast<std::size_t>(slots) * 32; }

std::uint64_t header_crc(const std::uint64_t* header) { return crc32c(header, kCrcWord * sizeof *header); }

// The slots of an index file of that size that begins with `header`; 0 when it is none.
std::uint64_t slots_in(const std::uint64_t* header, std::uint64_t size) {
  if (header[kMagicWord] != kMagic || header[kFormatWord] != kFormat || header[kCrcWord] != header_crc(header)) return 0;
  const std::uint64_t slots = header[kSlotsWord];
  if (slots == 0 || slots % MappedIndex::kGroup != 0 || slots > MappedIndex::kMaxSlots || file_bytes(slots) != size) return 0;
  return slots;
}

std::uint64_t whole_groups(std::uint64_t slots) {
  if (slots > MappedIndex::kMaxSlots) {
    throw ArgumentError("an index has at most " + std::to_string(MappedIndex::kMaxSlots) + " slots, got " + std::to_string(slots));
  }
  return std::max((slots + MappedIndex::kGroup - 1) / MappedIndex::kGroup, std::uint64_t{1}) * MappedIndex::kGroup;
}

char* map(int file, std::size_t bytes, bool writable) {
  const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* start = ::mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, kind, file, 0);
  if (start == MAP_FAILED) throw SystemFailure(errno, "cannot map an index of " + std::to_string(bytes) + " bytes");
  return static_cast<char*>(start);
}

void allocate(int file, std::size_t bytes) {
  int code;
  do {
    code = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  } while (code == EINTR);
  if (code != 0) throw SystemFailure(code, "cannot allocate an index of " + std::to_string(bytes) + " bytes");
}

}  // namespace

MappedIndex::MappedIndex(char* data, std::size_t bytes, std::uint64_t slots, bool writable, bool file)
    : data_(data),
      bytes_(bytes),
      slots_(slots),
      groups_(slots / kGroup),
      words_(reinterpret_cast<std::uint64_t*>(data + kHeaderBytes)),
      details_(words_ + 2 * slots),
      writable_(writable),
      file_(file) {
  // No byte of an erased slot can be flipped so that it becomes an entry: a byte lies within 18 neighbouring bits, and the
  // fold of kErasedHash is further away from the salt than that.
  static_assert([] {
    for (int byte = 0; byte < 8; ++byte) {
      for (std::uint64_t flip = 1; flip < 256; ++flip) {
        const std::uint64_t place = flip << (8 * byte);
        std::uint64_t word = kErasedHash ^ place;
        word ^= word >> (2 * kCheckBits);
        if (((word ^ word >> kCheckBits) & kCheckMask) == kCheckSalt) return false;
      }
    }
    return true;
  }());
}

MappedIndex::~MappedIndex() { ::munmap(data_, bytes_); }

std::unique_ptr<MappedIndex> MappedIndex::make(char* data, std::size_t bytes, std::uint64_t slots, bool file) {
  std::unique_ptr<MappedIndex> index(new MappedIndex(data, bytes, slots, true, file));
  std::uint64_t* header = index->header();
  header[kMagicWord] = kMagic;
  header[kFormatWord] = kFormat;
  header[kSlotsWord] = slots;
  header[kCrcWord] = header_crc(header);
  header[kBootWord] = boot_id()[0];
  header[kBootWord + 1] = boot_id()[1];
  index->set_taken(0);
  return index;
}

std::unique_ptr<MappedIndex> MappedIndex::create(int directory, std::uint64_t slots, const std::function<void(MappedIndex&)>& fill,
                                                 MappedIndex* old) {
  slots = whole_groups(slots);
  const std::size_t bytes = file_bytes(slots);
  // What a killed writer left is unlinked, not written over: nobody's mapping may lose its file.
  ::unlinkat(directory, kUnfinished, 0);
  const Descriptor file(::openat(directory, kUnfinished, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file) throw SystemFailure(errno, "cannot create index.new");
  try {
    allocate(file.get(), bytes);
    std::unique_ptr<MappedIndex> index = make(map(file.get(), bytes, true), bytes, slots, true);
    index->remember(file.get());
    if (fill) fill(*index);
    if (old != nullptr) old->supersede();
    if (::renameat(directory, kUnfinished, directory, kName) != 0) throw SystemFailure(errno, "cannot rename index.new");
    return index;
  } catch (...) {
    ::unlinkat(directory, kUnfinished, 0);
    throw;
  }
}

std::unique_ptr<MappedIndex> MappedIndex::open(int directory, bool writable) {
  const Descriptor file(::openat(directory, kName, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) {
    if (errno == ENOENT || errno == ELOOP) return nullptr;
    throw SystemFailure(errno, "cannot open the index");
  }
  std::uint64_t header[kCrcWord + 1];
  if (read_at(file.get(), header, sizeof header, 0) != sizeof header) return nullptr;
  const std::uint64_t slots = slots_in(header, file_size(file.get()));
  if (slots == 0) return nullptr;
  const std::size_t bytes = file_bytes(slots);
  std::unique_ptr<MappedIndex> index(new MappedIndex(map(file.get(), bytes, writable), bytes, slots, writable, true));
  index->remember(file.get());
  return index;
}

std::unique_ptr<MappedIndex> MappedIndex::in_memory(std::uint64_t slots) {
  slots = whole_groups(slots);
  const std::size_t bytes = file_bytes(slots);
  return make(map(-1, bytes, true), bytes, slots, false);
}

std::unique_ptr<MappedIndex> MappedIndex::from_bytes(std::string_view file) {
  std::uint64_t header[kCrcWord + 1];
  if (file.size() < sizeof header) return nullptr;
  std::memcpy(header, file.data(), sizeof header);
  const std::uint64_t slots = slots_in(header, file.size());
  if (slots == 0) return nullptr;
  char* data = map(-1, file.size(), true);
  std::memcpy(data, file.data(), file.size());
  return std::unique_ptr<MappedIndex>(new MappedIndex(data, file.size(), slots, true, false));
}

std::uint64_t MappedIndex::pack(std::uint64_t hash, Location location) {
  if (hash == 0 || location.segment == 0 || location.segment >> 22 != 0 || location.unit >> 24 != 0) {
    throw ArgumentError("the index holds hashes other than 0, segments 1 to 2^22 - 1 and units below 2^24, got segment " +
                        std::to_string(location.segment) + " and unit " + std::to_string(location.unit));
  }
  const std::uint64_t place = static_cast<std::uint64_t>(location.segment) << 42 | static_cast<std::uint64_t>(location.unit) << kCheckBits;
  return place | (fold(hash ^ place) ^ kCheckSalt);
}

MappedIndex::Slot MappedIndex::read(std::uint64_t slot, Words& words) const {
  const std::uint64_t* at = words_ + 2 * slot;
  // A writer would have to change the slot's owner within a few loads, again and again, for this to be a second time round.
  for (int attempt = 0; attempt < 1000; ++attempt) {
    words.hash = load(at);
    words.place = load(at + 1);
    if (load(at) != words.hash) continue;
    if (words.place == 0) return words.hash == 0 ? Slot::empty : Slot::free;
    return words.hash != 0 && sound(words.hash, words.place) ? Slot::entry : Slot::damaged;
  }
  return Slot::damaged;
}

bool MappedIndex::seek(Probe& probe, Location& location) const {
  while (probe.looked < slots_) {
    const std::uint64_t slot = after(probe.slot);
    Words words;
    const Slot kind = read(slot, words);
    if (kind == Slot::empty) return false;
    probe.slot = slot;
    ++probe.looked;
    if (kind == Slot::damaged) probe.damaged = true;
    if (kind == Slot::entry && words.hash == probe.hash) {
      location = unpack(words.place);
      return true;
    }
  }
  return false;
}

bool MappedIndex::insert(std::uint64_t hash, Location location, const Detail& detail) {
  const std::uint64_t place = pack(hash, location);
  std::uint64_t slot = home(hash);
  for (std::uint64_t looked = 0; looked < slots_; ++looked, slot = after(slot)) {
    std::uint64_t* at = words_ + 2 * slot;
    if (load(at + 1) != 0) continue;
    if (load(at) == 0) {
      const std::uint64_t now = taken() + 1;
      if (now > slots_ * 5 / 6) return false;
      set_taken(now);  // first: a kill right after leaves the count too high, never too low
    }
    set_detail(slot, detail);
    store(at, hash);
    store(at + 1, place);
    return true;
  }
  return false;
}

void MappedIndex::replace(std::uint64_t slot, std::uint64_t hash, Location location, const Detail& detail) {
  const std::uint64_t place = pack(hash, location);
  std::uint64_t* at = words_ + 2 * slot;
  if (load(at) != hash) {
    store(at + 1, 0);
    store(at, hash);
  }
  set_detail(slot, detail);
  store(at + 1, place);
}

void MappedIndex::erase(std::uint64_t slot) {
  std::uint64_t* at = words_ + 2 * slot;
  store(at + 1, 0);
  store(at, kErasedHash);
  // Erased slots right before an empty one lead nowhere: they become empty too, the last one first.
  const std::uint64_t* next = words_ + 2 * after(slot);
  if (load(next) != 0 || load(next + 1) != 0) return;
  std::uint64_t emptied = 0;
  for (; load(at + 1) == 0 && load(at) != 0; slot = before(slot), at = words_ + 2 * slot) {
    store(at, 0);
    ++emptied;
  }
  const std::uint64_t known = taken();
  set_taken(known > emptied ? known - emptied : 0);
}

Detail MappedIndex::detail(std::uint64_t slot) const {
  const std::uint64_t* at = details_ + 2 * slot;
  const std::uint64_t first = __atomic_load_n(at, __ATOMIC_RELAXED);
  const std::uint64_t second = __atomic_load_n(at + 1, __ATOMIC_RELAXED);
  Detail detail{0, static_cast<std::uint32_t>(second), static_cast<std::uint32_t>(second >> 32)};
  std::memcpy(&detail.priority, &first, sizeof first);
  if (!std::isfinite(detail.priority)) detail.priority = 0;
  return detail;
}

void MappedIndex::set_detail(std::uint64_t slot, const Detail& detail) const {
  std::uint64_t* at = details_ + 2 * slot;
  std::uint64_t first;
  std::memcpy(&first, &detail.priority, sizeof first);
  __atomic_store_n(at, first, __ATOMIC_RELAXED);
  __atomic_store_n(at + 1, static_cast<std::uint64_t>(detail.used_at) << 32 | detail.units, __ATOMIC_RELAXED);
}

void MappedIndex::touch(std::uint64_t slot, double priority, std::uint32_t used_at) const {
  if (!writable_) return;
  set_detail(slot, {priority, detail(slot).units, used_at});
}

void MappedIndex::for_each(const Visit& visit, bool* damaged) const {
  Words words;
  for (std::uint64_t slot = 0; slot < slots_; ++slot) {
    const Slot kind = read(slot, words);
    if (kind == Slot::entry) visit(slot, words.hash, unpack(words.place), detail(slot));
    if (kind == Slot::damaged && damaged != nullptr) *damaged = true;
  }
}

bool MappedIndex::copy_into(MappedIndex& larger) const {
  bool damaged = false;
  for_each(
      [&](std::uint64_t, std::uint64_t hash, Location location, const Detail& detail) {
        if (!larger.insert(hash, location, detail)) {
          throw ArgumentError("an index of " + std::to_string(larger.slots()) + " slots is too small for the entries copied into it");
        }
      },
      &damaged);
  return !damaged;
}

std::uint64_t MappedIndex::taken() const {
  const std::uint64_t word = load(header() + kTakenWord);
  const std::uint32_t count = static_cast<std::uint32_t>(word);
  if (static_cast<std::uint32_t>(word >> 32) == static_cast<std::uint32_t>(~count)) return count;
  return count_taken();
}

void MappedIndex::set_taken(std::uint64_t taken) {
  const std::uint32_t count = static_cast<std::uint32_t>(taken);
  store(header() + kTakenWord, static_cast<std::uint64_t>(static_cast<std::uint32_t>(~count)) << 32 | count);
}

std::uint64_t MappedIndex::count_taken() const {
  std::uint64_t count = 0;
  for (std::uint64_t slot = 0; slot < slots_; ++slot) count += load(words_ + 2 * slot) != 0 || load(words_ + 2 * slot + 1) != 0;
  return count;
}

std::array<std::uint64_t, 9> MappedIndex::load_state(std::size_t copy) const {
  StateWords words;
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = load(header() + kStateWords[copy] + i);
  return words;
}

bool MappedIndex::state(LogState& state) const {
  // A writer stopped anywhere leaves one copy sound, so both look torn only to a reader that it overtook twice (who then finds
  // other words when it looks again) or when they are damaged.
  std::array<StateWords, 2> copies{}, before;
  int newest = -1;
  do {
    before = copies;
    copies = {load_state(0), load_state(1)};
    newest = newest_of(copies);
  } while (newest < 0 && copies != before);
  if (newest < 0) return false;
  const StateWords& words = copies[static_cast<std::size_t>(newest)];
  state = {words[1], words[2], words[3], words[4], words[5], 0, words[7]};
  std::memcpy(&state.inflation, &words[6], sizeof words[6]);
  return true;
}

// The copy that is not the newest sound one is written over: a kill between two stores leaves the other.
void MappedIndex::set_state(const LogState& state) {
  const std::array<StateWords, 2> copies = {load_state(0), load_state(1)};
  const int newest = newest_of(copies);
  const std::uint64_t sequence = newest < 0 ? 1 : copies[static_cast<std::size_t>(newest)][0] + 1;
  StateWords words{sequence, state.tail_segment, state.tail_bytes, state.entries, state.live_bytes, state.log_bytes, 0, state.next_segment, 0};
  std::memcpy(&words[6], &state.inflation, sizeof words[6]);
  words.back() = state_crc(words);
  for (std::size_t i = 0; i < words.size(); ++i) store(header() + kStateWords[newest == 0 ? 1 : 0] + i, words[i]);
}

void MappedIndex::remember(int file) {
  struct stat status;
  if (::fstat(file, &status) != 0) throw SystemFailure(errno, "cannot look at the index");
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

bool MappedIndex::bears_name(int directory) const {
  struct stat named;
  return ::fstatat(directory, kName, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_dev == device_ && named.st_ino == inode_;
}

bool MappedIndex::superseded() const { return load(header() + kSupersededWord) == kSuperseded; }

void MappedIndex::supersede() {
  if (!writable_) return;
  // Not clean any more: after a loss of power the name may lead back to this file.
  store(header() + kCleanWord, 0);
  sync_header();
  store(header() + kSupersededWord, kSuperseded);
}

bool MappedIndex::trusted() const {
  if (load(header() + kCleanWord) == kClean) return true;
  const BootId& boot = boot_id();
  return boot != BootId{} && load(header() + kBootWord) == boot[0] && load(header() + kBootWord + 1) == boot[1];
}

void MappedIndex::begin_writing() {
  if (superseded()) store(header() + kSupersededWord, 0);
  const BootId& boot = boot_id();
  const bool same_boot = load(header() + kBootWord) == boot[0] && load(header() + kBootWord + 1) == boot[1];
  if (same_boot && load(header() + kCleanWord) == 0) return;
  if (!trusted()) throw CacheError("the index was not closed in order before the system went down: build a new one from the segments");
  // In this order a kill leaves an index that is still trusted, and rightly: no slot has changed since.
  store(header() + kBootWord, boot[0]);
  store(header() + kBootWord + 1, boot[1]);
  store(header() + kCleanWord, 0);
  sync_header();
}

void MappedIndex::mark_clean() {
  if (file_ && ::msync(data_, bytes_, MS_SYNC) != 0) throw SystemFailure(errno, "cannot bring the index to the disk");
  store(header() + kCleanWord, kClean);
  sync_header();
}

void MappedIndex::sync_header() {
  if (file_ && ::msync(data_, kHeaderBytes, MS_SYNC) != 0) throw SystemFailure(errno, "cannot bring the header of the index to the disk");
}

}  // namespace prismem::cache
