// The file of a lexical index (docs/formats.md, "Lexical index").
#pragma once

#include <string>

#include "index/bm25.hpp"
#include "index/posting_store.hpp"

namespace prismem::index {

struct LexicalContent {
  Bm25Options options;
  std::string tokenizer;
  PostingStore store;
};

// Both throw LexicalIndexError; of a file that cannot be written nothing stays.
void write_lexical_file(const std::string& path, const Bm25Options& options, const std::string& tokenizer, const PostingStore& store);
LexicalContent read_lexical_file(const std::string& path);

}  // namespace prismem::index
