#include "launch.cuh"
#include "row_scales.cuh"

namespace prismem::cuda {

int launch_row_scales(const RowsView& rows, std::int64_t dim, float* powers, float* inverses, void* stream) {
  constexpr std::int64_t kRows = kScalesThreads / kWarp;
  return with_kind(rows.kind, [&](auto tag) {
    return launch(row_scales<decltype(tag)>, (rows.count + kRows - 1) / kRows, kScalesThreads, 0, stream, rows, dim, powers, inverses);
  });
}

}  // namespace prismem::cuda

extern "C" int prismem_cuda_row_scales(const prismem_cuda_rows* rows, float* powers, float* inverses, int device, void* stream) {
  using namespace prismem::cuda;
  const OnDevice on(device);
  if (on.code() != PRISMEM_CUDA_OK) return on.code();
  return launch_row_scales(view_of(*rows), rows->dim, powers, inverses, stream);
}
