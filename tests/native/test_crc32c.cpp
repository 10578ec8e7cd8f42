#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/crc32c.hpp"
#include "testing.hpp"

namespace prismem {
namespace {

constexpr std::size_t kMost = 9000;

std::vector<unsigned char> noise(std::size_t size) {
  std::mt19937 random(7);
  std::vector<unsigned char> bytes(size);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

}  // namespace

PRISMEM_TEST(crc32c_takes_the_last_of_its_forms) {
  const std::vector<Crc32cForm> forms = crc32c_forms();
  PRISMEM_EQUAL(std::string(forms.front().name), "portable");
#if defined(__x86_64__)
  PRISMEM_EQUAL(std::string(forms.back().name) != "portable", static_cast<bool>(__builtin_cpu_supports("sse4.2")));
#endif
}

PRISMEM_TEST(every_form_of_crc32c_gives_the_same_for_every_length) {
  const std::vector<unsigned char> source = noise(kMost);
  for (const Crc32cForm& form : crc32c_forms()) {
    std::uint32_t expected = crc32c_portable(nullptr, 0, 77);
    for (std::size_t size = 0; size <= kMost; ++size) {
      // Both ends move, so that every length meets every alignment of its neighbours.
      PRISMEM_EQUAL(form.crc(source.data() + kMost - size, size, 77), crc32c_portable(source.data() + kMost - size, size, 77));
      PRISMEM_EQUAL(form.crc(source.data(), size, 77), expected);
      if (size < kMost) expected = crc32c_portable(source.data() + size, 1, expected);
    }
  }
}

PRISMEM_TEST(every_form_of_crc32c_copies_what_it_checks_and_nothing_more) {
  const std::vector<unsigned char> source = noise(kMost);
  for (const Crc32cForm& form : crc32c_forms()) {
    for (std::size_t size = 0; size <= kMost; size += size < 600 ? 1 : 37) {
      // Memory of exactly this size, so that a sanitizer sees a byte too many.
      const std::unique_ptr<unsigned char[]> from(new unsigned char[size]);
      const std::unique_ptr<unsigned char[]> to(new unsigned char[size]);
      if (size > 0) std::memcpy(from.get(), source.data(), size);
      PRISMEM_EQUAL(form.copy(to.get(), from.get(), size, 5), crc32c_portable(source.data(), size, 5));
      PRISMEM_CHECK(size == 0 || std::memcmp(to.get(), source.data(), size) == 0);
    }
    for (std::size_t from = 0; from < 64; ++from) {
      for (std::size_t to = 0; to < 64; to += 7) {
        constexpr std::size_t kSize = 1000;
        std::vector<unsigned char> copy(kSize + 128, 0xEE);
        PRISMEM_EQUAL(form.copy(copy.data() + to, source.data() + from, kSize, 0), crc32c_portable(source.data() + from, kSize));
        PRISMEM_CHECK(std::memcmp(copy.data() + to, source.data() + from, kSize) == 0);
        for (std::size_t i = 0; i < to; ++i) PRISMEM_EQUAL(static_cast<int>(copy[i]), 0xEE);
        for (std::size_t i = to + kSize; i < copy.size(); ++i) PRISMEM_EQUAL(static_cast<int>(copy[i]), 0xEE);
      }
    }
  }
}

PRISMEM_TEST(crc32c_continues_wherever_it_is_split) {
  const std::vector<unsigned char> source = noise(2500);
  const std::uint32_t whole = crc32c_portable(source.data(), source.size());
  for (std::size_t split = 0; split <= source.size(); ++split) {
    PRISMEM_EQUAL(crc32c(source.data() + split, source.size() - split, crc32c(source.data(), split)), whole);
  }
}

}  // namespace prismem
