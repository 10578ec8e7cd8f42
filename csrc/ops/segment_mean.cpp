// segment_mean: a compensated sum in double, so that the mean is that of an exactly summed list to the last bit or two.
#include "simd/scores.hpp"

namespace prismem {
namespace PRISMEM_NAMESPACE {
namespace {

// Neumaier's sum: what each addition loses is collected and added at the end.
template <class T>
double mean_of(const T* values, std::int64_t count) {
  if (count == 0) return __builtin_nan("");
  double sum = 0.0;
  double lost = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(values[i]);
    const double next = sum + value;
    lost += __builtin_fabs(sum) >= __builtin_fabs(value) ? (sum - next) + value : (value - next) + sum;
    sum = next;
  }
  // With an infinity the lost part is NaN and the plain sum is the right answer.
  return (is_finite(sum) ? sum + lost : sum) / static_cast<double>(count);
}

}  // namespace

double segment_mean_f32(const float* values, std::int64_t count) { return mean_of(values, count); }
double segment_mean_f64(const double* values, std::int64_t count) { return mean_of(values, count); }

}  // namespace PRISMEM_NAMESPACE
}  // namespace prismem
