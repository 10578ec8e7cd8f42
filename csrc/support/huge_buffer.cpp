#include "support/huge_buffer.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#define PRISMEM_HUGE_PAGES 1
#endif

namespace prismem {
namespace {

constexpr std::size_t kHugePage = std::size_t{1} << 21;
constexpr std::align_val_t kCacheLine{64};

std::size_t whole_units(std::size_t size, std::size_t unit) {
  if (size > std::numeric_limits<std::size_t>::max() - 2 * kHugePage) throw std::bad_alloc();
  return (size + unit - 1) / unit * unit;
}

// Buffers of at least one huge page are mapped, smaller ones come from the heap; the capacity tells which it was.
#ifdef PRISMEM_HUGE_PAGES
constexpr bool is_mapped(std::size_t capacity) { return capacity >= kHugePage; }

// Addresses of `capacity` bytes (whole huge pages) that start at a huge page; no memory stands behind them yet.
unsigned char* map_aligned(std::size_t capacity) {
  void* start = mmap(nullptr, capacity + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  unsigned char* bytes = static_cast<unsigned char*>(start);
  const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(bytes) % kHugePage) % kHugePage;
  if (before > 0) munmap(bytes, before);
  munmap(bytes + before + capacity, kHugePage - before);
  bytes += before;
#ifdef MADV_HUGEPAGE
  madvise(bytes, capacity, MADV_HUGEPAGE);  // a system that refuses still serves ordinary pages
#endif
  return bytes;
}
#else
constexpr bool is_mapped(std::size_t) { return false; }
#endif

}  // namespace

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), capacity_(std::exchange(other.capacity_, 0)) {}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

HugeBuffer::~HugeBuffer() { release(); }

void HugeBuffer::release() {
#ifdef PRISMEM_HUGE_PAGES
  if (is_mapped(capacity_)) {
    munmap(data_, capacity_);
    return;
  }
#endif
  if (data_ != nullptr) ::operator delete(data_, kCacheLine);
}

void HugeBuffer::reserve(std::size_t capacity) {
  if (capacity <= capacity_) return;
  unsigned char* grown = nullptr;
#ifdef PRISMEM_HUGE_PAGES
  if (is_mapped(capacity)) {
    capacity = whole_units(capacity, kHugePage);
    grown = map_aligned(capacity);
    if (is_mapped(capacity_)) {
      // The pages move to the new addresses; nothing is copied.
      if (mremap(data_, capacity_, capacity, MREMAP_MAYMOVE | MREMAP_FIXED, grown) == MAP_FAILED) {
        munmap(grown, capacity);
        throw std::bad_alloc();
      }
      data_ = grown;
      capacity_ = capacity;
      return;
    }
  }
#endif
  if (grown == nullptr) {
    capacity = whole_units(capacity, 64);
    grown = static_cast<unsigned char*>(::operator new(capacity, kCacheLine));
  }
  if (size_ > 0) std::memcpy(grown, data_, size_);
  release();
  data_ = grown;
  capacity_ = capacity;
}

void HugeBuffer::resize(std::size_t size) {
  if (size > capacity_) reserve(std::max(size, capacity_ + capacity_ / 2));
  size_ = size;
}

}  // namespace prismem
