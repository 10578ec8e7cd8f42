/* The CUDA kernels of prismem-core: raw pointers in, a code out; the caller owns all memory.
 *
 * A call is planned on the host, which says how much scratch it needs, and then launched on a stream. Launching neither allocates
 * nor waits nor reads memory of the device, so it can be captured in a graph. Sizes and strides are 64-bit, strides count elements.
 * Shapes, ties and the meaning of scores that are not finite are those of prismem_core.ops. */
#ifndef PRISMEM_CUDA_H
#define PRISMEM_CUDA_H

#include <stdint.h>

#if defined(_WIN32)
#define PRISMEM_CUDA_API __declspec(dllexport)
#else
#define PRISMEM_CUDA_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { PRISMEM_CUDA_FLOAT32 = 0, PRISMEM_CUDA_FLOAT16 = 1, PRISMEM_CUDA_BFLOAT16 = 2 };

/* What a call returns; prismem_cuda_message() explains the last one of the thread that was not 0. */
enum {
  PRISMEM_CUDA_OK = 0,
  PRISMEM_CUDA_ARGUMENT = 1,     /* the call makes no sense, or is beyond a limit that the message names */
  PRISMEM_CUDA_NO_DEVICE = 2,    /* no driver, a driver that is too old, or no such device */
  PRISMEM_CUDA_ARCHITECTURE = 3, /* the library holds no code that the device can run */
  PRISMEM_CUDA_MEMORY = 4,       /* the device has too little memory left */
  PRISMEM_CUDA_FAILURE = 5       /* anything else: an earlier kernel failed, say */
};

/* Rows (count, dim) of one kind whose elements are neighbours. With `normalize`, `powers` and `inverses` may hold what
 * prismem_cuda_row_scales gives for them; where they are null, a call computes them in its workspace. */
typedef struct {
  const void* data;
  int64_t count;
  int64_t dim;
  int64_t stride;
  int32_t kind;
  const float* powers;
  const float* inverses;
} prismem_cuda_rows;

/* Queries, and the keys that each of them sees: all where `ranges` is null, else the range ranges[2 * g], ranges[2 * g + 1] of the
 * query's group g (the query itself where `groups` is null). ranges and groups lie on the host, the rest on the device. `mask` has a
 * byte a pair or a key (query stride 0), not 0 where the pair counts. `flag`, where not null, gets the minimum of itself and
 * query * keys.count + key of each pair that counts and whose score is NaN or infinite. */
typedef struct {
  prismem_cuda_rows queries;
  prismem_cuda_rows keys;
  const int64_t* ranges;
  int64_t segments;
  const int64_t* groups;
  const uint8_t* mask;
  int64_t mask_query_stride;
  int64_t mask_key_stride;
  int64_t k;
  int32_t normalize;
  int32_t has_least; /* scores below `least` do not count */
  float least;
  int32_t device;
  int64_t* flag;
  void* stream;
} prismem_cuda_search;

enum { PRISMEM_CUDA_TOP_K = 0, PRISMEM_CUDA_SEGMENT_MAX_SIMILARITY = 1, PRISMEM_CUDA_SIMILARITY = 2, PRISMEM_CUDA_MMR_SELECT = 3 };

enum {
  PRISMEM_CUDA_PATH_AUTO = 0,
  PRISMEM_CUDA_PATH_ROWS = 1,        /* a warp a key, one query at a time */
  PRISMEM_CUDA_PATH_ROWS_BATCH = 2,  /* a warp a key, four queries at a time */
  PRISMEM_CUDA_PATH_TILES_SMALL = 3, /* tensor cores, 16 queries at a time */
  PRISMEM_CUDA_PATH_TILES = 4,       /* tensor cores, 64 queries at a time */
  PRISMEM_CUDA_PATH_POOL = 5,        /* mmr_select with all similarities in shared memory */
  PRISMEM_CUDA_PATH_STEPS = 6        /* mmr_select with a launch a pick, which computes the similarities to it */
};

