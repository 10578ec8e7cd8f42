#include "index/lexical_file.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "support/crc32c.hpp"
#include "support/error.hpp"
#include "support/file.hpp"
#include "support/little_endian.hpp"
#include "support/new_file.hpp"

namespace prismem::index {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are written as they lie in memory");

constexpr char kMagic[8] = {'P', 'M', 'L', 'E', 'X', 'I', 'D', 'X'};
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kFormatAt = 8, kNameBytes = 12, kK1 = 16, kB = 24, kTexts = 32, kTerms = 40, kTermBytes = 48, kPairs = 56, kNextId = 64,
                      kContentCrc = 72, kHeaderCrc = 76, kHeaderBytes = 80;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 46;

// The arrays of the file, in this order behind the header.
struct Arrays {
  std::string name;
  std::vector<std::int64_t> term_ends;
  std::string terms;
  std::vector<std::int64_t> ids;
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> term_counts;  // different terms of each text
  std::vector<TermCount> pairs;

  template <class Visit>
  void each(Visit visit) {
    visit(name.data(), name.size());
    visit(term_ends.data(), term_ends.size() * sizeof(std::int64_t));
    visit(terms.data(), terms.size());
    visit(ids.data(), ids.size() * sizeof(std::int64_t));
    visit(lengths.data(), lengths.size() * sizeof(std::int32_t));
    visit(term_counts.data(), term_counts.size() * sizeof(std::int32_t));
    visit(pairs.data(), pairs.size() * sizeof(TermCount));
  }
};

void store_double(char* at, double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  store_le64(at, bits);
}

double load_double(const char* at) {
  const std::uint64_t bits = load_le64(at);
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Texts in their order; terms are numbered as they come, so that equal contents make equal files.
Arrays arrays_of(const std::string& tokenizer, const PostingStore& store) {
  Arrays arrays;
  arrays.name = tokenizer;
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(store.terms().size()), -1);
  for (const std::int32_t slot : store.slots_in_order()) {
    arrays.ids.push_back(store.id(slot));
    arrays.lengths.push_back(store.length(slot));
    arrays.term_counts.push_back(static_cast<std::int32_t>(store.terms_end(slot) - store.terms_begin(slot)));
    for (const TermShape* at = store.terms_begin(slot); at != store.terms_end(slot); ++at) {
      std::int32_t& number = numbers[static_cast<std::size_t>(at->term)];
      if (number < 0) {
        number = static_cast<std::int32_t>(arrays.term_ends.size());
        arrays.terms += store.terms().term(at->term);
        arrays.term_ends.push_back(static_cast<std::int64_t>(arrays.terms.size()));
      }
      arrays.pairs.push_back(TermCount{number, store.shapes()[static_cast<std::size_t>(at->shape)].count});
    }
  }
  return arrays;
}

class LexicalFile {
 public:
  explicit LexicalFile(const std::string& path) : path_(path) {
    try {
      file_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
      if (!file_) throw SystemFailure(errno, "cannot open it");
      size_ = file_size(file_.get());
      const std::size_t got = read_at(file_.get(), header_, sizeof header_, 0);
      if (got < sizeof kMagic || std::memcmp(header_, kMagic, sizeof kMagic) != 0) {
        throw LexicalIndexError(path + " is not a lexical index: it does not begin like one; name the file that save() wrote");
      }
      if (got < sizeof header_) refuse("it ends within its header");
    } catch (const SystemFailure& failure) {
      throw LexicalIndexError("the lexical index " + path + " cannot be opened: " + failure.what());
    }
    if (load_le32(header_ + kHeaderCrc) != crc32c(header_, kHeaderCrc)) refuse("its header does not match its checksum");
    if (const std::uint32_t format = load_le32(header_ + kFormatAt); format != kFormat) {
      throw LexicalIndexError("the lexical index " + path + " has format " + std::to_string(format) + " and this version of prismem-core reads format " +
                              std::to_string(kFormat) + ": use the version that wrote it");
    }
  }

  LexicalContent content() const {
    LexicalContent content;
    content.options = Bm25Options{load_double(header_ + kK1), load_double(header_ + kB)};
    const bool sound = std::isfinite(content.options.k1) && content.options.k1 >= 0.0 && content.options.b >= 0.0 && content.options.b <= 1.0;
    if (!sound) refuse("its settings are out of range");
    Arrays arrays = read();
    content.tokenizer = std::move(arrays.name);
    fill(content.store, arrays);
    const std::int64_t next_id = static_cast<std::int64_t>(load_le64(header_ + kNextId));
    if (next_id < content.store.next_id()) refuse("its next id is one that is taken");
    content.store.set_next_id(next_id);
    return content;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw LexicalIndexError("the lexical index " + path_ + " is damaged: " + why + "; save it again or take another copy");
  }

  // A number of elements of so many bytes each that the rest of the file could hold.
  std::size_t count_at(std::size_t at, std::size_t bytes) const {
    const std::uint64_t count = load_le64(header_ + at);
    if (count > kMostBytes || count * bytes > size_) refuse("it claims more than it holds");
    return static_cast<std::size_t>(count);
  }

