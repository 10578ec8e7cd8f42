// A word count that is computed once, whoever asks, and survives the process. Run it twice.
#include <cstdio>
#include <sstream>
#include <string>

#include "prismem/cache.hpp"

int main(int count, char** arguments) {
  if (count != 2) return 2;
  prismem::cache::Options options;
  options.directory = arguments[1];
  prismem::cache::ExecutionCache cache(options);
  // A key holds everything that decides the value: here SHA-256 of the text, made elsewhere.
  const auto key = prismem::cache::parse_key("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08");
  bool computed = false;
  const auto words = cache.get_or_compute("word count", key, [&] {
    computed = true;
    std::istringstream text("nothing is paid for twice");
    int words = 0;
    for (std::string word; text >> word;) ++words;
    return std::to_string(words);
  });
  std::printf("%s words, %s\n", words->c_str(), computed ? "computed" : "from the cache");
  cache.close();
  return 0;
}
