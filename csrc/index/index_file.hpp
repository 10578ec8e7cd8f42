// The file of an index (docs/formats.md, "Vector index").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prismem/index.hpp"
#include "support/file.hpp"

namespace prismem::index {

constexpr std::uint32_t kIndexFormat = 1;
constexpr std::int64_t kPage = 4096;

// Sections of kinds that are not known are stepped over.
enum class SectionKind : std::uint32_t { rows = 1, ids = 2, code_blocks = 3, code_low = 4, code_errors = 5, code_centre = 6 };

struct Section {
  SectionKind kind;
  std::uint32_t crc;
  std::int64_t offset;
  std::int64_t bytes;
};

struct IndexHeader {
  IndexOptions options;
  std::int64_t count = 0;
  std::int64_t next_id = 0;
};

// What a section is written from.
struct SectionData {
  SectionKind kind;
  const void* data;
  std::int64_t bytes;
};

// The sizes of the sections that hold codes for such rows; 0 for other kinds.
std::int64_t code_section_bytes(SectionKind kind, std::int64_t count, std::int64_t dim);

// Throws VectorIndexError, and then nothing of the new file stays.
void write_index_file(const std::string& path, const IndexHeader& header, const std::vector<SectionData>& sections);

// An open file whose header is sound: sizes fit together, and every section lies within the file. Throws VectorIndexError for anything else.
class IndexFile {
 public:
  explicit IndexFile(const std::string& path);

  const std::string& path() const { return path_; }
  const IndexHeader& header() const { return header_; }
  [[noreturn]] void refuse_id(std::int64_t id) const;
  // Whether it holds codes of its rows, all of their sections.
  bool has_codes() const { return has_codes_; }
  // The bytes of a section that must be there, verified.
  void read(SectionKind kind, void* out) const;

 protected:
  const Section& find(SectionKind kind) const;
  [[noreturn]] void refuse(const std::string& why) const;
  void verify(const Section& section, std::uint32_t crc) const;

  std::string path_;
  Descriptor file_;
  IndexHeader header_;
  std::vector<Section> sections_;
  std::int64_t file_bytes_ = 0;

 private:
  void parse(const char* page);
  bool has(SectionKind kind) const;
  void expect(SectionKind kind, std::int64_t bytes, const char* what) const;

  bool has_codes_ = false;
};

class MappedIndexFile : public IndexFile {
 public:
  explicit MappedIndexFile(const std::string& path);
  ~MappedIndexFile();
  MappedIndexFile(const MappedIndexFile&) = delete;
  MappedIndexFile& operator=(const MappedIndexFile&) = delete;

  // Reads everything and compares the checksums.
  void verify() const;
  const void* section(SectionKind kind) const;

 private:
  const char* start_ = nullptr;
};

}  // namespace prismem::index
