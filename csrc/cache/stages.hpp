// The stages of a cache and what each has counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

namespace prismem::cache {

constexpr std::size_t kMaxStageBytes = 64;

// Whether `name` may be a stage: 1 to 64 printable ASCII characters.
bool is_stage_name(std::string_view name);

struct Stage {
  std::string name;
  std::uint32_t id = 0;
  std::uint64_t seed = 0;  // stage_seed(name)
  std::atomic<std::uint64_t> hits{0}, misses{0}, stores{0}, evictions{0}, waits{0}, damaged{0};
  std::atomic<double> saved_cost{0.0};

  void add_saved(double cost) {
    double before = saved_cost.load(std::memory_order_relaxed);
    while (!saved_cost.compare_exchange_weak(before, before + cost, std::memory_order_relaxed)) {
    }
  }
};

// Gives every stage name a number; stages are never removed, so references stay good.
class StageTable {
 public:
  StageTable();
  // The stage of that name, made when new; ArgumentError for a name that no stage may have.
  Stage& intern(std::string_view name);
  Stage& at(std::uint32_t id);
  // All stages in the order in which they were first named.
  std::vector<const Stage*> all() const;

 private:
  Stage& find_or_make(std::string_view name);

  const std::uint64_t number_;  // no other table of this process has it
  mutable std::shared_mutex mutex_;
  std::deque<Stage> stages_;
  std::map<std::string, Stage*, std::less<>> by_name_;
};

}  // namespace prismem::cache
