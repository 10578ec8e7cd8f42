#include "testing.hpp"

#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

namespace prismem::testing {
namespace {

std::vector<std::pair<const char*, std::function<void()>>>& tests() {
  static std::vector<std::pair<const char*, std::function<void()>>> all;
  return all;
}

}  // namespace

bool add(const char* name, std::function<void()> body) {
  tests().emplace_back(name, std::move(body));
  return true;
}

void fail(const char* file, int line, const std::string& what) { throw Failure(std::string(file) + ":" + std::to_string(line) + ": " + what); }

}  // namespace prismem::testing

// Runs every test, or those whose names contain one of the words given; returns the number that failed, at most 100.
int main(int count, char** words) {
  int run = 0;
  int failed = 0;
  for (const auto& [name, body] : prismem::testing::tests()) {
    bool wanted = count == 1;
    for (int i = 1; i < count; ++i) wanted = wanted || std::strstr(name, words[i]) != nullptr;
    if (!wanted) continue;
    ++run;
    try {
      body();
    } catch (const std::exception& error) {
      ++failed;
      std::printf("FAILED %s: %s\n", name, error.what());
    }
    std::fflush(stdout);
  }
  std::printf("%d native tests, %d failed\n", run, failed);
  if (run == 0) return 1;
  return failed > 100 ? 100 : failed;
}
