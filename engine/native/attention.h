/* Attention of single rows over paged keys and values: what attention.c, attention_packed.c and quest.c share.
 *
 * A row's keys are cut into parts at multiples of PART from its sequence's start, and a part into stretches; the sums so
 * far are rescaled when a larger score appears (Milakov and Gimelshein 2018). Where a row is cut depends on its keys
 * alone, so that neither other rows nor the number of threads change its bits.
 */
#pragma once
#include "native.h"

enum { PAGE = 16, STRETCH = 128, PART = 512, LANES = 16, HEADS_AT_ONCE = 8, HEADS_A_TASK = 16, META_GROUPS = 16 };
enum { WIDEST_KEY = 576, WIDEST_PACKED = 256 };
/* How keys and values are stored; PackedKV of engine/cache/stores/packed.py describes each. PLAIN is bfloat16. */
enum { PLAIN, INT8, INT4, KIVI };

typedef struct {
    const uint8_t *k, *v;
    const uint16_t *k_meta, *v_meta;                 /* float16; NULL for PLAIN */
    const int32_t *pages;                            /* page numbers, row after row of the page table */
    const int64_t (*rows)[3];                        /* for each row: where its pages begin, and its keys [first, stop) */
    int64_t count, heads, kv_heads;                  /* of rows, query heads and KV heads */
    int64_t k_width, v_width;                        /* numbers of a key and of a value */
    int64_t k_slot, k_head, v_slot, v_head;          /* bytes from one slot, and from one KV head, to the next */
    int64_t kind, k_bits, v_bits;
    float scale;
    const uint16_t *q; /* [count, heads, k_width] */
    uint16_t *out;     /* [count, heads, v_width] */
    float *lse;        /* [count, heads], the log of the sum of exponentiated scores; or NULL */
} Attend;

/* What one task does: some query heads of a row, which share a KV head, over some of its keys. */
typedef struct {
    const int32_t *pages;   /* of the row */
    int64_t first, stop;    /* keys, within one part */
    int64_t last;           /* of all keys of the row; those behind this part are fetched ahead */
    int64_t kv_head, heads; /* heads: how many query heads */
    const uint16_t *q;      /* [heads, k_width] */
    float *sums;            /* [heads, v_width]: values weighted by e^(score - top) */
    float *top, *total;     /* [heads]: the largest score, and the sum of the weights */
} Part;

#ifdef __AVX512BF16__

void attend_plain(const Attend *a, const Part *part);
void attend_packed(const Attend *a, const Part *part);

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t slot_of(const Part *part, int64_t key) { return (int64_t)part->pages[key / PAGE] * PAGE + key % PAGE; }
/* Query heads that share each read of a key, out of ``left``; and keys that go with so many, so that 16 sums are held. */
INLINE int heads_now(int64_t left, int most) { return left >= most ? most : left >= 4 ? 4 : (int)left; }
INLINE int keys_with(int heads) { return heads == 1 ? 16 : heads == 2 ? 8 : heads <= 4 ? 4 : 2; }

/* e^x for x <= 0, to about 2 units in the last place (Cody and Waite's reduction, a polynomial of degree 6). */
INLINE __m512 exponential(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-87.0f), x); /* in this order NaN stays NaN */
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.3888889e-3f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3333333e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1666667e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666667e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

INLINE __m512 four_by_lane(__m512 a, __m512 b, __m512 c, __m512 d) {
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}

/* Lane i is the sum of the lanes of v[i], added in the same order for every i. */
INLINE __m512 sums_of(const __m512 *v) {
    const __m512 a = four_by_lane(v[0], v[1], v[2], v[3]), b = four_by_lane(v[4], v[5], v[6], v[7]);
    const __m512 c = four_by_lane(v[8], v[9], v[10], v[11]), d = four_by_lane(v[12], v[13], v[14], v[15]);
    const __m512 x = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    const __m512 y = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xDD));
}

/* Where the keys and values of a stretch are, and the keys of the stretch after it; keys[] goes on to a multiple of 16. */
typedef struct {
    int now;
    const uint16_t *keys[STRETCH], *values[STRETCH], *next[STRETCH];
} Stretch;

/* scores[h][i] of the keys of a stretch for ``heads`` (a constant after inlining) query heads. ``ahead``: values are
 * fetched meanwhile, since no processor foresees on which pages they are. */
INLINE void score(const int heads, const Attend *a, const uint16_t *q, const Stretch *s, int ahead,
                         float (*scores)[STRETCH]) {
    const int lot = keys_with(heads);
    for (int i = 0; i < s->now; i += lot) {
        for (int j = 0; ahead && j < lot && i + j < s->now; j++)
            for (int64_t d = 0; d < a->v_width; d += 32) _mm_prefetch((const char *)(s->values[i + j] + d), _MM_HINT_T0);
        __m512 sum[16];
        for (int j = 0; j < 16; j++) sum[j] = _mm512_setzero_ps();
        for (int64_t d = 0; d < a->k_width; d += 32) {
            __m512bh key[16];
            for (int j = 0; j < lot; j++) key[j] = (__m512bh)_mm512_loadu_si512(s->keys[i + j] + d);
            for (int h = 0; h < heads; h++) {
                const __m512bh query = (__m512bh)_mm512_loadu_si512(q + h * a->k_width + d);
                for (int j = 0; j < lot; j++) sum[h * lot + j] = _mm512_dpbf16_ps(sum[h * lot + j], key[j], query);
            }
        }
        float all[16];
        _mm512_storeu_ps(all, _mm512_mul_ps(sums_of(sum), _mm512_set1_ps(a->scale)));
        for (int h = 0; h < heads; h++) memcpy(scores[h] + i, all + h * lot, lot * sizeof(float));
    }
}

/* Scores of one head become weights against the largest score so far; the ``size`` sums so far follow it. */
INLINE void weigh(float *scores, int now, float *top, float *total, float *sums, int64_t size) {
    for (int i = now; i < (now + 15) / 16 * 16; i++) scores[i] = -INFINITY;
    __m512 largest = _mm512_set1_ps(*top);
    for (int i = 0; i < now; i += 16) largest = _mm512_max_ps(largest, _mm512_loadu_ps(scores + i));
    const float before = *top, after = _mm512_reduce_max_ps(largest);
    __m512 sum = _mm512_setzero_ps();
    for (int i = 0; i < now; i += 16) {
        const __m512 x = _mm512_loadu_ps(scores + i);
        const __mmask16 real = now - i >= 16 ? 0xFFFF : (__mmask16)((1u << (now - i)) - 1);
        const __m512 weight = _mm512_maskz_mov_ps(real, exponential(_mm512_sub_ps(x, _mm512_set1_ps(after))));
        _mm512_storeu_ps(scores + i, weight);
        sum = _mm512_add_ps(sum, weight);
    }
    float kept = 1;
    if (after != before) {
        kept = _mm512_cvtss_f32(exponential(_mm512_set1_ps(before - after)));
        if (before == -INFINITY) kept = 0;
        for (int64_t d = 0; d < size; d += 16)
            _mm512_storeu_ps(sums + d, _mm512_mul_ps(_mm512_loadu_ps(sums + d), _mm512_set1_ps(kept)));
    }
    *top = after;
    *total = *total * kept + _mm512_reduce_add_ps(sum);
}
#endif
