#include "support/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "support/error.hpp"

namespace prismem {
namespace {

// Drops `done` bytes from the front of the pieces.
void advance(struct iovec*& pieces, int& count, std::size_t done) {
  while (count > 0 && done >= pieces->iov_len) {
    done -= pieces->iov_len;
    ++pieces;
    --count;
  }
  if (count > 0) {
    pieces->iov_base = static_cast<char*>(pieces->iov_base) + done;
    pieces->iov_len -= done;
  }
}

}  // namespace

SystemFailure::SystemFailure(int code, const std::string& what)
    : std::runtime_error(what + ": " + describe_errno(code)), code_(code) {}

bool is_unwritable(int code) {
  return code == ENOSPC || code == EDQUOT || code == EROFS || code == EACCES || code == EPERM || code == EFBIG ||
         code == EIO;
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Descriptor::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::uint64_t file_size(int fd) {
  struct stat status;
  if (::fstat(fd, &status) != 0) throw SystemFailure(errno, "cannot read the size of a file");
  return static_cast<std::uint64_t>(status.st_size);
}

std::size_t read_at(int fd, struct iovec* pieces, int count, std::uint64_t offset) {
  std::size_t total = 0;
  advance(pieces, count, 0);
  while (count > 0) {
    const ssize_t got = ::preadv(fd, pieces, count, static_cast<off_t>(offset + total));
    if (got < 0) {
      if (errno == EINTR) continue;
      throw SystemFailure(errno, "cannot read a file");
    }
    if (got == 0) break;
    total += static_cast<std::size_t>(got);
    advance(pieces, count, static_cast<std::size_t>(got));
  }
  return total;
}

std::size_t read_at(int fd, void* data, std::size_t size, std::uint64_t offset) {
  struct iovec piece{data, size};
  return read_at(fd, &piece, 1, offset);
}

void write_at(int fd, struct iovec* pieces, int count, std::uint64_t offset) {
  advance(pieces, count, 0);
  while (count > 0) {
    const ssize_t written = ::pwritev(fd, pieces, count, static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      throw SystemFailure(errno, "cannot write a file");
    }
    if (written == 0) throw SystemFailure(ENOSPC, "cannot write a file");
    offset += static_cast<std::uint64_t>(written);
    advance(pieces, count, static_cast<std::size_t>(written));
  }
}

void sync(int fd) {
  while (::fsync(fd) != 0) {
    if (errno != EINTR) throw SystemFailure(errno, "cannot bring a file to the disk");
  }
}

}  // namespace prismem
