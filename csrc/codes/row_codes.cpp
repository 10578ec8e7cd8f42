#include "codes/row_codes.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "simd/dispatch.hpp"
#include "support/error.hpp"
#include "support/parallel.hpp"

namespace prismem {
namespace {

constexpr std::int64_t kCentreRows = 4096;    // rows that the mean is taken of
constexpr std::int64_t kRowsPerJob = 64 * kCodeRows;
constexpr double kEncodeWork = 8.0;           // encoding a number costs about as much as this many multiplications
constexpr std::uint16_t kInfiniteBits = 0x7f80;

class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), start_(std::chrono::steady_clock::now()) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

RowCodes::RowCodes(std::int64_t dim, bool normalize) : centre_(static_cast<std::size_t>(code_groups(dim) * 8), 0.0f), dim_(dim), normalize_(normalize) {
  if (!supports(dim)) throw ArgumentError("codes: expected 1 to " + std::to_string(kMaxCodeDim) + " dimensions, got " + std::to_string(dim));
}

RowCodes::RowCodes(std::int64_t dim, bool normalize, std::int64_t count, const float* centre, HugeBuffer blocks, HugeBuffer low, HugeBuffer mid_error)
    : RowCodes(dim, normalize) {
  blocks_ = std::move(blocks);
  low_ = std::move(low);
  mid_error_ = std::move(mid_error);
  std::copy(centre, centre + centre_.size(), centre_.begin());
  centre_norm_ = norm_of_centre(centre, dim);
  has_centre_ = true;
  count_ = count;
}

void RowCodes::build(const Rows& rows, const RunOptions& run) {
  truncate(0);
  build_seconds_ = 0.0;
  has_centre_ = false;
  extend(rows, run);
}

void RowCodes::extend(const Rows& rows, const RunOptions& run) {
  const std::int64_t before = count_;
  if (rows.count <= before) return;
  if (!has_centre_) find_centre(rows, run);
  resize(rows.count);
  encode(rows, before, rows.count, run);
}

void RowCodes::encode(const Rows& rows, std::int64_t begin, std::int64_t end, const RunOptions& run) {
  if (begin >= end) return;
  const Stopwatch watch(build_seconds_);
  const CodeTable& table = op_table(run.isa).codes;
  const CodeStore store{blocks_.data(), low_.data(), mid_error_.as<std::uint16_t>(), centre_.data(), centre_norm_, dim_, normalize_};
  const std::int64_t first = begin / kRowsPerJob;
  const std::int64_t jobs = (end - 1) / kRowsPerJob - first + 1;
  const int threads = thread_count(run.threads, kEncodeWork * static_cast<double>(end - begin) * static_cast<double>(dim_));
  const std::size_t padded = centre_.size();
  std::vector<float> packed(padded * static_cast<std::size_t>(threads));
  std::vector<std::uint8_t> codes(padded * static_cast<std::size_t>(threads));
  const std::int64_t irregular_before = irregular_between(begin, end);
  parallel_for(jobs, threads, [&](int worker, std::int64_t job) {
    const std::size_t offset = padded * static_cast<std::size_t>(worker);
    const std::int64_t job_begin = std::max(begin, (first + job) * kRowsPerJob);
    const std::int64_t job_end = std::min(end, (first + job + 1) * kRowsPerJob);
    table.encode(rows, job_begin, job_end, store, CodeScratch{packed.data() + offset, codes.data() + offset});
  });
  irregular_ += irregular_between(begin, end) - irregular_before;
}

void RowCodes::truncate(std::int64_t count) {
  if (count >= count_) return;
  irregular_ -= irregular_between(count, count_);
  std::fill(mid_error_.as<std::uint16_t>() + count, mid_error_.as<std::uint16_t>() + count_, std::uint16_t{0});
  resize(count);
}

std::int64_t RowCodes::bytes() const {
  return static_cast<std::int64_t>(blocks_.size() + low_.size() + mid_error_.size() + centre_.size() * sizeof(float));
}

CodeView RowCodes::view() const {
  return CodeView{blocks_.data(), low_.data(), mid_error_.as<std::uint16_t>(), centre_.data(), centre_norm_, count_, dim_, normalize_, regular()};
}

void RowCodes::find_centre(const Rows& rows, const RunOptions& run) {
  const Stopwatch watch(build_seconds_);
  const std::int64_t step = std::max<std::int64_t>(1, rows.count / kCentreRows);
  std::vector<float> packed(centre_.size());
  std::vector<double> sums(centre_.size(), 0.0);
  const std::int64_t added = op_table(run.isa).codes.add_rows(rows, 0, rows.count, step, normalize_, packed.data(), sums.data());
  for (std::size_t j = 0; j < centre_.size(); ++j) centre_[j] = added > 0 ? static_cast<float>(sums[j] / static_cast<double>(added)) : 0.0f;
  centre_norm_ = norm_of_centre(centre_.data(), dim_);
  has_centre_ = true;
}

double RowCodes::norm_of_centre(const float* centre, std::int64_t dim) {
  double square = 0.0;
  for (std::int64_t j = 0; j < code_groups(dim) * 8; ++j) square += static_cast<double>(centre[j]) * static_cast<double>(centre[j]);
  return std::sqrt(square) * (1.0 + 1e-9);
}

void RowCodes::resize(std::int64_t count) {
  const auto blocks = static_cast<std::size_t>(code_blocks(count));
  const std::size_t rows = blocks * static_cast<std::size_t>(kCodeRows);
  const auto grow = [](HugeBuffer& buffer, std::size_t size) {
    const std::size_t before = buffer.size();
    buffer.resize(size);
    if (size > before) std::memset(buffer.data() + before, 0, size - before);
  };
  grow(blocks_, blocks * static_cast<std::size_t>(code_block_bytes(dim_)));
  grow(low_, rows * static_cast<std::size_t>(low_row_bytes(dim_)));
  grow(mid_error_, rows * sizeof(std::uint16_t));
  count_ = count;
}

std::int64_t RowCodes::irregular_between(std::int64_t begin, std::int64_t end) const {
  return std::count(mid_error_.as<std::uint16_t>() + begin, mid_error_.as<std::uint16_t>() + end, kInfiniteBits);
}

}  // namespace prismem
