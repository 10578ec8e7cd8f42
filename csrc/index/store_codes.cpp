#include "index/store_codes.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace prismem::index {
namespace {

constexpr std::int64_t kFewestRows = 4096;      // below this a search is so short that codes hardly shorten it
constexpr std::int64_t kSearchesThatPay = 32;   // making codes takes about as long as this many searches without them
constexpr std::int64_t kGrowthOfCentre = 4;     // a centre is found anew when there are this many times the rows it was found with

}  // namespace

void StoreCodes::adopt_copy(const IndexFile& file) {
  const std::int64_t count = file.header().count, dim = file.header().options.dim;
  const auto read = [&](SectionKind kind) {
    HugeBuffer bytes(static_cast<std::size_t>(code_section_bytes(kind, count, dim)));
    file.read(kind, bytes.data());
    return bytes;
  };
  const HugeBuffer centre = read(SectionKind::code_centre);
  codes_.emplace(dim, file.header().options.metric == Metric::cosine, count, centre.as<float>(), read(SectionKind::code_blocks), read(SectionKind::code_low),
                 read(SectionKind::code_errors));
  centred_rows_ = count;
}

void StoreCodes::adopt_mapped(const MappedIndexFile& file) {
  const IndexHeader& header = file.header();
  const float* centre = static_cast<const float*>(file.section(SectionKind::code_centre));
  mapped_ = CodeView{static_cast<const std::uint8_t*>(file.section(SectionKind::code_blocks)),
                     static_cast<const std::uint8_t*>(file.section(SectionKind::code_low)),
                     static_cast<const std::uint16_t*>(file.section(SectionKind::code_errors)),
                     centre,
                     RowCodes::norm_of_centre(centre, header.options.dim),
                     header.count,
                     header.options.dim,
                     header.options.metric == Metric::cosine,
                     true};
}

void StoreCodes::list_sections(std::vector<SectionData>& sections) const {
  if (!present() || !view().regular) return;
  const CodeView codes = view();
  const auto add = [&](SectionKind kind, const void* data) { sections.push_back(SectionData{kind, data, code_section_bytes(kind, codes.count, codes.dim)}); };
  add(SectionKind::code_blocks, codes.blocks);
  add(SectionKind::code_low, codes.low);
  add(SectionKind::code_errors, codes.mid_error);
  add(SectionKind::code_centre, codes.centre);
}

bool StoreCodes::wanted_after(const RowStore& store, std::int64_t queries) const {
  if (present() || policy_ != CodePolicy::automatic || store.slots() < kFewestRows || !RowCodes::supports(store.options().dim)) return false;
  const std::int64_t rows = std::min(queries, kSearchesThatPay) * store.slots();
  return rows_searched_.fetch_add(rows, std::memory_order_relaxed) + rows > kSearchesThatPay * store.slots();
}

void StoreCodes::build(const RowStore& store, const RunOptions& run) {
  build_seconds_ = build_seconds();
  codes_.reset();
  mapped_.reset();
  centred_rows_ = store.slots();
  codes_.emplace(store.options().dim, store.options().metric == Metric::cosine);
  try {
    codes_->build(store.rows(), run);
  } catch (...) {
    codes_.reset();
    policy_ = CodePolicy::never;
    throw;
  }
}

template <class Change>
void StoreCodes::follow(Change change) {
  if (!codes_) return;
  try {
    change(*codes_);
  } catch (const std::bad_alloc&) {
    codes_.reset();
  }
}

void StoreCodes::follow_append(const RowStore& store, const RunOptions& run) {
  if (policy_ == CodePolicy::always && !codes_) codes_.emplace(store.options().dim, store.options().metric == Metric::cosine);
  follow([&](RowCodes& codes) {
    if (store.slots() >= kGrowthOfCentre * centred_rows_) {
      build_seconds_ += codes.build_seconds();
      codes.build(store.rows(), run);
      centred_rows_ = store.slots();
    } else {
      codes.extend(store.rows(), run);
    }
  });
}

void StoreCodes::follow_update(const RowStore& store, const std::vector<std::int64_t>& slots, const RunOptions& run) {
  follow([&](RowCodes& codes) {
    std::vector<std::int64_t> sorted = slots;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
      while (end < sorted.size() && sorted[end] - sorted[begin] == static_cast<std::int64_t>(end - begin)) ++end;
      codes.encode(store.rows(), sorted[begin], sorted[begin] + static_cast<std::int64_t>(end - begin), run);
    }
  });
}

void StoreCodes::follow_move(const RowStore& store, std::int64_t first, const RunOptions& run) {
  follow([&](RowCodes& codes) {
    codes.truncate(first);
    codes.extend(store.rows(), run);
  });
}

}  // namespace prismem::index
