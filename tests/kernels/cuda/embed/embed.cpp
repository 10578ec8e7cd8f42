// Plans a search and asks for the first device: prints the scratch it needs, then whether there is a device and why not.
#include <cstdio>

#include "prismem/cuda.h"

int main() {
  prismem_cuda_search search{};
  search.queries = {nullptr, 3, 64, 64, PRISMEM_CUDA_FLOAT16, nullptr, nullptr};
  search.keys = {nullptr, 100000, 64, 64, PRISMEM_CUDA_FLOAT16, nullptr, nullptr};
  search.k = 10;
  prismem_cuda_plan plan{};
  if (prismem_cuda_plan_search(&search, PRISMEM_CUDA_TOP_K, &plan) != PRISMEM_CUDA_OK) return 1;
  std::printf("%lld bytes\n%s\n", static_cast<long long>(plan.workspace_bytes), prismem_cuda_architectures());
  std::printf("%s\n", prismem_cuda_available(0) == PRISMEM_CUDA_OK ? "available" : prismem_cuda_message());
}
