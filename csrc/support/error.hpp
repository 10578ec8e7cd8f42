// The errors that cross from C++ to Python: each class here has a twin of the same name in prismem_core/errors.py.
#pragma once

#include <stdexcept>
#include <string>

namespace prismem {

// An argument of a public function has the wrong form or range.
class ArgumentError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// The execution cache cannot be opened, or cannot do what it was asked.
class CacheError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A vector index cannot be opened, saved or changed.
class VectorIndexError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A lexical index cannot be opened, saved or changed.
class LexicalIndexError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The system's words for an errno value; safe to call from several threads.
std::string describe_errno(int code);

}  // namespace prismem
