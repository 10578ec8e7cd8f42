// The directory of a cache: is it one, may we write to it, which segments are there, whose turn is it to write.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cache/fork_guard.hpp"
#include "support/file.hpp"

namespace prismem::cache {

class Directory {
 public:
  // Opens the directory at `path`. Without `read_only` it is made when absent and an empty one becomes a cache. CacheError for a place that
  // is no cache, another format, or a file system without locks; SystemFailure (is_unwritable) where the place cannot be written at all.
  Directory(const std::string& path, bool read_only);
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  int fd() const { return directory_.get(); }
  // Whether the header had to be mended: segments were there, but no readable header.
  bool mended() const { return mended_; }
  // Numbers of the segment files, ascending.
  std::vector<std::uint64_t> segments() const;
  bool has_segment(std::uint64_t number) const;
  void remove_segment(std::uint64_t number) const;
  // Removes segment files whose making was interrupted; needs the turn.
  void remove_unfinished() const;
  // A file of the directory for locks, made when absent.
  Descriptor open_lock(const char* name) const;

  // The turn to write: one holder among all threads of all processes; it ends with the process, however that ends.
  class Turn {
   public:
    explicit Turn(Directory& directory);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Directory& directory_;
    std::unique_lock<std::mutex> thread_;
  };

  // Whether no other process has the directory open for writing; needs the turn.
  bool alone() const;
  // From now on this is no longer one of those who have it open for writing.
  void leave() const;

 private:
  std::vector<std::string> names() const;
  void check_header(bool look_only);
  void write_header();

  std::string path_;
  Descriptor directory_;
  std::optional<GuardedDescriptor> lock_, sessions_;  // none when opened for reading
  std::mutex thread_turn_;
  bool mended_ = false;
};

}  // namespace prismem::cache
