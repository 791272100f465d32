/* Attention of single rows over paged keys and values in bfloat16: decoding, and checking a few drafted tokens.
 *
 * One task is one row and one KV head, with the query heads that share it. Keys go by in stretches, and the sums so far
 * are rescaled when a larger score appears (Milakov and Gimelshein 2018). Scores, weights and sums are float32. A
 * task's result depends on its row alone.
 */
#include "native.h"

enum { PAGE = 16, STRETCH = 128, HEADS_AT_ONCE = 4, WIDEST = 256 };
/* Products of keys and queries below which a second thread costs more than it gives. */
enum { WORTH_A_THREAD = 1 << 17 };

typedef struct {
    const uint16_t *k, *v;         /* [slots, kv_heads, width] */
    const int32_t *pages;          /* page numbers, row after row of the page table */
    const int64_t (*rows)[3];      /* for each row: where its pages begin, and its keys [first, stop) */
    int64_t count, heads, kv_heads, width;
    float scale;
    float *lse; /* [count, heads], the log of the sum of exponentiated scores; or NULL */
} Attend;

#if defined(__x86_64__)

/* e^x for x <= 0, to about 2 units in the last place (Cody and Waite's reduction, a polynomial of degree 6). */
AVX512 INLINE __m512 exponential(__m512 x) {
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

/* scores[h][i] of ``now`` keys for ``heads`` (a constant after inlining) query heads. */
AVX512 INLINE void score(const int heads, const Attend *a, const uint16_t *q, const uint16_t *const *keys, int now,
                         float (*scores)[STRETCH]) {
    for (int i = 0; i < now; i++) {
        __m512 sum[HEADS_AT_ONCE];
        for (int h = 0; h < heads; h++) sum[h] = _mm512_setzero_ps();
        for (int64_t d = 0; d < a->width; d += 32) {
            const __m512bh key = (__m512bh)_mm512_loadu_si512(keys[i] + d);
            for (int h = 0; h < heads; h++)
                sum[h] = _mm512_dpbf16_ps(sum[h], key, (__m512bh)_mm512_loadu_si512(q + h * a->width + d));
        }
        for (int h = 0; h < heads; h++) scores[h][i] = _mm512_reduce_add_ps(sum[h]) * a->scale;
    }
}

/* sums[h] += weights[h] times the values of ``now`` keys. */
AVX512 INLINE void gather(const int heads, const Attend *a, const uint16_t *const *values, int now,
                          const float (*weights)[STRETCH], float *sums) {
    for (int64_t d = 0; d < a->width; d += 32) {
        __m512 low[HEADS_AT_ONCE], high[HEADS_AT_ONCE];
        for (int h = 0; h < heads; h++) {
            low[h] = _mm512_loadu_ps(sums + h * a->width + d);
            high[h] = _mm512_loadu_ps(sums + h * a->width + d + 16);
        }
        for (int i = 0; i < now; i++) {
            const __m512i two = _mm512_loadu_si512(values[i] + d);
            const __m512i first = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(two));
            const __m512i second = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(two, 1));
            const __m512 a0 = _mm512_castsi512_ps(_mm512_slli_epi32(first, 16));
            const __m512 a1 = _mm512_castsi512_ps(_mm512_slli_epi32(second, 16));
            for (int h = 0; h < heads; h++) {
                const __m512 weight = _mm512_set1_ps(weights[h][i]);
                low[h] = _mm512_fmadd_ps(weight, a0, low[h]);
                high[h] = _mm512_fmadd_ps(weight, a1, high[h]);
            }
        }
        for (int h = 0; h < heads; h++) {
            _mm512_storeu_ps(sums + h * a->width + d, low[h]);
            _mm512_storeu_ps(sums + h * a->width + d + 16, high[h]);
        }
    }
}

/* Scores of one head become weights against the largest score so far; the sums so far follow it. */
AVX512 INLINE void weigh(const Attend *a, float *scores, int now, float *top, float *total, float *sums) {
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
        for (int64_t d = 0; d < a->width; d += 16)
            _mm512_storeu_ps(sums + d, _mm512_mul_ps(_mm512_loadu_ps(sums + d), _mm512_set1_ps(kept)));
    }
    *top = after;
    *total = *total * kept + _mm512_reduce_add_ps(sum);
}

