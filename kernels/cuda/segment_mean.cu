// segment_mean: the means of neighbouring pieces of a list (Eq. 9-11), a warp a piece.
//
// A lane adds its values into a double and keeps what each addition loses (Neumaier); the lanes' sums and losses meet in the same way.
// A compiler must not reorder these sums: each operation is one of the rounded primitives.
#include "launch.cuh"

namespace prismem::cuda {

namespace {

constexpr int kMeanThreads = 256;

struct CompensatedSum {
  double sum = 0.0;
  double lost = 0.0;

  PRISMEM_DEVICE void add(double value) {
    const double total = add_rounded(sum, value);
    const double size = sum < 0 ? -sum : sum, other = value < 0 ? -value : value;
    lost = add_rounded(lost, size >= other ? add_rounded(subtract(sum, total), value) : add_rounded(subtract(value, total), sum));
    sum = total;
  }
};

template <class T>
PRISMEM_KERNEL(kMeanThreads, 2)
mean_of_pieces(const T* values, const std::int64_t* offsets, std::int64_t pieces, double* means) {
  const int lane = thread_index() % kWarp;
  const std::int64_t piece = block_index() * (kMeanThreads / kWarp) + thread_index() / kWarp;
  const std::int64_t begin = piece < pieces ? load(offsets + piece) : 0, end = piece < pieces ? load(offsets + piece + 1) : 0;
  CompensatedSum sum;
  double plain = 0.0;  // tells infinities and NaN, of which compensation makes NaN
  for (std::int64_t i = begin + lane; i < end; i += kWarp) {
    const auto value = static_cast<double>(load(values + i));
    sum.add(value);
    plain = add_rounded(plain, value);
  }
#pragma unroll
  for (int bit = 1; bit < kWarp; bit <<= 1) {
    const double other = shuffle_xor(sum.sum, bit), other_lost = shuffle_xor(sum.lost, bit);
    sum.add(other);
    sum.lost = add_rounded(sum.lost, other_lost);
    plain = add_rounded(plain, shuffle_xor(plain, bit));
  }
  if (piece >= pieces || lane != 0) return;
  const double total = add_rounded(sum.sum, sum.lost);
  const bool finite = subtract(plain, plain) == 0.0;
  store(means + piece, (finite ? total : plain) / static_cast<double>(end - begin));
}

}  // namespace

}  // namespace prismem::cuda

extern "C" int prismem_cuda_segment_mean(const void* values, int wide, const int64_t* offsets, int64_t pieces, double* means, int device,
                                         void* stream) {
  using namespace prismem::cuda;
  const OnDevice on(device);
  if (on.code() != PRISMEM_CUDA_OK) return on.code();
  constexpr std::int64_t kPieces = kMeanThreads / kWarp;
  const std::int64_t blocks = (pieces + kPieces - 1) / kPieces;
  if (wide != 0)
    return launch(mean_of_pieces<double>, blocks, kMeanThreads, 0, stream, static_cast<const double*>(values), offsets, pieces, means);
  return launch(mean_of_pieces<float>, blocks, kMeanThreads, 0, stream, static_cast<const float*>(values), offsets, pieces, means);
}
