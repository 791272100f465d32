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

/* The sums and the largest scores of all keys become outputs and lse. */
AVX512 INLINE void finish(const int heads, const Attend *a, const float *sums, const float *top, const float *total,
                          uint16_t *out, float *lse) {
    for (int h = 0; lse && h < heads; h++) lse[h] = total[h] ? top[h] + logf(total[h]) : -INFINITY;
    for (int h = 0; h < heads; h++)
        for (int64_t d = 0; d < a->width; d += 16) {
            const __m512 sum = _mm512_loadu_ps(sums + h * a->width + d);
            const __m512 result = total[h] ? _mm512_div_ps(sum, _mm512_set1_ps(total[h])) : _mm512_setzero_ps();
            _mm256_storeu_si256((__m256i *)(out + h * a->width + d), (__m256i)_mm512_cvtneps_pbh(result));
        }
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
    finish(heads, a, sums, top, total, out, lse);
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

/* QUEST (engine/attention/quest.py): each query head reads the pages that may hold its highest scores, and the last. */
typedef struct {
    Attend attend;          /* its rows: where a row's pages begin, how many of them each head reads, its keys' stop */
    const uint16_t *bounds; /* [pages, kv_heads, 2 * width]: of each channel the least key of a page, then the greatest */
} Quest;

/* The order of scores, and among equals of pages from the last to the first. */
INLINE uint64_t rank_of(float score, int64_t page) {
    uint32_t bits;
    score += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &score, 4);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (UINT32_MAX - (uint32_t)page);
}

