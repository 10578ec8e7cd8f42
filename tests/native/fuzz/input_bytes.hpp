// Choices made from the bytes of a fuzzer's input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace prismem::testing {

class InputBytes {
 public:
  InputBytes(const std::uint8_t* data, std::size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  // The next bytes as a number, low byte first; missing ones are 0.
  template <class Number>
  Number number() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i) value |= static_cast<std::uint64_t>(byte()) << (8 * i);
    return static_cast<Number>(value);
  }

  // The next bytes; fewer where the input ends.
  std::string_view bytes(std::size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto value = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }

  std::string_view rest_;
};

}  // namespace prismem::testing