AVX512 INLINE void attend_heads(const int heads, const Attend *a, int64_t row, int64_t kv_head, const uint16_t *q,
                                uint16_t *out, float *lse) {
    const int32_t *pages = a->pages + a->rows[row][0];
    const int64_t stop = a->rows[row][2], step = a->kv_heads * a->width, at = kv_head * a->width;
    float sums[HEADS_AT_ONCE * WIDEST] = {0}, scores[HEADS_AT_ONCE][STRETCH];
    float top[HEADS_AT_ONCE], total[HEADS_AT_ONCE] = {0};
    for (int h = 0; h < heads; h++) top[h] = -INFINITY;
    for (int64_t first = a->rows[row][1]; first < stop; first += STRETCH) {
        const int now = stop - first < STRETCH ? (int)(stop - first) : STRETCH;
        const uint16_t *keys[STRETCH], *values[STRETCH];
        for (int i = 0; i < now; i++) {
            const int64_t slot = (int64_t)pages[(first + i) / PAGE] * PAGE + (first + i) % PAGE;
            keys[i] = a->k + slot * step + at;
            values[i] = a->v + slot * step + at;
        }
        score(heads, a, q, keys, now, scores);
        for (int h = 0; h < heads; h++) weigh(a, scores[h], now, top + h, total + h, sums + h * a->width);
        gather(heads, a, values, now, scores, sums);
    }
    for (int h = 0; lse && h < heads; h++) lse[h] = total[h] ? top[h] + logf(total[h]) : -INFINITY;
    for (int h = 0; h < heads; h++)
        for (int64_t d = 0; d < a->width; d += 16) {
            const __m512 sum = _mm512_loadu_ps(sums + h * a->width + d);
            const __m512 result = total[h] ? _mm512_div_ps(sum, _mm512_set1_ps(total[h])) : _mm512_setzero_ps();
            _mm256_storeu_si256((__m256i *)(out + h * a->width + d), (__m256i)_mm512_cvtneps_pbh(result));
        }
}

AVX512 static void attend_task(const Attend *a, int64_t row, int64_t kv_head, const uint16_t *q, uint16_t *out) {
    const int64_t group = a->heads / a->kv_heads, begin = (row * a->heads + kv_head * group) * a->width;
    for (int64_t h = 0; h < group; h += HEADS_AT_ONCE) {
        const uint16_t *from = q + begin + h * a->width;
        uint16_t *to = out + begin + h * a->width;
        float *lse = a->lse ? a->lse + row * a->heads + kv_head * group + h : NULL;
        switch (group - h) {
        case 1: attend_heads(1, a, row, kv_head, from, to, lse); break;
        case 2: attend_heads(2, a, row, kv_head, from, to, lse); break;
        case 3: attend_heads(3, a, row, kv_head, from, to, lse); break;
        default: attend_heads(4, a, row, kv_head, from, to, lse);
        }
    }
}

/* out [count, heads, width] = attention of q, of the same shape, to each row's keys; zero for a row without any. */
EXPORT void attend_bf16(const Attend *a, const uint16_t *q, uint16_t *out, int threads) {
    int64_t work = 0;
    for (int64_t row = 0; row < a->count; row++) work += (a->rows[row][2] - a->rows[row][1]) * a->heads * a->width;
    const int64_t tasks = a->count * a->kv_heads;
#pragma omp parallel for schedule(dynamic) num_threads(work < WORTH_A_THREAD ? 1 : threads)
    for (int64_t task = 0; task < tasks; task++) /* rows of one sequence follow each other over the same keys */
        attend_task(a, task % a->count, task / a->count, q, out);
}
#else
EXPORT void attend_bf16(const Attend *a, const uint16_t *q, uint16_t *out, int threads) {
    (void)a, (void)q, (void)out, (void)threads;
}
#endif
