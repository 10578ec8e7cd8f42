#include "cache/stages.hpp"

#include <mutex>

#include "cache/key.hpp"
#include "support/error.hpp"

namespace prismem::cache {

bool is_stage_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxStageBytes) return false;
  for (const char symbol : name) {
    if (symbol < 0x20 || symbol > 0x7E) return false;
  }
  return true;
}

StageTable::StageTable() : number_([] {
      static std::atomic<std::uint64_t> made{0};
      return ++made;
    }()) {}

Stage& StageTable::intern(std::string_view name) {
  // A thread asks for the same stage many times in a row.
  thread_local std::uint64_t last_table = 0;
  thread_local Stage* last_stage = nullptr;
  if (last_table == number_ && last_stage->name == name) return *last_stage;
  Stage& stage = find_or_make(name);
  last_table = number_;
  last_stage = &stage;
  return stage;
}

Stage& StageTable::find_or_make(std::string_view name) {
  {
    std::shared_lock lock(mutex_);
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return *found->second;
  }
  if (!is_stage_name(name)) {
    throw ArgumentError("stage must be 1 to 64 printable ASCII characters, got " + std::to_string(name.size()) +
                        " bytes: '" + std::string(name.substr(0, 80)) + "'");
  }
  std::unique_lock lock(mutex_);
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return *found->second;
  Stage& stage = stages_.emplace_back();
  stage.name = std::string(name);
  stage.seed = stage_seed(name);
  stage.id = static_cast<std::uint32_t>(stages_.size() - 1);
  by_name_.emplace(stage.name, &stage);
  return stage;
}

Stage& StageTable::at(std::uint32_t id) {
  std::shared_lock lock(mutex_);
  return stages_[id];
}

std::vector<const Stage*> StageTable::all() const {
  std::shared_lock lock(mutex_);
  std::vector<const Stage*> result;
  for (const Stage& stage : stages_) result.push_back(&stage);
  return result;
}

}  // namespace prismem::cache
