// mmr_select over many candidates: a block a query, which computes the similarities of all candidates to each pick as it is made.
#pragma once

#include "mmr.cuh"

namespace prismem::cuda {

template <class T>
PRISMEM_KERNEL(kScanThreads, 2)
mmr_steps(const Mmr mmr) {
  const Scan& scan = mmr.scan;
  const std::int64_t query = block_index(), begin = mmr.begin(query), end = mmr.end(query);
  const int lane = thread_index() % kWarp, warp = thread_index() / kWarp;
  // A lane that has scores owns its candidates: nobody else touches their state.
  float* relevances = mmr.state + query * 2 * mmr.longest - begin;
  float* penalties = relevances + mmr.longest;
  const Shared<float> staged_row = Shared<float>::at(0);
  const Shared<double> best_values = Shared<double>::at(static_cast<int>(scan.staged) * 4);
  const Shared<std::int64_t> best_indices = Shared<std::int64_t>::at(static_cast<int>(scan.staged) * 4 + kScanWarps * 8);

  std::int64_t picked = -1;
  std::int64_t count = 0;
  for (;; ++count) {
    // The relevance to the query first, then the similarity to the last pick.
    const bool first = count == 0;
    const RowsView& rows = first ? scan.queries : scan.keys;
    const std::int64_t row = first ? query : picked;
    const float inverse = scan.inverse(rows, row);
    if (scan.dim <= scan.staged) stage_row<T>(scan, rows, row, true, staged_row, 0);
    sync_block<13>();
    Pick best{0.0, -1};
    for (std::int64_t group = begin; group < end; group += kRowsAWarp * kScanWarps) {
      const auto wanted = [&](std::int64_t key) {
        return key < end && (first ? scan.filter.passes(query, key) : key != picked && is_number(load(relevances + key)));
      };
      const float product = warp_products<T, 1>(scan, group + warp, kScanWarps, wanted, staged_row, [&](std::int64_t from) {
        sync_block<14>();
        stage_row<T>(scan, rows, row, true, staged_row, from);
        sync_block<15>();
      });
      const std::int64_t key = group + warp + lane * kScanWarps;
      if (lane >= kRowsAWarp || key >= end) continue;
      if (!wanted(key)) {
        if (first || key == picked) store(relevances + key, not_a_number());
        continue;
      }
      const float score = scan.score(product, rows, inverse, row, key);
      if (first) {
        const bool kept = scan.filter.keeps(query, key, score);
        store(relevances + key, kept ? score : not_a_number());
        if (kept) best.consider(static_cast<double>(score), key);
        continue;
      }
      const float penalty = count == 1 ? score : spoilt_maximum(load(penalties + key), score);
      store(penalties + key, penalty);
      best.consider(mmr.score(load(relevances + key), penalty), key);
    }
    best = warp_best(best);
    if (lane == 0) {
      best_values.set(warp, best.value);
      best_indices.set(warp, best.index);
    }
    sync_block<16>();
    for (int other = 0; other < kScanWarps; ++other) best.consider(best_values.get(other), best_indices.get(other));
    if (best.index < 0) break;
    picked = best.index;
    if (thread_index() == 0) mmr.write_pick(query, count, picked - begin, best.value);
    if (count + 1 == mmr.k) {
      ++count;
      break;
    }
  }
  mmr.write_rest(query, count, thread_index(), kScanThreads);
}

}  // namespace prismem::cuda
