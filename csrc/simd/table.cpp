// The table of one instruction set; compiled with the ops, in their namespace.
#include "simd/code_lanes.hpp"
#include "simd/op_table.hpp"

#define PRISMEM_TEXT_OF(name) #name
#define PRISMEM_TEXT(name) PRISMEM_TEXT_OF(name)

namespace prismem {
namespace PRISMEM_NAMESPACE {

void pack_queries(const Rows&, const std::int64_t*, std::int64_t, float*, double*);
void similarity(const ScanTask&, float*, std::int64_t, const ScanScratch&);
void top_k_scan(const ScanTask&, const TopKFilter&, std::int64_t, Heap*, const ScanScratch&);
void top_k_merge(Heap&, const Heap&);
void top_k_finish(Heap&);
void mmr_select(const MmrTask&, MmrResult&, const MmrScratch&);
void mmr_select_from(const MmrFromTask&, MmrResult&, const MmrScratch&);
void segment_max_similarity(const ScoreTask&, float*, std::int64_t*, std::int64_t*, const Scratch&);
double segment_mean_f32(const float*, std::int64_t);
double segment_mean_f64(const double*, std::int64_t);
void token_overlap(const OverlapTask&);
void code_encode(const Rows&, std::int64_t, std::int64_t, const CodeStore&, const CodeScratch&);
std::int64_t code_add_rows(const Rows&, std::int64_t, std::int64_t, std::int64_t, bool, float*, double*);
void code_prepare(const Rows&, std::int64_t, const CodeView&, float*, std::int8_t*, CodedQuery&);
double code_sample(const CodeSearchTask&, std::int64_t, bool, CodeSearchQuery&, Heap&, const CodeSearchScratch&);
void code_segment_max(const CodedSegmentTask&, float*, std::int64_t*, std::int64_t*, CodedSegmentScratch&);
void code_stream(const CodeSearchTask&, CodeSearchQuery*, std::int64_t, Heap*, const CodeSearchScratch&);
void code_bounds(const CodeSearchTask&, const CodeSearchQuery&, int, const CodeTile&, const CodeSearchScratch&, float*);
void code_prepare_tile(const CodeView&, const CodeSearchQuery*, std::int64_t, std::int8_t*, CodeTile&);
void code_tiles(const CodeSearchTask&, const CodeTile*, CodeSearchQuery*, std::int64_t, Heap*, const CodeSearchScratch&);

extern const OpTable op_table;
const OpTable op_table = {
    PRISMEM_TEXT(PRISMEM_NAMESPACE),
    pack_queries,
    similarity,
    top_k_scan,
    top_k_merge,
    top_k_finish,
    mmr_select,
    mmr_select_from,
    segment_max_similarity,
    segment_mean_f32,
    segment_mean_f64,
    token_overlap,
    CodeTable{code_encode, code_add_rows, code_prepare, code_sample, code_stream, code_bounds, kTileQueries, code_prepare_tile, code_tiles},
    code_segment_max,
};

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
