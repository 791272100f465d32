/* Attention of single rows over paged keys and values: what attention.c, attention_packed.c and quest.c share.
 *
 * A row's keys are cut into parts at multiples of PART from its sequence's start, and a part into stretches; the sums so
 * far are rescaled when a larger score appears (Milakov and Gimelshein 2018). Where a row is cut depends on its keys
 * alone, so that neither other rows nor the number of threads change its bits.
 */
#pragma once
#include "simd.h"

enum { PAGE = 16, STRETCH = 128, PART = 512, HEADS_AT_ONCE = HELD / 2, HEADS_A_TASK = 16 };
enum { WIDEST_KEY = 576, WIDEST_PACKED = 256 };
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
    int64_t wide; /* whether q and out are float32; else they are bfloat16 */
    float scale;
    const void *q; /* [count, heads, k_width] */
    void *out;     /* [count, heads, v_width] */
    float *lse;    /* [count, heads], the log of the sum of exponentiated scores; or NULL */
    const int64_t (*trees)[2]; /* for each row: the first key of its drafted tree, and which of the keys from there on it
                                  sees, a bit each (-1: all); NULL: there are no trees */
} Attend;

/* What one task does: some query heads of a row, which share a KV head, over some of its keys. */
typedef struct {
    const int32_t *pages;   /* of the row */
    int64_t first, stop;    /* keys, within one part */
    int64_t last;           /* of all keys of the row; those behind this part are fetched ahead */
    int64_t kv_head, heads; /* heads: how many query heads */
    const float *q;         /* [heads, k_width]; for PLAIN see ``apart`` */
    float *sums;            /* [heads, v_width]: values weighted by e^(score - top); for PLAIN apart */
    float *top, *total;     /* [heads]: the largest score, and the sum of the weights */
    const int64_t *tree;    /* of the row, see Attend; NULL: it sees all of these keys */
} Part;

void attend_plain(const Attend *a, const Part *part);
void attend_packed(const Attend *a, const Part *part);

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t slot_of(const Part *part, int64_t key) { return (int64_t)part->pages[key / PAGE] * PAGE + key % PAGE; }
/* Query heads that share each read of a key, out of ``left``; and keys that go with so many, so that HELD sums are held. */
INLINE int heads_now(int64_t left, int most) { return left >= most ? most : left >= 4 ? 4 : (int)left; }
INLINE int keys_with(int heads) { return HELD / (heads == 3 ? 4 : heads); }

/* Numbers apart: of each 2 * LANES those of even places, then those of odd ones, as a vector of words of bfloat16 is
 * widened. */
INLINE void take_apart(float *numbers, int64_t width) {
    for (int64_t d = 0; d < width; d += 2 * LANES) {
        float pairs[2 * LANES];
        memcpy(pairs, numbers + d, sizeof pairs);
        for (int i = 0; i < LANES; i++) numbers[d + i] = pairs[2 * i], numbers[d + LANES + i] = pairs[2 * i + 1];
    }
}
INLINE void put_together(float *numbers, int64_t width) {
    for (int64_t d = 0; d < width; d += 2 * LANES) {
        float halves[2 * LANES];
        memcpy(halves, numbers + d, sizeof halves);
        for (int i = 0; i < LANES; i++) numbers[d + 2 * i] = halves[i], numbers[d + 2 * i + 1] = halves[LANES + i];
    }
}

/* Queries of some heads from ``head`` on (counted over all rows) as Part takes them. */
INLINE void read_queries(const Attend *a, int64_t head, int64_t heads, float *q) {
    for (int64_t i = 0, at = head * a->k_width; i < heads * a->k_width; i += LANES)
        put_floats(q + i, a->wide ? floats_at((const float *)a->q + at + i) : bfloat16_at((const uint16_t *)a->q + at + i));
    if (a->kind == PLAIN) take_apart(q, heads * a->k_width);
}

/* Sums of one head, as Part has them, divided by their weights' ``total`` become its result; they are overwritten. */
INLINE void write_result(const Attend *a, int64_t head, float *sums, float total) {
    if (a->kind == PLAIN) put_together(sums, a->v_width);
    for (int64_t d = 0, at = head * a->v_width; d < a->v_width; d += LANES) {
        const Floats result = floats_at(sums + d) / total;
        if (a->wide)
            put_floats((float *)a->out + at + d, result);
        else
            put_bfloat16((uint16_t *)a->out + at + d, result);
    }
}

/* Loops over sums must become straight code, or these are not held in registers. */
#define UNROLL _Pragma("GCC unroll 16")

/* Where the keys and values of a stretch are, and the keys of the stretch after it; keys[] goes on to a multiple of 16. */
typedef struct {
    int now;
    int64_t first; /* key */
    const uint16_t *keys[STRETCH], *values[STRETCH], *next[STRETCH];
} Stretch;