/* The least of the ``wanted`` highest ranks: of a heap of so many, the root. */
static uint64_t least_of_best(const float *scores, int64_t pages, uint64_t *heap, int64_t wanted) {
    for (int64_t page = 0; page < pages; page++) {
        const uint64_t rank = rank_of(scores[page], page);
        int64_t at;
        if (page < wanted) { /* up from the end */
            for (at = page; at && heap[(at - 1) / 2] > rank; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
        } else if (rank > heap[0]) { /* down from the root, whose rank is dropped */
            int64_t child;
            for (at = 0; (child = 2 * at + 1) < wanted; at = child) {
                if (child + 1 < wanted && heap[child + 1] < heap[child]) child++;
                if (heap[child] >= rank) break;
                heap[at] = heap[child];
            }
        } else
            continue;
        heap[at] = rank;
    }
    return heap[0];
}

/* scores[h * ranked + page]: what no key of a page exceeds, as min(q, 0) and max(q, 0) times the page's bounds. */
AVX512 INLINE void rank_pages(const int heads, const Quest *z, const int32_t *pages, int64_t kv_head, const uint16_t *q,
                              int64_t ranked, float *scores) {
    const Attend *a = &z->attend;
    uint16_t parts[HEADS_AT_ONCE * 2 * WIDEST];
    Attend bounds = *a;
    bounds.width = 2 * a->width;
    bounds.scale = 1;
    for (int h = 0; h < heads; h++)
        for (int64_t d = 0; d < a->width; d++) {
            const uint16_t x = q[h * a->width + d];
            parts[h * bounds.width + d] = x >> 15 ? x : 0;
            parts[h * bounds.width + a->width + d] = x >> 15 ? 0 : x;
        }
    for (int64_t first = 0; first < ranked; first += STRETCH) {
        const int now = ranked - first < STRETCH ? (int)(ranked - first) : STRETCH;
        const uint16_t *keys[STRETCH];
        float found[HEADS_AT_ONCE][STRETCH];
        for (int i = 0; i < now; i++)
            keys[i] = z->bounds + ((int64_t)pages[first + i] * a->kv_heads + kv_head) * bounds.width;
        score(heads, &bounds, parts, keys, now, found);
        for (int h = 0; h < heads; h++) memcpy(scores + h * ranked + first, found[h], now * sizeof(float));
    }
}

/* One head over the keys of ``chosen`` pages (numbers of the arena), which are ``count``. */
AVX512 INLINE void attend_pages(const Attend *a, const int32_t *chosen, int64_t count, int64_t kv_head,
                                const uint16_t *q, uint16_t *out, float *lse) {
    const int64_t step = a->kv_heads * a->width, at = kv_head * a->width;
    float sums[WIDEST] = {0}, scores[1][STRETCH], top = -INFINITY, total = 0;
    for (int64_t first = 0; first < count; first += STRETCH) {
        const int now = count - first < STRETCH ? (int)(count - first) : STRETCH;
        const uint16_t *keys[STRETCH], *values[STRETCH];
        for (int i = 0; i < now; i++) {
            const int64_t slot = (int64_t)chosen[(first + i) / PAGE] * PAGE + (first + i) % PAGE;
            keys[i] = a->k + slot * step + at;
            values[i] = a->v + slot * step + at;
        }
        score(1, a, q, keys, now, scores);
        weigh(a, scores[0], now, &top, &total, sums);
        gather(1, a, values, now, scores, sums);
    }
    finish(1, a, sums, &top, &total, out, lse);
}

/* Up to four heads of one KV head. Nonzero where memory ran out. */
AVX512 static int quest_heads(const Quest *z, int64_t row, int64_t kv_head, int heads, const uint16_t *q, uint16_t *out,
                              float *lse) {
    const Attend *a = &z->attend;
    const int32_t *pages = a->pages + a->rows[row][0];
    const int64_t chosen = a->rows[row][1], stop = a->rows[row][2], ranked = (stop - 1) / PAGE;
    uint64_t *heap = scratch(chosen * (sizeof(uint64_t) + sizeof(int32_t)) + heads * ranked * sizeof(float));
    if (!heap) return 1;
    float *scores = (float *)(heap + chosen);
    int32_t *read = (int32_t *)(scores + heads * ranked);
    if (1 < chosen && chosen <= ranked) switch (heads) {
        case 1: rank_pages(1, z, pages, kv_head, q, ranked, scores); break;
        case 2: rank_pages(2, z, pages, kv_head, q, ranked, scores); break;
        case 3: rank_pages(3, z, pages, kv_head, q, ranked, scores); break;
        default: rank_pages(4, z, pages, kv_head, q, ranked, scores);
        }
    for (int h = 0; h < heads; h++) {
        int64_t count = 0;
        if (chosen > ranked) {
            for (; count < ranked; count++) read[count] = pages[count];
        } else if (chosen > 1) {
            const uint64_t least = least_of_best(scores + h * ranked, ranked, heap, chosen - 1);
            for (int64_t page = 0; page < ranked; page++)
                if (rank_of(scores[h * ranked + page], page) >= least) read[count++] = pages[page];
        }
        read[count] = pages[ranked];
        attend_pages(a, read, count * PAGE + stop - ranked * PAGE, kv_head, q + h * a->width, out + h * a->width, lse + h);
    }
    return 0;
}

/* As attend_bf16, for rows with chosen pages. Nonzero where memory ran out. */
EXPORT int quest_bf16(const Quest *z, const uint16_t *q, uint16_t *out, int threads) {
    const Attend *a = &z->attend;
    const int64_t group = a->heads / a->kv_heads, parts = (group + HEADS_AT_ONCE - 1) / HEADS_AT_ONCE;
    const int64_t tasks = a->count * a->kv_heads * parts;
    int failed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(| : failed)
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t row = task % a->count, part = task / a->count % parts, kv_head = task / a->count / parts;
        const int64_t rest = group - part * HEADS_AT_ONCE, head = row * a->heads + kv_head * group + part * HEADS_AT_ONCE;
        failed |= quest_heads(z, row, kv_head, rest < HEADS_AT_ONCE ? (int)rest : HEADS_AT_ONCE, q + head * a->width,
                              out + head * a->width, a->lse + head);
    }
    return failed;
}
#else
EXPORT void attend_bf16(const Attend *a, const uint16_t *q, uint16_t *out, int threads) {
    (void)a, (void)q, (void)out, (void)threads;
}
#endif
