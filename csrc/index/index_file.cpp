#include "index/index_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "index/row_values.hpp"
#include "simd/codes.hpp"
#include "support/crc32c.hpp"
#include "support/error.hpp"
#include "support/little_endian.hpp"
#include "support/new_file.hpp"

namespace prismem::index {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "sections are written and mapped as they lie in memory");

constexpr char kMagic[8] = {'P', 'M', 'V', 'E', 'C', 'I', 'D', 'X'};
constexpr std::size_t kFormat = 8, kKind = 12, kMetric = 16, kSectionCount = 20, kDim = 24, kCount = 32, kNextId = 40, kFileBytes = 48;
constexpr std::size_t kTable = 64, kEntryBytes = 32, kHeaderCrc = kPage - 4;
constexpr std::uint32_t kMaxSections = (kHeaderCrc - kTable) / kEntryBytes;
constexpr std::int64_t kChunk = 1 << 20;

// Sections fill whole pages; what a page has left is zero and belongs to the section's checksum.
std::int64_t padded(std::int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::string encode(const IndexHeader& header, const std::vector<Section>& sections, std::int64_t file_bytes) {
  std::string page(kPage, '\0');
  std::memcpy(page.data(), kMagic, sizeof kMagic);
  store_le32(&page[kFormat], kIndexFormat);
  store_le32(&page[kKind], static_cast<std::uint32_t>(header.options.kind));
  store_le32(&page[kMetric], static_cast<std::uint32_t>(header.options.metric));
  store_le32(&page[kSectionCount], static_cast<std::uint32_t>(sections.size()));
  store_le64(&page[kDim], static_cast<std::uint64_t>(header.options.dim));
  store_le64(&page[kCount], static_cast<std::uint64_t>(header.count));
  store_le64(&page[kNextId], static_cast<std::uint64_t>(header.next_id));
  store_le64(&page[kFileBytes], static_cast<std::uint64_t>(file_bytes));
  char* entry = &page[kTable];
  for (const Section& section : sections) {
    store_le32(entry, static_cast<std::uint32_t>(section.kind));
    store_le32(entry + 4, section.crc);
    store_le64(entry + 8, static_cast<std::uint64_t>(section.offset));
    store_le64(entry + 16, static_cast<std::uint64_t>(section.bytes));
    entry += kEntryBytes;
  }
  store_le32(&page[kHeaderCrc], crc32c(page.data(), kHeaderCrc));
  return page;
}

// Writes a section in chunks, so that each is still in the cache when its checksum is taken.
Section write_section(int fd, const SectionData& part, std::int64_t offset) {
  static char zeros[kPage] = {};
  char* data = static_cast<char*>(const_cast<void*>(part.data));
  std::uint32_t crc = 0;
  for (std::int64_t done = 0; done < part.bytes; done += kChunk) {
    struct iovec piece{data + done, static_cast<std::size_t>(std::min(kChunk, part.bytes - done))};
    crc = crc32c(piece.iov_base, piece.iov_len, crc);
    write_at(fd, &piece, 1, static_cast<std::uint64_t>(offset + done));
  }
  struct iovec filling{zeros, static_cast<std::size_t>(padded(part.bytes) - part.bytes)};
  write_at(fd, &filling, 1, static_cast<std::uint64_t>(offset + part.bytes));
  return Section{part.kind, crc32c(zeros, filling.iov_len, crc), offset, part.bytes};
}

}  // namespace

std::int64_t code_section_bytes(SectionKind kind, std::int64_t count, std::int64_t dim) {
  const std::int64_t coded_rows = code_blocks(count) * kCodeRows;
  switch (kind) {
    case SectionKind::code_blocks: return code_blocks(count) * code_block_bytes(dim);
    case SectionKind::code_low: return coded_rows * low_row_bytes(dim);
    case SectionKind::code_errors: return coded_rows * static_cast<std::int64_t>(sizeof(std::uint16_t));
    case SectionKind::code_centre: return 8 * code_groups(dim) * static_cast<std::int64_t>(sizeof(float));
    default: return 0;
  }
}