INLINE Words pairs_at(const uint16_t *p) {
    Words result;
    memcpy(&result, p, sizeof result);
    return result;
}

/* Sums of ``heads`` query heads times keys_with(heads) keys each, head after head, as numbers. */
INLINE void add_up(const Floats *sum, float *all) {
    for (int i = 0; i < HELD; i += LANES) put_floats(all + i, sums_of(sum + i));
}

/* scores[h][i] of the keys of a stretch for ``heads`` (a constant after inlining) query heads. ``ahead``: values are
 * fetched meanwhile, since no processor foresees on which pages they are. Queries that were given in bfloat16 are words
 * again where a processor multiplies these, which takes a third less time for the 16 heads that share a latent. */
INLINE void score(const int heads, const Attend *a, const float *q, const Stretch *s, int ahead, float (*scores)[STRETCH]) {
    const int lot = keys_with(heads);
#ifdef __AVX512BF16__
    Words queries[HEADS_AT_ONCE][WIDEST_KEY / 32];
    for (int h = 0; h < heads && !a->wide; h++)
        for (int64_t d = 0; d < a->k_width; d += 2 * LANES) {
            const Words lower = (Words)floats_at(q + h * a->k_width + d);
            queries[h][d / 32] = lower >> 16 | (Words)floats_at(q + h * a->k_width + d + LANES);
        }
#endif
    for (int i = 0; i < s->now; i += lot) {
        for (int j = 0; ahead && j < lot && i + j < s->now; j++)
            for (int64_t d = 0; d < a->v_width; d += 32) __builtin_prefetch(s->values[i + j] + d);
        Floats sum[HELD];
        UNROLL for (int j = 0; j < HELD; j++) sum[j] = (Floats){0};
        for (int64_t d = 0; d < a->k_width; d += 2 * LANES)
#ifdef __AVX512BF16__
            if (!a->wide) {
                UNROLL for (int j = 0; j < lot; j++) {
                    const Words key = pairs_at(s->keys[i + j] + d);
                    UNROLL for (int h = 0; h < heads; h++) {
                        Floats *to = sum + h * lot + j;
                        *to = (Floats)_mm512_dpbf16_ps((__m512)*to, (__m512bh)key, (__m512bh)queries[h][d / 32]);
                    }
                }
            } else
#endif
            UNROLL for (int j = 0; j < lot; j++) {
                const Words key = pairs_at(s->keys[i + j] + d);
                UNROLL for (int h = 0; h < heads; h++) {
                    Floats *to = sum + h * lot + j;
                    *to += lower_numbers(key) * floats_at(q + h * a->k_width + d);
                    *to += upper_numbers(key) * floats_at(q + h * a->k_width + d + LANES);
                }
            }
        float all[HELD];
        add_up(sum, all);
        for (int h = 0; h < heads; h++)
            for (int j = 0; j < lot; j++) scores[h][i + j] = all[h * lot + j] * a->scale;
    }
}

/* The score of a key that a row of a tree does not see: its weight is 0 beside any other's. (Not infinite: of a part's keys
 * all may be such.) */
static const float UNSEEN = -1e38f;

/* Scores of the keys from ``at`` on, without those that the row of a tree does not see. */
INLINE void leave_out(const Part *part, int64_t at, int now, float *scores) {
    if (!part->tree || part->tree[1] == -1) return;
    for (int64_t i = part->tree[0] > at ? part->tree[0] - at : 0; i < now; i++)
        if (!(part->tree[1] >> (at + i - part->tree[0]) & 1)) scores[i] = UNSEEN;
}

/* Scores of one head become weights against the largest score so far; the ``size`` sums so far follow it. */
INLINE void weigh(float *scores, int now, float *top, float *total, float *sums, int64_t size) {
    for (int i = now; i % LANES; i++) scores[i] = -INFINITY;
    Floats largest = every_float(*top), sum = {0};
    for (int i = 0; i < now; i += LANES) {
        const Floats x = floats_at(scores + i);
        largest = chosen(largest < x, x, largest);
    }
    const float before = *top, after = largest_lane(largest);
    for (int i = 0; i < now; i += LANES) {
        const Floats weight = exponential(floats_at(scores + i) - after);
        put_floats(scores + i, weight);
        sum += weight;
    }
    float kept = 1;
    if (after != before) {
        kept = exponential(every_float(before - after))[0];
        for (int64_t d = 0; d < size; d += LANES) put_floats(sums + d, floats_at(sums + d) * kept);
    }
    *top = after;
    *total = *total * kept + sum_of_lanes(sum);
}
