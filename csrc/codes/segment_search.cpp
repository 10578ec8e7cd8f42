#include "codes/segment_search.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "ops/launch.hpp"
#include "simd/code_segments.hpp"

namespace prismem {
namespace {

constexpr std::size_t kLine = 64;

// Scratch memory of one thread, not cleared.
class CodedScratch {
 public:
  explicit CodedScratch(std::int64_t dim)
      : plain_(dim),
        codes_(lines(kSegmentRows * 2 * low_row_bytes(dim) + padded_dim(dim))),
        panel_(lines(128 * code_groups(dim))),
        floats_(new float[static_cast<std::size_t>((kSegmentRows + 3) * kSpanFloats + kSegmentRows * padded_dim(dim))]),
        evidence_(new CodedEvidence[static_cast<std::size_t>(kSegmentRows)]),
        spans_(new BoundedSpan[static_cast<std::size_t>(kSegmentRows)]) {
    view_.plain = plain_.view();
    view_.codes = reinterpret_cast<std::int8_t*>(codes_.get());
    view_.row_codes = view_.codes + kSegmentRows * 2 * low_row_bytes(dim);
    view_.panel = panel_.get();
    view_.bounds = floats_.get();
    view_.terms = view_.bounds + kSegmentRows * kSpanFloats;
    view_.packed = view_.terms + 3 * kSpanFloats;
    view_.evidence = evidence_.get();
    view_.spans = spans_.get();
    view_.plain_tasks = 0;
  }

  CodedSegmentScratch& view() { return view_; }

 private:
  struct Free {
    void operator()(std::uint8_t* bytes) const { ::operator delete(bytes, std::align_val_t{kLine}); }
  };
  using Lines = std::unique_ptr<std::uint8_t, Free>;
  static Lines lines(std::int64_t bytes) { return Lines(static_cast<std::uint8_t*>(::operator new(static_cast<std::size_t>(bytes), std::align_val_t{kLine}))); }

  ThreadScratch plain_;
  Lines codes_;
  Lines panel_;
  std::unique_ptr<float[]> floats_;
  std::unique_ptr<CodedEvidence[]> evidence_;
  std::unique_ptr<BoundedSpan[]> spans_;
  CodedSegmentScratch view_{};
};

// Neighbouring blocks of a plan with together up to kSegmentRows rows.
struct Batch {
  std::int64_t first;
  std::int64_t count;
};

std::vector<Batch> batches_of(const QueryPlan& plan, std::int64_t most) {
  std::vector<Batch> batches;
  std::int64_t rows = most;
  for (std::size_t b = 0; b < plan.blocks.size(); ++b) {
    if (rows + plan.blocks[b].count > most) {
      batches.push_back(Batch{static_cast<std::int64_t>(b), 0});
      rows = 0;
    }
    ++batches.back().count;
    rows += plan.blocks[b].count;
  }
  return batches;
}

}  // namespace

Report coded_segment_max_similarity(const Rows& evidence, const Rows& items, const RowCodes& codes, const Segments& segments,
                                    bool normalize, float* values, std::int64_t* indices, const RunOptions& run) {
  if (codes.normalize() != normalize) return segment_max_similarity(evidence, items, segments, normalize, values, indices, run);
  const CodeView view = codes.view();
  const OpTable& table = op_table(run.isa);
  Report report;
  report.isa = table.isa;
  const double work = plan_queries(evidence.count, items.count, evidence.dim, segments, kSegmentRows).work;
  const int threads = thread_count(run.threads, work);
  const std::int64_t most = std::clamp<std::int64_t>((evidence.count + threads - 1) / threads, 1, kSegmentRows);
  const QueryPlan plan = plan_queries(evidence.count, items.count, evidence.dim, segments, most);
  const std::vector<Batch> batches = batches_of(plan, most);
  std::vector<std::int64_t> first_bad(plan.order.size(), -1);
  std::vector<std::unique_ptr<CodedScratch>> scratch(static_cast<std::size_t>(threads));
  parallel_for(static_cast<std::int64_t>(batches.size()), threads, [&](int worker, std::int64_t index) {
    std::unique_ptr<CodedScratch>& own = scratch[static_cast<std::size_t>(worker)];
    if (own == nullptr) own = std::make_unique<CodedScratch>(evidence.dim);
    const Batch& batch = batches[static_cast<std::size_t>(index)];
    const QueryBlock* blocks = &plan.blocks[static_cast<std::size_t>(batch.first)];
    const CodedSegmentTask task{evidence, plan.order.data(), blocks, batch.count, items, view};
    table.code_segment_max(task, values, indices, first_bad.data() + blocks[0].first, own->view());
  });
  for (std::size_t position = 0; position < first_bad.size(); ++position) {
    if (first_bad[position] >= 0) note_bad(report, plan.order[position], first_bad[position]);
  }
  return report;
}

}  // namespace prismem
