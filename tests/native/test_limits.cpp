#include "bench/limit_probe.hpp"
#include "matrices.hpp"
#include "testing.hpp"

namespace prismem {

PRISMEM_TEST(probes_read_inside_their_memory) {
  for (const std::string& isa : testing::isas()) {
    for (const int threads : testing::thread_counts()) {
      const LimitProbe probe(100'000, isa, threads);
      for (const bool four_streams : {false, true}) {
        const std::int64_t done = probe.read(100'000, 3, four_streams);
        PRISMEM_CHECK(done > 0 && done <= 300'000);
      }
      PRISMEM_EQUAL(probe.multiply_floats(20) % threads, 0);
      PRISMEM_EQUAL(probe.multiply_bytes(20, false) == 0, isa == "portable");
      PRISMEM_EQUAL(probe.multiply_bytes(20, true) == 0, isa == "portable");
    }
  }
}

}  // namespace prismem
