// mmr_select over many candidates: a launch a pick. The candidates of a query are spread over blocks; each block knows from the best
// candidates that the launch before has left what was picked last, and computes the similarities of its own candidates to it.
#pragma once

#include "mmr.cuh"

namespace prismem::cuda {

struct MmrStep {
  std::int64_t step;    // 0 computes relevance; step s knows s picks
  std::int64_t splits;  // blocks of a query, each with `span` candidates
  std::int64_t span;
  const Pick* before;  // (queries, splits): the best candidate of each block, of the launch before
  Pick* best;          // and of this one
};

template <class T>
PRISMEM_KERNEL(kScanThreads, 2)
mmr_step(const Mmr mmr, const MmrStep now) {
  const Scan& scan = mmr.scan;
  const std::int64_t query = block_index() / now.splits, split = block_index() % now.splits;
  const std::int64_t base = mmr.begin(query), all_end = mmr.end(query), begin = base + split * now.span;
  const std::int64_t end = begin + now.span < all_end ? begin + now.span : all_end;
  const int lane = thread_index() % kWarp, warp = thread_index() / kWarp;
  const bool first = now.step == 0;

  // Every warp of every block finds the same pick.
  Pick last{0.0, -1};
  for (std::int64_t other = lane; !first && other < now.splits; other += kWarp) {
    const Pick* at = now.before + query * now.splits + other;
    last.consider(load(&at->value), load(&at->index));
  }
  last = warp_best(last);
  if (split == 0 && first) mmr.write_rest(query, 0, thread_index(), kScanThreads);
  if (split == 0 && last.index >= 0 && thread_index() == 0) {
    mmr.write_pick(query, now.step - 1, last.index - base, last.value);
    store(mmr.counts + query, now.step);
  }
  if (now.step == mmr.k) return;

  // A lane that has scores owns its candidates: nobody else writes their state.
  float* relevances = mmr.state + query * 2 * mmr.longest - base;
  float* penalties = relevances + mmr.longest;
  const Shared<float> staged_row = Shared<float>::at(0);
  const Shared<double> best_values = Shared<double>::at(static_cast<int>(scan.staged) * 4);
  const Shared<std::int64_t> best_indices = Shared<std::int64_t>::at(static_cast<int>(scan.staged) * 4 + kScanWarps * 8);
  const RowsView& rows = first ? scan.queries : scan.keys;
  const std::int64_t row = first ? query : last.index;
  const bool any = first || last.index >= 0;
  const float inverse = any ? scan.inverse(rows, row) : 0.0f;
  if (any && scan.dim <= scan.staged) stage_row<T>(scan, rows, row, true, staged_row, 0);
  sync_block<13>();
  Pick best{0.0, -1};
  for (std::int64_t group = begin; any && group < end; group += kRowsAWarp * kScanWarps) {
    const auto wanted = [&](std::int64_t key) {
      return key < end && (first ? scan.filter.passes(query, key) : key != last.index && is_number(load(relevances + key)));
    };
    const float product = warp_products<T, 1>(scan, group + warp, kScanWarps, wanted, staged_row, [&](std::int64_t from) {
      sync_block<14>();
      stage_row<T>(scan, rows, row, true, staged_row, from);
      sync_block<15>();
    });
    const std::int64_t key = group + warp + lane * kScanWarps;
    if (lane >= kRowsAWarp || key >= end) continue;
    if (!wanted(key)) {
      if (first || key == last.index) store(relevances + key, not_a_number());
      continue;
    }
    const float score = scan.score(product, rows, inverse, row, key);
    if (first) {
      const bool kept = scan.filter.keeps(query, key, score);
      store(relevances + key, kept ? score : not_a_number());
      if (kept) best.consider(static_cast<double>(score), key);
      continue;
    }
    const float penalty = now.step == 1 ? score : spoilt_maximum(load(penalties + key), score);
    store(penalties + key, penalty);
    best.consider(mmr.score(load(relevances + key), penalty), key);
  }
  best = warp_best(best);
  if (lane == 0) {
    best_values.set(warp, best.value);
    best_indices.set(warp, best.index);
  }
  sync_block<16>();
  if (thread_index() != 0) return;
  for (int other = 0; other < kScanWarps; ++other) best.consider(best_values.get(other), best_indices.get(other));
  Pick* to = now.best + query * now.splits + split;
  store(&to->value, best.value);
  store(&to->index, best.index);
}

}  // namespace prismem::cuda
