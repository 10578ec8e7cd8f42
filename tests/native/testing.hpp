// A small test driver: TEST registers a function, CHECK ends it with a message; main() is in testing.cpp.
#pragma once

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>

namespace prismem::testing {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Adds a test; the value only makes it possible to do so outside a function.
bool add(const char* name, std::function<void()> body);

[[noreturn]] void fail(const char* file, int line, const std::string& what);

template <class Left, class Right>
void check_equal(const Left& left, const Right& right, const char* text, const char* file, int line) {
  if (left == right) return;
  std::ostringstream words;
  words << text << ": " << left << " and " << right << " differ";
  fail(file, line, words.str());
}

// Runs `body` and returns the message of the `Error` it throws; fails where it throws none.
template <class Error, class Body>
std::string message_of(Body body, const char* file, int line) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  fail(file, line, "expected an exception, got none");
}

}  // namespace prismem::testing

#define PRISMEM_TEST(name)                                                                 \
  static void name();                                                                      \
  [[maybe_unused]] static const bool name##_added = ::prismem::testing::add(#name, &name); \
  static void name()

#define PRISMEM_CHECK(condition) \
  if (!(condition)) ::prismem::testing::fail(__FILE__, __LINE__, #condition)

#define PRISMEM_EQUAL(left, right) ::prismem::testing::check_equal((left), (right), #left " == " #right, __FILE__, __LINE__)

#define PRISMEM_MESSAGE(Error, ...) ::prismem::testing::message_of<Error>([&] { __VA_ARGS__; }, __FILE__, __LINE__)