/* How a call runs. Zeros let prismem_cuda_plan_search choose; `path` and `span` (keys a block) may be set before. */
typedef struct {
  int32_t path;
  int32_t block_queries;
  int64_t span;
  int64_t items;           /* blocks of the main kernel */
  int64_t splits;          /* the most pieces that the range of a query is cut into */
  int64_t lists;           /* partial results */
  int64_t longest;         /* keys of the longest range */
  int64_t width;           /* hits of a query that one pass finds */
  int64_t table_length;    /* int64 values of the table; 0: none is needed */
  int64_t workspace_bytes; /* scratch on the device, aligned to 256 bytes */
} prismem_cuda_plan;

PRISMEM_CUDA_API const char* prismem_cuda_message(void);
/* Such as "80-real 90a-real 90-virtual", or "emulator". */
PRISMEM_CUDA_API const char* prismem_cuda_architectures(void);
PRISMEM_CUDA_API int prismem_cuda_is_emulator(void);
/* PRISMEM_CUDA_OK where `device` can run the kernels. */
PRISMEM_CUDA_API int prismem_cuda_available(int device);
PRISMEM_CUDA_API int prismem_cuda_device_count(void);

PRISMEM_CUDA_API int prismem_cuda_plan_search(const prismem_cuda_search* search, int op, prismem_cuda_plan* plan);
/* Fills plan->table_length values on the host, which the caller copies to the device for the launch. */
PRISMEM_CUDA_API int prismem_cuda_fill_table(const prismem_cuda_search* search, const prismem_cuda_plan* plan, int64_t* table);

/* powers, inverses (rows): see prismem_core.ops; a zero row has the inverse length 0, a row with NaN or infinity NaN. */
PRISMEM_CUDA_API int prismem_cuda_row_scales(const prismem_cuda_rows* rows, float* powers, float* inverses, int device, void* stream);

/* scores, indices (queries, k) and counts (queries). Unused cells get -infinity and -1. */
PRISMEM_CUDA_API int prismem_cuda_top_k(const prismem_cuda_search* search, const prismem_cuda_plan* plan, const int64_t* table,
                                        void* workspace, float* scores, int64_t* indices, int64_t* counts);

/* Merges lists of hits alone: query i has the lists offsets[i] to offsets[i + 1], or `lists_a_query` where offsets is null, of
 * `list_width` keys each: ordered float32 bits of the score above, the complement of the index below, 0 for none. k <= 256. */
PRISMEM_CUDA_API int prismem_cuda_top_k_merge(const uint64_t* keys, const int64_t* offsets, int64_t lists_a_query, int64_t list_width,
                                              int64_t queries, int64_t k, float* scores, int64_t* indices, int64_t* counts, int device,
                                              void* stream);

/* values, indices (queries); 0 and -1 where nothing counts. */
PRISMEM_CUDA_API int prismem_cuda_segment_max_similarity(const prismem_cuda_search* search, const prismem_cuda_plan* plan,
                                                         const int64_t* table, void* workspace, float* values, int64_t* indices);

/* The picks of each query in the order of selection, indices, scores (queries, k) and counts (queries); `least` is the least relevance. */
PRISMEM_CUDA_API int prismem_cuda_mmr_select(const prismem_cuda_search* search, const prismem_cuda_plan* plan, double relevance_weight,
                                             const int64_t* table, void* workspace, int64_t* indices, float* scores, int64_t* counts);

/* means (pieces) of values[offsets[g]] to values[offsets[g + 1] - 1], float64 where `wide`, else float32; offsets on the device. Sums
 * are compensated; a piece of no values has the mean NaN. */
PRISMEM_CUDA_API int prismem_cuda_segment_mean(const void* values, int wide, const int64_t* offsets, int64_t pieces, double* means,
                                               int device, void* stream);

/* scores (queries, keys). */
PRISMEM_CUDA_API int prismem_cuda_similarity(const prismem_cuda_search* search, const prismem_cuda_plan* plan, const int64_t* table,
                                             void* workspace, float* scores);

#ifdef __cplusplus
}
#endif

#endif
