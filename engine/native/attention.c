/* Attention of single rows over paged keys and values: decoding, and checking a few drafted tokens.
 *
 * Here are keys and values in bfloat16, and the tasks of all kinds: one is a row, up to 16 query heads that share a KV
 * head, and a part of its keys. A row's parts are merged in their order. Scores, weights and sums are float32.
 */
#include "attention.h"

/* Products of keys and queries below which a second thread costs more than it gives. */
enum { WORTH_A_THREAD = 1 << 17 };

#if defined(__x86_64__)

/* scores[h][i] of ``now`` keys for ``heads`` (a constant after inlining) query heads; keys[] goes on to a multiple of 16. */
AVX512 INLINE void score(const int heads, const Attend *a, const uint16_t *q, const uint16_t *const *keys, int now,
                         float (*scores)[STRETCH]) {
    const int lot = keys_with(heads);
    for (int i = 0; i < now; i += lot) {
        __m512 sum[16];
        for (int j = 0; j < 16; j++) sum[j] = _mm512_setzero_ps();
        for (int64_t d = 0; d < a->k_width; d += 32) {
            __m512bh key[16];
            for (int j = 0; j < lot; j++) key[j] = (__m512bh)_mm512_loadu_si512(keys[i + j] + d);
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

/* sums[h] += weights[h] times the values of ``now`` keys. */
AVX512 INLINE void gather(const int heads, const Attend *a, const uint16_t *const *values, int now,
                          const float (*weights)[STRETCH], float *sums) {
    for (int64_t d = 0; d < a->v_width; d += 32) {
        __m512 low[HEADS_AT_ONCE], high[HEADS_AT_ONCE];
        for (int h = 0; h < heads; h++) {
            low[h] = _mm512_loadu_ps(sums + h * a->v_width + d);
            high[h] = _mm512_loadu_ps(sums + h * a->v_width + d + 16);
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
            _mm512_storeu_ps(sums + h * a->v_width + d, low[h]);
            _mm512_storeu_ps(sums + h * a->v_width + d + 16, high[h]);
        }
    }
}

AVX512 INLINE void attend_heads(const int heads, const Attend *a, const Part *part, int64_t h0,
                                const uint16_t *const *keys, const uint16_t *const *values, int now) {
    float scores[HEADS_AT_ONCE][STRETCH], *sums = part->sums + h0 * a->v_width;
    score(heads, a, part->q + h0 * a->k_width, keys, now, scores);
    for (int h = 0; h < heads; h++)
        weigh(scores[h], now, part->top + h0 + h, part->total + h0 + h, sums + h * a->v_width, a->v_width);
    gather(heads, a, values, now, (const float(*)[STRETCH])scores, sums);
}

/* Query heads take turns at each stretch of keys, which stays in the processor's cache. */
AVX512 static void attend_plain(const Attend *a, const Part *part) {
    for (int64_t at = part->first, end; at < part->stop; at = end) {
        end = smaller((at / STRETCH + 1) * STRETCH, part->stop);
        const int now = (int)(end - at);
        const uint16_t *keys[STRETCH], *values[STRETCH];
        for (int i = 0; i < now; i++) {
            const int64_t slot = slot_of(part, at + i);
            keys[i] = (const uint16_t *)(a->k + slot * a->k_slot + part->kv_head * a->k_head);
            values[i] = (const uint16_t *)(a->v + slot * a->v_slot + part->kv_head * a->v_head);
        }
        for (int i = now; i % 16; i++) keys[i] = keys[now - 1];
        for (int64_t h = 0; h < part->heads; h += heads_now(part->heads - h, HEADS_AT_ONCE))
            switch (heads_now(part->heads - h, HEADS_AT_ONCE)) {
            case 1: attend_heads(1, a, part, h, keys, values, now); break;
            case 2: attend_heads(2, a, part, h, keys, values, now); break;
            case 3: attend_heads(3, a, part, h, keys, values, now); break;
            case 4: attend_heads(4, a, part, h, keys, values, now); break;
            default: attend_heads(8, a, part, h, keys, values, now);
            }
    }
}

/* Keys [first, stop) of a row, within one part, and where their results go: those of all its query heads. */
typedef struct {
    int64_t row, first, stop;
    float *sums, *top, *total;
} Piece;

AVX512 static void attend_task(const Attend *a, const Piece *piece, int64_t kv_head, int64_t chunk) {
    const int64_t group = a->heads / a->kv_heads, head = kv_head * group + chunk * HEADS_A_TASK;
    const Part part = {
        .pages = a->pages + a->rows[piece->row][0],
        .first = piece->first,
        .stop = piece->stop,
        .kv_head = kv_head,
        .heads = smaller(group - chunk * HEADS_A_TASK, HEADS_A_TASK),
        .q = a->q + (piece->row * a->heads + head) * a->k_width,
        .sums = piece->sums + head * a->v_width,
        .top = piece->top + head,
        .total = piece->total + head,
    };
    for (int64_t h = 0; h < part.heads; h++) part.top[h] = -INFINITY, part.total[h] = 0;
    memset(part.sums, 0, part.heads * a->v_width * sizeof(float));
    if (a->kind == PLAIN)
        attend_plain(a, &part);
    else
        attend_packed(a, &part);
}

/* One head's result from the row's ``count`` parts, in their order: ``step`` floats lie between two parts' numbers. */
AVX512 static void finish(const Attend *a, const Piece *piece, int64_t count, int64_t step, int64_t head) {
    const float *top = piece->top + head, *total = piece->total + head, *sums = piece->sums + head * a->v_width;
    float most = -INFINITY, all = 0, weights[count + 1];
    for (int64_t i = 0; i < count; i++) most = top[i * step] > most || top[i * step] != top[i * step] ? top[i * step] : most;
    for (int64_t i = 0; i < count; i++) {
        weights[i] = top[i * step] == most ? 1 : _mm512_cvtss_f32(exponential(_mm512_set1_ps(top[i * step] - most)));
        all += weights[i] * total[i * step];
    }
    uint16_t *out = a->out + (piece->row * a->heads + head) * a->v_width;
    for (int64_t d = 0; d < a->v_width; d += 16) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t i = 0; i < count; i++)
            sum = _mm512_fmadd_ps(_mm512_set1_ps(weights[i]), _mm512_loadu_ps(sums + i * step + d), sum);
        if (count) sum = _mm512_div_ps(sum, _mm512_set1_ps(all));
        _mm256_storeu_si256((__m256i *)(out + d), (__m256i)_mm512_cvtneps_pbh(sum));
    }
    if (a->lse) a->lse[piece->row * a->heads + head] = count ? most + logf(all) : -INFINITY;
}

INLINE int64_t parts_of(const Attend *a, int64_t row) {
    const int64_t first = a->rows[row][1], stop = a->rows[row][2];
    return stop > first ? (stop - 1) / PART - first / PART + 1 : 0;
}

/* out [count, heads, v_width] = attention of q [count, heads, k_width] to each row's keys; zero for a row without any.
 * 1 where memory ran out. */
EXPORT int attend_rows(const Attend *a, int threads) {
    int64_t work = 0, pieces = 0, most = 0;
    for (int64_t row = 0; row < a->count; row++) {
        pieces += parts_of(a, row);
        if (!parts_of(a, row)) continue;
        work += (a->rows[row][2] - a->rows[row][1]) * a->heads * a->k_width;
        if (a->rows[row][2] > most) most = a->rows[row][2];
    }
    const int64_t floats = a->heads * (a->v_width + 2), chunks = (a->heads / a->kv_heads + HEADS_A_TASK - 1) / HEADS_A_TASK;
    const size_t sizes[] = {pieces * sizeof(Piece), a->count * sizeof(Piece), pieces * floats * sizeof(float)};
    Piece *piece = scratch(sizes[0] + sizes[1] + sizes[2]), *begins = piece + pieces;
    if (!piece) return 1;
    float *results = (float *)(begins + a->count);
    for (int64_t row = 0, at = 0; row < a->count; at += parts_of(a, row++)) {
        float *sums = results + at * floats;
        begins[row] = (Piece){row, 0, 0, sums, sums + a->heads * a->v_width, sums + a->heads * (a->v_width + 1)};
    }
    /* Rows of one sequence follow each other over the same keys. */
    for (int64_t p = 0, n = 0; p * PART < most; p++)
        for (int64_t row = 0; row < a->count; row++) {
            const int64_t first = a->rows[row][1], stop = a->rows[row][2], skip = (p - first / PART) * floats;
            if (!parts_of(a, row) || p < first / PART || p * PART >= stop) continue;
            const Piece *b = begins + row;
            const int64_t begin = p * PART > first ? p * PART : first;
            piece[n++] = (Piece){row, begin, smaller((p + 1) * PART, stop), b->sums + skip, b->top + skip, b->total + skip};
        }
    const int64_t tasks = pieces * a->kv_heads * chunks;
#pragma omp parallel num_threads(work < WORTH_A_THREAD ? 1 : threads)
    {
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++)
            attend_task(a, piece + task % pieces, task / pieces / chunks, task / pieces % chunks);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < a->count * a->heads; i++)
            finish(a, begins + i / a->heads, parts_of(a, i / a->heads), floats, i % a->heads);
    }
    return 0;
}
#else
EXPORT int attend_rows(const Attend *a, int threads) {
    (void)a, (void)threads;
    return 1;
}
#endif
