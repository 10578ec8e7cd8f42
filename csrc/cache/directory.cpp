#include "cache/directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "cache/segment.hpp"
#include "support/crc32c.hpp"
#include "support/error.hpp"

namespace prismem::cache {
namespace {

constexpr char kHeaderName[] = "prismem-cache";
constexpr char kHeaderUnfinished[] = "prismem-cache.new";
constexpr char kLockName[] = "lock";
constexpr char kSessionsName[] = "sessions";
constexpr std::string_view kHeaderText = "prismem-core execution cache, format ";

// The header of a format: a line to read and a line that tells a damaged header from one of another format.
std::string header_text(const std::string& format) {
  const std::string line = std::string(kHeaderText) + format + "\n";
  char check[24];
  std::snprintf(check, sizeof check, "crc32c %08x\n", static_cast<unsigned>(crc32c(line.data(), line.size())));
  return line + check;
}

// The format that a sound header names, "" for anything else.
std::string format_in(const std::string& text) {
  const std::size_t line_end = text.find('\n');
  if (line_end == std::string::npos || line_end < kHeaderText.size()) return "";
  const std::string format = text.substr(kHeaderText.size(), line_end - kHeaderText.size());
  return text == header_text(format) ? format : "";
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// The first bytes of a small file, or "" when it is absent.
std::string read_text(int directory, const char* name) {
  Descriptor file(::openat(directory, name, O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT) return "";
    throw SystemFailure(errno, std::string("cannot open ") + name);
  }
  std::string text(128, '\0');
  text.resize(read_at(file.get(), text.data(), text.size(), 0));
  return text;
}

}  // namespace

Directory::Directory(const std::string& path, bool read_only) : path_(path) {
  if (!read_only) {
    std::error_code failure;
    std::filesystem::create_directories(path, failure);
    if (failure && is_unwritable(failure.value())) throw SystemFailure(failure.value(), "cannot create " + path);
  }
  directory_ = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory_) {
    const int code = errno;
    std::string advice = "give a directory that can be read";
    if (code == ENOTDIR || code == EEXIST) advice = "give the path of a directory";
    if (code == ENOENT && read_only) {
      advice = "a cache opened with read_only=True must exist; open it for writing first";
    }
    throw CacheError("cannot open the execution cache directory '" + path + "' (" + describe_errno(code) +
                     "): " + advice);
  }
  // Nothing is put into a foreign directory, not even a lock: look first, then lock, then look again under the lock.
  check_header(true);
  if (read_only) return;
  lock_.emplace(open_lock(kLockName));
  const Turn turn(*this);
  check_header(false);
  sessions_.emplace(open_lock(kSessionsName));
  while (::flock(sessions_->get(), LOCK_SH) != 0) {
    if (errno != EINTR) throw SystemFailure(errno, "cannot lock the sessions");
  }
}

std::vector<std::string> Directory::names() const {
  const int copy = ::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) throw SystemFailure(errno, "cannot list " + path_);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(copy), ::closedir);
  if (!listing) {
    ::close(copy);
    throw SystemFailure(errno, "cannot list " + path_);
  }
  std::vector<std::string> result;
  while (const struct dirent* entry = ::readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") result.push_back(name);
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<std::uint64_t> Directory::segments() const {
  std::vector<std::uint64_t> numbers;
  for (const std::string& name : names()) {
    if (const std::uint64_t number = parse_segment_name(name)) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

bool Directory::has_segment(std::uint64_t number) const {
  return ::faccessat(directory_.get(), segment_name(number).c_str(), F_OK, 0) == 0;
}

void Directory::remove_unfinished() const {
  for (const std::string& name : names()) {
    if (!ends_with(name, ".log.new")) continue;
    if (parse_segment_name(std::string_view(name).substr(0, name.size() - 4)) == 0) continue;
    ::unlinkat(directory_.get(), name.c_str(), 0);
  }
}

void Directory::remove_segment(std::uint64_t number) const {
  if (::unlinkat(directory_.get(), segment_name(number).c_str(), 0) != 0 && errno != ENOENT) {
    throw SystemFailure(errno, "cannot remove " + segment_name(number));
  }
}

Descriptor Directory::open_lock(const char* name) const {
  Descriptor file(::openat(directory_.get(), name, O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file) throw SystemFailure(errno, std::string("cannot open ") + name);
  return file;
}

Directory::Turn::Turn(Directory& directory) : directory_(directory), thread_(directory.thread_turn_) {
  while (::flock(directory.lock_->get(), LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    throw CacheError("cannot lock the execution cache '" + directory.path_ + "' (" + describe_errno(errno) +
                     "): use a directory on a local file system, or open it with read_only=True");
  }
}

Directory::Turn::~Turn() { ::flock(directory_.lock_->get(), LOCK_UN); }

bool Directory::alone() const {
  if (::flock(sessions_->get(), LOCK_EX | LOCK_NB) == 0) return true;
  // A failed conversion may have dropped the shared lock.
  ::flock(sessions_->get(), LOCK_SH | LOCK_NB);
  return false;
}

void Directory::leave() const {
  if (sessions_) ::flock(sessions_->get(), LOCK_UN);
}

// Accepts a cache of our format. With `look_only` an empty directory passes as well and nothing is written.
void Directory::check_header(bool look_only) {
  const std::string text = read_text(directory_.get(), kHeaderName);
  const std::string format = format_in(text);
  const std::string expected = std::to_string(kFormatVersion);
  if (format == expected) return;
  if (!format.empty()) {
    throw CacheError("'" + path_ + "' is an execution cache of format " + format +
                     " and this version of prismem-core reads format " + expected +
                     ": use another directory or the version that wrote it");
  }
  bool has_segment = false, foreign = !text.empty();
  for (const std::string& name : names()) {
    const std::uint64_t number = parse_segment_name(name);
    has_segment = has_segment || (number != 0 && Segment::open(directory_.get(), number, 0, false) != nullptr);
    foreign = foreign || (name != kLockName && name != kSessionsName && name != kHeaderUnfinished);
  }
  if (foreign && !has_segment) {
    throw CacheError("'" + path_ + "' is not an execution cache: it holds files, but no readable " +
                     std::string(kHeaderName) + " header; give an empty or a new directory");
  }
  mended_ = has_segment;
  if (!look_only) write_header();
}

void Directory::write_header() {
  std::string text = header_text(std::to_string(kFormatVersion));
  Descriptor file(::openat(directory_.get(), kHeaderUnfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) throw SystemFailure(errno, "cannot write the header");
  struct iovec piece{text.data(), text.size()};
  try {
    write_at(file.get(), &piece, 1, 0);
  } catch (const SystemFailure&) {
    ::unlinkat(directory_.get(), kHeaderUnfinished, 0);
    throw;
  }
  if (::renameat(directory_.get(), kHeaderUnfinished, directory_.get(), kHeaderName) != 0) {
    throw SystemFailure(errno, "cannot rename the header");
  }
}

}  // namespace prismem::cache
