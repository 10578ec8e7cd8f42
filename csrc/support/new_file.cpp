#include "support/new_file.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace prismem {
namespace {

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Whether `path` still names the open file: its last holder may have renamed or removed it before the lock came free.
bool names(const std::string& path, int fd) {
  struct stat named, held;
  return ::stat(path.c_str(), &named) == 0 && ::fstat(fd, &held) == 0 && named.st_ino == held.st_ino && named.st_dev == held.st_dev;
}

}  // namespace

NewFile::NewFile(const std::string& path) : path_(path), unfinished_(path + ".new") {
  do {
    file_ = Descriptor(::open(unfinished_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (!file_) throw SystemFailure(errno, "cannot create " + unfinished_);
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) throw SystemFailure(errno, "cannot lock " + unfinished_);
  } while (!names(unfinished_, file_.get()));
  if (::ftruncate(file_.get(), 0) != 0) throw SystemFailure(errno, "cannot empty " + unfinished_);
}

NewFile::~NewFile() {
  if (file_) ::unlink(unfinished_.c_str());
}

void NewFile::commit() {
  sync(file_.get());
  if (::rename(unfinished_.c_str(), path_.c_str()) != 0) throw SystemFailure(errno, "cannot rename " + unfinished_);
  file_.reset();
  const Descriptor directory(::open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) throw SystemFailure(errno, "cannot open the directory of " + path_);
  sync(directory.get());
}

}  // namespace prismem
