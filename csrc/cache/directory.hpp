// The directory of a cache: is it one, may we write to it, which segments are there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/file.hpp"

namespace prismem::cache {

class Directory {
 public:
  // Opens the directory at `path`. Without `read_only` it is made when absent, an empty one becomes a cache, and it is
  // locked for writing. CacheError for a place that is no cache, a newer format, or a lock that another one holds;
  // SystemFailure (is_unwritable) where the place cannot be written at all.
  Directory(const std::string& path, bool read_only);
  ~Directory() { unlock(); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  int fd() const { return directory_.get(); }
  // Whether the header had to be mended: segments were there, but no readable header.
  bool mended() const { return mended_; }
  // Numbers of the segment files, ascending.
  std::vector<std::uint64_t> segments() const;
  bool has_segment(std::uint64_t number) const;
  // Removes segment files whose making was interrupted; needs the lock.
  void remove_unfinished() const;
  void unlock();

 private:
  std::vector<std::string> names() const;
  void lock();
  void check_header(bool read_only);
  void write_header();

  std::string path_;
  Descriptor directory_;
  Descriptor lock_;
  bool mended_ = false;
};

}  // namespace prismem::cache