  Arrays read() const {
    Arrays arrays;
    const std::size_t texts = count_at(kTexts, 16), terms = count_at(kTerms, 8), pairs = count_at(kPairs, sizeof(TermCount));
    const std::size_t name_bytes = load_le32(header_ + kNameBytes), term_bytes = count_at(kTermBytes, 1);
    if (name_bytes > size_) refuse("it claims more than it holds");
    if (size_ != kHeaderBytes + name_bytes + 8 * terms + term_bytes + 16 * texts + sizeof(TermCount) * pairs) {
      refuse("it does not have the length that its header claims");
    }
    arrays.name.resize(name_bytes);
    arrays.term_ends.resize(terms);
    arrays.terms.resize(term_bytes);
    arrays.ids.resize(texts);
    arrays.lengths.resize(texts);
    arrays.term_counts.resize(texts);
    arrays.pairs.resize(pairs);
    std::uint64_t offset = kHeaderBytes;
    std::uint32_t crc = 0;
    try {
      arrays.each([&](void* data, std::size_t bytes) {
        if (read_at(file_.get(), data, bytes, offset) != bytes) refuse("it ends too early");
        crc = crc32c(data, bytes, crc);
        offset += bytes;
      });
    } catch (const SystemFailure& failure) {
      throw LexicalIndexError("the lexical index " + path_ + " cannot be read: " + failure.what());
    }
    if (crc != load_le32(header_ + kContentCrc)) refuse("its content does not match its checksum");
    return arrays;
  }

  void fill(PostingStore& store, const Arrays& arrays) const {
    std::int64_t begin = 0;
    for (const std::int64_t end : arrays.term_ends) {
      if (end < begin || end > static_cast<std::int64_t>(arrays.terms.size())) refuse("a term lies outside of its terms");
      const std::int32_t before = store.terms().size();
      if (store.intern(std::string_view(arrays.terms).substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))) != before) {
        refuse("a term stands in it twice");
      }
      begin = end;
    }
    store.reserve_live(static_cast<std::int64_t>(arrays.ids.size()));
    std::vector<TermCount> terms;
    std::vector<std::int64_t> last_text(arrays.term_ends.size(), -1);
    std::size_t next = 0;
    for (std::size_t text = 0; text < arrays.ids.size(); ++text) {
      const std::int32_t count = arrays.term_counts[text];
      if (count < 0 || static_cast<std::size_t>(count) > arrays.pairs.size() - next) refuse("a text has more terms than there are");
      terms.assign(arrays.pairs.begin() + static_cast<std::ptrdiff_t>(next), arrays.pairs.begin() + static_cast<std::ptrdiff_t>(next) + count);
      next += static_cast<std::size_t>(count);
      std::int64_t length = 0;
      for (const TermCount& term : terms) {
        if (term.term < 0 || static_cast<std::size_t>(term.term) >= last_text.size()) refuse("a text has an unknown term");
        std::int64_t& last = last_text[static_cast<std::size_t>(term.term)];
        if (term.count < 1 || last == static_cast<std::int64_t>(text)) refuse("a text counts a term wrongly");
        last = static_cast<std::int64_t>(text);
        length += term.count;
      }
      if (length != arrays.lengths[text]) refuse("the length of a text is not that of its terms");
      if (store.slot_of(arrays.ids[text]) >= 0) refuse("id " + std::to_string(arrays.ids[text]) + " stands in it twice");
      store.enter(store.stage_counted(terms, arrays.lengths[text]), arrays.ids[text]);
    }
    if (next != arrays.pairs.size()) refuse("terms are left that belong to no text");
  }

  std::string path_;
  Descriptor file_;
  std::uint64_t size_ = 0;
  char header_[kHeaderBytes];
};

}  // namespace

void write_lexical_file(const std::string& path, const Bm25Options& options, const std::string& tokenizer, const PostingStore& store) {
  Arrays arrays = arrays_of(tokenizer, store);
  char header[kHeaderBytes] = {};
  std::memcpy(header, kMagic, sizeof kMagic);
  store_le32(header + kFormatAt, kFormat);
  store_le32(header + kNameBytes, static_cast<std::uint32_t>(arrays.name.size()));
  store_double(header + kK1, options.k1);
  store_double(header + kB, options.b);
  store_le64(header + kTexts, arrays.ids.size());
  store_le64(header + kTerms, arrays.term_ends.size());
  store_le64(header + kTermBytes, arrays.terms.size());
  store_le64(header + kPairs, arrays.pairs.size());
  store_le64(header + kNextId, static_cast<std::uint64_t>(store.next_id()));
  std::vector<struct iovec> pieces = {{header, sizeof header}};
  std::uint32_t crc = 0;
  arrays.each([&](void* data, std::size_t bytes) {
    crc = crc32c(data, bytes, crc);
    pieces.push_back({data, bytes});
  });
  store_le32(header + kContentCrc, crc);
  store_le32(header + kHeaderCrc, crc32c(header, kHeaderCrc));
  try {
    NewFile file(path);
    write_at(file.fd(), pieces.data(), static_cast<int>(pieces.size()), 0);
    file.commit();
  } catch (const SystemFailure& failure) {
    throw LexicalIndexError("the index cannot be saved as " + path + " (" + failure.what() + ")" +
                            (failure.code() == EWOULDBLOCK ? "; it is being saved there by another thread or process"
                                                           : "; what was there before is as it was"));
  }
}

LexicalContent read_lexical_file(const std::string& path) { return LexicalFile(path).content(); }

}  // namespace prismem::index
