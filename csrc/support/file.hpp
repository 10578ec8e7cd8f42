// Descriptors that close themselves, and reads and writes that finish or say why not.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace prismem {

// A system call failed; the caller decides what ends with it.
class SystemFailure : public std::runtime_error {
 public:
  SystemFailure(int code, const std::string& what);
  int code() const { return code_; }

 private:
  int code_;
};

// Whether the failure means that this place cannot be written: full, over quota, read-only or forbidden.
bool is_unwritable(int code);

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

std::uint64_t file_size(int fd);

// Fills the pieces from `offset` on; returns how many bytes there were before the end of the file.
std::size_t read_at(int fd, struct iovec* pieces, int count, std::uint64_t offset);
std::size_t read_at(int fd, void* data, std::size_t size, std::uint64_t offset);

// Writes all pieces at `offset` (one system call unless the system cuts it); throws SystemFailure when it cannot.
void write_at(int fd, struct iovec* pieces, int count, std::uint64_t offset);

void sync(int fd);

}  // namespace prismem
