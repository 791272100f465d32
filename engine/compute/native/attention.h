/* Attention over paged keys and values: what attention.c, attention_unpack.c and quest.c share. */
#pragma once
#include "simd.h"

enum { PAGE = 16, PART = 512, WIDEST_PACKED = 256 };
/* How keys and values are stored; PackedKV of engine/cache/stores/packed.py describes each. PLAIN is bfloat16. */
enum { PLAIN, INT8, FP8, INT4, KIVI };

typedef struct {
    const uint8_t *k, *v;
    const uint16_t *k_meta, *v_meta;                 /* float16; NULL for PLAIN */
    const int32_t *pages;                            /* page numbers, row after row of the page table */
    const int64_t (*rows)[3];                        /* for each row: where its pages begin, and its keys [first, stop) */
    int64_t count, heads, kv_heads;                  /* of rows, query heads and KV heads */
    int64_t k_width, v_width;                        /* numbers of a key and of a value */
    int64_t k_slot, k_head, v_slot, v_head;          /* bytes from one slot, and from one KV head, to the next */
    int64_t kind, k_bits, v_bits;
    int64_t wide;  /* whether q and out are float32; else they are bfloat16 */
    int64_t q_row; /* bytes from one row's queries to the next's */
    float scale, softcap; /* a scaled score x becomes softcap * tanh(x / softcap) where that is above 0 */
    const void *q; /* [count, heads, k_width], its rows q_row bytes apart */
    void *out;     /* [count, heads, v_width] */
    float *lse;    /* [count, heads], the log of the sum of exponentiated scores; or NULL */
    const int64_t (*trees)[2]; /* for each row: the first key of its drafted tree, and which of the keys from there on it
                                  sees, a bit each (-1: all); NULL: there are no trees */
} Attend;

/* One head (``head`` counts them over all rows) over the first ``count`` keys of some pages, into its result. Nonzero where
 * memory ran out. */
int attend_pages(const Attend *a, const int32_t *pages, int64_t count, int64_t kv_head, int64_t head);

/* Scores x become cap * tanh(x / cap); behind them up to a whole vector there are zeros then. */
void cap_scores(float *scores, int64_t count, float cap);

/* The query of a head, which ``head`` counts over all rows. */
INLINE const void *query_at(const Attend *a, int64_t head) {
    return (const char *)a->q + head / a->heads * a->q_row + head % a->heads * a->k_width * (a->wide ? 4 : 2);
}

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The row's tree; NULL where it sees all of its keys. */
INLINE const int64_t *tree_of(const Attend *a, int64_t row) { return a->trees && a->trees[row][1] != -1 ? a->trees[row] : NULL; }
/* Places after ``at`` of keys that a row may not see begin here; and whether it sees one of these. */
INLINE int64_t unseen_from(const int64_t *tree, int64_t at) { return tree[0] > at ? tree[0] - at : 0; }
INLINE int sees(const int64_t *tree, int64_t key) { return (int)(tree[1] >> (key - tree[0]) & 1); }

/* Loops over sums must become straight code, or these are not held in registers. */
#define UNROLL _Pragma("GCC unroll 16")