void write_index_file(const std::string& path, const IndexHeader& header, const std::vector<SectionData>& parts) {
  try {
    NewFile file(path);
    std::vector<Section> sections;
    std::int64_t offset = kPage;
    for (const SectionData& part : parts) {
      sections.push_back(write_section(file.fd(), part, offset));
      offset += padded(sections.back().bytes);
    }
    std::string page = encode(header, sections, offset);
    struct iovec piece{page.data(), page.size()};
    write_at(file.fd(), &piece, 1, 0);
    file.commit();
  } catch (const SystemFailure& failure) {
    throw VectorIndexError("the index cannot be saved as " + path + " (" + failure.what() + ")" +
                           (failure.code() == EWOULDBLOCK ? "; it is being saved there by another thread or process"
                                                          : "; what was there before is as it was"));
  }
}

IndexFile::IndexFile(const std::string& path) : path_(path) {
  try {
    file_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file_) throw SystemFailure(errno, "cannot open it");
    struct stat status;
    if (::fstat(file_.get(), &status) != 0) throw SystemFailure(errno, "cannot read its size");
    if (!S_ISREG(status.st_mode)) throw VectorIndexError(path + " is not a vector index: it is no file; name the file that save() wrote");
    file_bytes_ = status.st_size;
    char page[kPage];
    const std::size_t got = read_at(file_.get(), page, sizeof page, 0);
    if (got < sizeof kMagic || std::memcmp(page, kMagic, sizeof kMagic) != 0) {
      throw VectorIndexError(path + " is not a vector index: it does not begin like one; name the file that save() wrote");
    }
    if (got < sizeof page) refuse("it ends within its header");
    parse(page);
  } catch (const SystemFailure& failure) {
    throw VectorIndexError("the vector index " + path + " cannot be opened: " + failure.what());
  }
}

void IndexFile::refuse(const std::string& why) const {
  throw VectorIndexError("the vector index " + path_ + " is damaged: " + why + "; save it again or take another copy");
}

void IndexFile::refuse_id(std::int64_t id) const { refuse("id " + std::to_string(id) + " stands in it twice"); }

void IndexFile::parse(const char* page) {
  if (load_le32(page + kHeaderCrc) != crc32c(page, kHeaderCrc)) refuse("its header does not match its checksum");
  if (const std::uint32_t format = load_le32(page + kFormat); format != kIndexFormat) {
    throw VectorIndexError("the vector index " + path_ + " has format " + std::to_string(format) + " and this version of prismem-core reads format " +
                           std::to_string(kIndexFormat) + ": use the version that wrote it");
  }
  const std::uint32_t kind = load_le32(page + kKind), metric = load_le32(page + kMetric), sections = load_le32(page + kSectionCount);
  if (kind > 2) refuse("it names an unknown kind of rows");
  if (metric > 1) refuse("it names an unknown metric");
  if (sections > kMaxSections) refuse("it lists too many sections");
  header_.options.kind = static_cast<Kind>(kind);
  header_.options.metric = static_cast<Metric>(metric);
  header_.options.dim = static_cast<std::int64_t>(load_le64(page + kDim));
  header_.count = static_cast<std::int64_t>(load_le64(page + kCount));
  header_.next_id = static_cast<std::int64_t>(load_le64(page + kNextId));
  if (header_.options.dim < 1 || header_.options.dim > kMaxIndexDim) refuse("it claims rows of " + std::to_string(header_.options.dim) + " dimensions");
  const std::int64_t row_bytes = header_.options.dim * bytes_of(header_.options.kind);
  if (header_.count < 0 || header_.count > kMaxIndexBytes / row_bytes) refuse("it claims " + std::to_string(header_.count) + " rows");
  if (const std::uint64_t bytes = load_le64(page + kFileBytes); bytes != static_cast<std::uint64_t>(file_bytes_)) {
    refuse("it should have " + std::to_string(bytes) + " bytes and has " + std::to_string(file_bytes_));
  }
  for (std::uint32_t i = 0; i < sections; ++i) {
    const char* entry = page + kTable + i * kEntryBytes;
    const Section section{static_cast<SectionKind>(load_le32(entry)), load_le32(entry + 4), static_cast<std::int64_t>(load_le64(entry + 8)),
                          static_cast<std::int64_t>(load_le64(entry + 16))};
    const bool inside = section.offset >= kPage && section.offset % kPage == 0 && section.offset <= file_bytes_ && section.bytes >= 0 &&
                        section.bytes <= file_bytes_ && padded(section.bytes) <= file_bytes_ - section.offset;
    if (!inside) refuse("a section lies outside of it");
    sections_.push_back(section);
  }
  expect(SectionKind::rows, header_.count * row_bytes, "rows");
  expect(SectionKind::ids, header_.count * 8, "ids");
  has_codes_ = has(SectionKind::code_blocks);
  if (!has_codes_) return;
  if (header_.options.dim > kMaxCodeDim) refuse("it has codes for rows of too many dimensions");
  for (const SectionKind kind : {SectionKind::code_blocks, SectionKind::code_low, SectionKind::code_errors, SectionKind::code_centre}) {
    expect(kind, code_section_bytes(kind, header_.count, header_.options.dim), "codes");
  }
}

