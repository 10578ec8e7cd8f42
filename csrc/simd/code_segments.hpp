// Plain structures of segment_max_similarity over items with certified codes.
#pragma once

#include "simd/codes.hpp"
#include "simd/op_table.hpp"

namespace prismem {

constexpr std::int64_t kSegmentRows = 96;                        // pieces of evidence of one task at most
constexpr std::int64_t kSpanItems = 256;                         // items of a segment whose bounds are kept at a time
constexpr std::int64_t kSpanFloats = kSpanItems + 2 * kCodeRows;  // with room for whole blocks

// Up to kSegmentRows pieces of evidence, in blocks that share a segment.
struct CodedSegmentTask {
  Rows evidence;
  const std::int64_t* order;
  const QueryBlock* blocks;
  std::int64_t block_count;
  Rows items;
  CodeView codes;
};

// A piece of evidence: as floats, as codes, and what is known of its best item. Items count from the start of its segment.
struct CodedEvidence {
  const float* row;
  CodedQuery coded;
  std::int64_t segment_begin;
  float score;
  std::int64_t index;      // -1: none yet
  std::int64_t first_bad;  // -1: none
};

// Upper bounds of neighbouring items for one piece of evidence.
struct BoundedSpan {
  std::int64_t evidence;
  std::int64_t begin;
  std::int64_t count;
  std::int64_t candidate;  // the position to be scored first; -1: none
  const float* bounds;
};

// Memory of one thread; codes and panel start at cache lines.
struct CodedSegmentScratch {
  Scratch plain;
  float* packed;             // kSegmentRows rows of padded_dim(dim)
  std::int8_t* row_codes;    // padded_dim(dim)
  std::int8_t* codes;        // kSegmentRows times 2 * low_row_bytes(dim)
  std::uint8_t* panel;       // 128 bytes a group of dimensions
  float* bounds;             // kSegmentRows rows of kSpanFloats
  float* terms;              // 3 rows of kSpanFloats
  CodedEvidence* evidence;   // kSegmentRows
  BoundedSpan* spans;        // kSegmentRows
  std::int64_t plain_tasks;  // tasks still to be done without codes, because those proved too little
};

}  // namespace prismem
