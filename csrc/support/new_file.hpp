// A file that appears under its name whole or not at all.
#pragma once

#include <string>

#include "support/file.hpp"

namespace prismem {

// Written beside `path` as `path`.new and renamed by commit(). A kill at any moment leaves what was there before, or the whole new file;
// a file `path`.new that a kill left behind is written over by the next one. Throws SystemFailure.
class NewFile {
 public:
  // Fails with EWOULDBLOCK while another NewFile of the same path is being written, in this process or another.
  explicit NewFile(const std::string& path);
  // Without commit() nothing stays.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  int fd() const { return file_.get(); }
  // Brings the bytes to the disk, gives the file its name and brings the name to the disk.
  void commit();

 private:
  std::string path_;
  std::string unfinished_;
  Descriptor file_;
};

}  // namespace prismem