bool IndexFile::has(SectionKind kind) const {
  return std::any_of(sections_.begin(), sections_.end(), [&](const Section& section) { return section.kind == kind; });
}

void IndexFile::expect(SectionKind kind, std::int64_t bytes, const char* what) const {
  if (find(kind).bytes != bytes) refuse(std::string("its ") + what + " do not have the size that its header claims");
}

const Section& IndexFile::find(SectionKind kind) const {
  const auto found = std::find_if(sections_.begin(), sections_.end(), [&](const Section& section) { return section.kind == kind; });
  if (found == sections_.end()) refuse("a section is missing");
  return *found;
}

void IndexFile::verify(const Section& section, std::uint32_t crc) const {
  if (crc != section.crc) refuse("the section at byte " + std::to_string(section.offset) + " does not match its checksum");
}

void IndexFile::read(SectionKind kind, void* out) const {
  const Section& section = find(kind);
  char* data = static_cast<char*>(out);
  std::uint32_t crc = 0;
  char filling[kPage];
  const std::int64_t rest = padded(section.bytes) - section.bytes;
  try {
    for (std::int64_t done = 0; done < section.bytes; done += kChunk) {
      const std::size_t size = static_cast<std::size_t>(std::min(kChunk, section.bytes - done));
      if (read_at(file_.get(), data + done, size, static_cast<std::uint64_t>(section.offset + done)) != size) refuse("it has become shorter");
      crc = crc32c(data + done, size, crc);
    }
    const std::size_t size = static_cast<std::size_t>(rest);
    if (read_at(file_.get(), filling, size, static_cast<std::uint64_t>(section.offset + section.bytes)) != size) refuse("it has become shorter");
    crc = crc32c(filling, size, crc);
  } catch (const SystemFailure& failure) {
    throw VectorIndexError("the vector index " + path_ + " cannot be read: " + failure.what());
  }
  verify(section, crc);
}

MappedIndexFile::MappedIndexFile(const std::string& path) : IndexFile(path) {
  void* start = ::mmap(nullptr, static_cast<std::size_t>(file_bytes_), PROT_READ, MAP_SHARED, file_.get(), 0);
  if (start == MAP_FAILED) throw VectorIndexError("the vector index " + path + " cannot be mapped: " + describe_errno(errno));
  start_ = static_cast<const char*>(start);
  file_.reset();  // the mapping stays
}

MappedIndexFile::~MappedIndexFile() { ::munmap(const_cast<char*>(start_), static_cast<std::size_t>(file_bytes_)); }

void MappedIndexFile::verify() const {
  for (const Section& section : sections_) {
    IndexFile::verify(section, crc32c(start_ + section.offset, static_cast<std::size_t>(padded(section.bytes))));
  }
}

const void* MappedIndexFile::section(SectionKind kind) const { return start_ + find(kind).offset; }

}  // namespace prismem::index
