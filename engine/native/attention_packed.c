/* Attention of single rows over packed keys and values, which are read as they are. */
#include "attention_packed.h"

#ifdef __AVX512BF16__

enum { HEADS_PACKED = 4 };

/* scores[h] of ``now`` keys of a page, and of what follows them up to a multiple of keys_with(heads). ``meta`` is NULL where queries already carry the scales of channels; constants
 * after inlining: bits, heads, and whether meta is NULL. */
INLINE void score_page(const int bits, const int heads, const Layout *l, const float (*q)[WIDEST_PACKED],
                              const float *offset, const uint8_t *keys, int64_t step, const Meta *meta, int now,
                              float scale, float *scores) {
    const int lot = keys_with(heads), planes = 8 / bits;
    const __m512 table = table_of(bits);
    __m512 offsets = _mm512_setzero_ps();
    for (int h = 0; !meta && h < heads; h++)
        offsets = _mm512_mask_mov_ps(offsets, (__mmask16)(0xFFFF << h * lot), _mm512_set1_ps(offset[h]));
    for (int i = 0; i < now; i += lot) {
        __m512 sum[16];
        _Pragma("GCC unroll 16") for (int j = 0; j < 16; j++) sum[j] = _mm512_setzero_ps();
        for (int b = 0; b < l->blocks; b++) {
            const int whole = lanes_of(l, b) == 0xFFFF;
            _Pragma("GCC unroll 16") for (int j = 0; j < lot; j++) {
                const int token = i + j < now ? i + j : now - 1;
                const __m512i bytes = read_codes(bits, keys + token * step + b * LANES, whole);
                _Pragma("GCC unroll 16") for (int p = 0; p < planes; p++) {
                    __m512 key = code_of(bits, p, bytes, table);
                    if (bits != 8 && meta) {
                        const __m512i group = _mm512_loadu_si512(l->group[b * planes + p]);
                        key = _mm512_fmadd_ps(key, _mm512_permutexvar_ps(group, _mm512_loadu_ps(meta->scale[token])),
                                              _mm512_permutexvar_ps(group, _mm512_loadu_ps(meta->minimum[token])));
                    }
                    _Pragma("GCC unroll 16") for (int h = 0; h < heads; h++)
                        sum[h * lot + j] =
                            _mm512_fmadd_ps(key, _mm512_loadu_ps(q[h] + (b * planes + p) * LANES), sum[h * lot + j]);
                }
            }
        }
        __m512 all = sums_of(sum);
        if (bits == 8) { /* lane h * lot + j is key i + j of head h */
            const __m512 keys16 = _mm512_loadu_ps(meta->whole + i);
            const __m512i token = _mm512_and_si512(counting(), _mm512_set1_epi32(lot - 1));
            all = _mm512_mul_ps(all, lot == 16 ? keys16 : _mm512_permutexvar_ps(token, keys16));
        }
        if (!meta) all = _mm512_add_ps(all, offsets);
        float each[16];
        _mm512_storeu_ps(each, _mm512_mul_ps(all, _mm512_set1_ps(scale)));
        _Pragma("GCC unroll 16") for (int h = 0; h < heads; h++)
            memcpy(scores + h * STRETCH + i, each + h * lot, lot * sizeof(float));
    }
}

/* sums[h] += weights[h] times the values of ``now`` tokens of a page. */
INLINE void gather_page(const int bits, const int heads, const Layout *l, const uint8_t *values, int64_t step,
                               const Meta *meta, int now, const float *weights, float (*sums)[WIDEST_PACKED]) {
    const int planes = 8 / bits;
    const __m512 table = table_of(bits);
    float scaled[HEADS_PACKED][PAGE];
    _Pragma("GCC unroll 16") for (int h = 0; h < heads; h++) {
        const __m512 weight = _mm512_maskz_loadu_ps((__mmask16)((1u << now) - 1), weights + h * STRETCH);
        _mm512_storeu_ps(scaled[h], bits == 8 ? _mm512_mul_ps(weight, _mm512_loadu_ps(meta->whole)) : weight);
    }
    for (int b = 0; b < l->blocks; b++) {
        const int whole = lanes_of(l, b) == 0xFFFF;
        __m512 sum[HEADS_PACKED][4];
        __m512i group[4];
        _Pragma("GCC unroll 16") for (int p = 0; p < planes; p++) {
            group[p] = _mm512_loadu_si512(l->group[b * planes + p]);
            _Pragma("GCC unroll 16") for (int h = 0; h < heads; h++) sum[h][p] = _mm512_loadu_ps(sums[h] + (b * planes + p) * LANES);
        }
        for (int i = 0; i < now; i++) {
            const __m512i bytes = read_codes(bits, values + i * step + b * LANES, whole);
            _Pragma("GCC unroll 16") for (int p = 0; p < planes; p++) {
                __m512 value = code_of(bits, p, bytes, table);
                if (bits != 8)
                    value = _mm512_fmadd_ps(value, _mm512_permutexvar_ps(group[p], _mm512_loadu_ps(meta->scale[i])),
                                            _mm512_permutexvar_ps(group[p], _mm512_loadu_ps(meta->minimum[i])));
                _Pragma("GCC unroll 16") for (int h = 0; h < heads; h++)
                    sum[h][p] = _mm512_fmadd_ps(_mm512_set1_ps(scaled[h][i]), value, sum[h][p]);
            }
        }
        _Pragma("GCC unroll 16") for (int p = 0; p < planes; p++)
            _Pragma("GCC unroll 16") for (int h = 0; h < heads; h++) _mm512_storeu_ps(sums[h] + (b * planes + p) * LANES, sum[h][p]);
    }
}

/* Queries [heads, width] in bfloat16 as ``out``, float32 in the order of this file. */
INLINE void arrange(const int heads, const Layout *l, const uint16_t *q, int64_t width, float (*out)[WIDEST_PACKED]) {
    for (int h = 0; h < heads; h++)
        for (int b = 0; b < l->blocks; b++)
            for (int p = 0; p < l->planes; p++) {
                const __m256i some = _mm256_maskz_loadu_epi16(lanes_of(l, b), q + h * width + channel_of(l, b, p));
                const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(some), 16);
                _mm512_storeu_si512(out[h] + (b * l->planes + p) * LANES, wide);
            }
}

/* Queries that carry the scales of the channels, and their products with the minima, which all keys of a group of 32
 * tokens share (KIVI, arXiv 2402.02750). */
typedef struct {
    int64_t group; /* of the sequence's tokens; -1 before the first */
    float q[HEADS_PACKED][WIDEST_PACKED], offset[HEADS_PACKED];
} Carried;

/* ``scales`` and ``minima``: a page's row of a KV head, [width] each. */
INLINE void carry_scales(const int heads, const Layout *l, const uint16_t *scales, const uint16_t *minima,
                                const float (*q)[WIDEST_PACKED], Carried *out) {
    __m512 sum[HEADS_PACKED];
    for (int h = 0; h < heads; h++) sum[h] = _mm512_setzero_ps();
    for (int b = 0; b < l->blocks; b++)
        for (int p = 0; p < l->planes; p++) {
            const __m512 scale = halves(scales + channel_of(l, b, p), lanes_of(l, b));
            const __m512 minimum = halves(minima + channel_of(l, b, p), lanes_of(l, b));
            for (int h = 0; h < heads; h++) {
                const __m512 query = _mm512_loadu_ps(q[h] + (b * l->planes + p) * LANES);
                _mm512_storeu_ps(out->q[h] + (b * l->planes + p) * LANES, _mm512_mul_ps(query, scale));
                sum[h] = _mm512_fmadd_ps(query, minimum, sum[h]);
            }
        }
    for (int h = 0; h < heads; h++) out->offset[h] = _mm512_reduce_add_ps(sum[h]);
}

/* Ask for a page's codes, and the scales and minima of its tokens if they have their own. Parts of a page are fetched whole.
 */
INLINE void fetch_page(const uint8_t *codes, int64_t step, int64_t bytes, const uint16_t *meta, int64_t meta_step) {
    for (int i = 0; i < PAGE; i++) {
        for (int64_t b = 0; b < bytes; b += 64) _mm_prefetch((const char *)codes + i * step + b, _MM_HINT_T0);
        _mm_prefetch((const char *)codes + i * step + bytes - 1, _MM_HINT_T0);
        if (meta) _mm_prefetch((const char *)(meta + i * meta_step), _MM_HINT_T0);
    }
}

/* One page's keys [at, at + now) of a row. */
INLINE void score_one(const int kind, const int bits, const int heads, const Attend *a, const Part *part,
                             const Layout *l, const float (*q)[WIDEST_PACKED], Carried *carried, int64_t at, int now,
                             float *scores) {
    const int64_t slot = slot_of(part, at);
    const uint8_t *keys = a->k + slot * a->k_slot + part->kv_head * a->k_head;
    if (kind == KIVI) {
        if (carried->group != at / (2 * PAGE)) {
            carried->group = at / (2 * PAGE);
            const int32_t *pair = part->pages + carried->group * 2;
            const uint16_t *meta = a->k_meta + part->kv_head * a->k_width;
            const int64_t page = a->kv_heads * a->k_width;
            carry_scales(heads, l, meta + pair[0] * page, meta + pair[1] * page, q, carried);
        }
        score_page(bits, heads, l, (const float(*)[WIDEST_PACKED])carried->q, carried->offset, keys, a->k_slot, NULL, now,
                   a->scale, scores);
        return;
    }
    Meta meta;
    read_meta(bits, a->k_meta, slot, a->kv_heads, part->kv_head, a->k_width, now, &meta);
    score_page(bits, heads, l, q, NULL, keys, a->k_slot, &meta, now, a->scale, scores);
}

/* The page of token ``at``; for the next query heads it is there already. */
INLINE void fetch_values(const int bits, const Attend *a, const Part *part, int64_t at) {
    const int64_t slot = slot_of(part, at / PAGE * PAGE), step = a->kv_heads * (bits == 8 ? 1 : a->v_width / GROUP * 2);
    fetch_page(a->v + slot * a->v_slot + part->kv_head * a->v_head, a->v_slot, a->v_head,
               a->v_meta + slot * step + part->kv_head * (step / a->kv_heads), step);
}

INLINE void fetch_keys(const int kind, const int bits, const Attend *a, const Part *part, int64_t at) {
    const int64_t slot = slot_of(part, at / PAGE * PAGE), step = a->kv_heads * (bits == 8 ? 1 : a->k_width / GROUP * 2);
    fetch_page(a->k + slot * a->k_slot + part->kv_head * a->k_head, a->k_slot, a->k_head,
               kind == KIVI ? NULL : a->k_meta + slot * step + part->kv_head * (step / a->kv_heads), step);
}

INLINE void attend_heads(const int kind, const int k_bits, const int v_bits, const int heads, const Attend *a,
                                const Part *part, int64_t h0, const Layout *k, const Layout *v) {
    float q[HEADS_PACKED][WIDEST_PACKED], sums[HEADS_PACKED][WIDEST_PACKED] = {0};
    float scores[HEADS_PACKED][STRETCH], *top = part->top + h0, *total = part->total + h0;
    Carried carried;
    carried.group = -1;
    arrange(heads, k, part->q + h0 * a->k_width, a->k_width, q);
    for (int64_t first = part->first, stop; first < part->stop; first = stop) {
        stop = smaller((first / STRETCH + 1) * STRETCH, part->stop);
        for (int64_t at = first, end; at < stop; at = end) {
            end = smaller((at / PAGE + 1) * PAGE, stop);
            if (!h0) fetch_values(v_bits, a, part, at);
            score_one(kind, k_bits, heads, a, part, k, (const float(*)[WIDEST_PACKED])q, &carried, at, (int)(end - at),
                      scores[0] + (at - first));
        }
        for (int h = 0; h < heads; h++) weigh(scores[h], (int)(stop - first), top + h, total + h, sums[h], WIDEST_PACKED);
        for (int64_t at = first, end; at < stop; at = end) {
            end = smaller((at / PAGE + 1) * PAGE, stop);
            Meta meta;
            const int64_t slot = slot_of(part, at);
            if (!h0 && at + STRETCH <= part->last) fetch_keys(kind, k_bits, a, part, at + STRETCH);
            read_meta(v_bits, a->v_meta, slot, a->kv_heads, part->kv_head, a->v_width, (int)(end - at), &meta);
            gather_page(v_bits, heads, v, a->v + slot * a->v_slot + part->kv_head * a->v_head, a->v_slot, &meta,
                        (int)(end - at), scores[0] + (at - first), sums);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int b = 0; b < v->blocks; b++)
            for (int p = 0; p < v->planes; p++)
                _mm512_mask_storeu_ps(part->sums + (h0 + h) * a->v_width + channel_of(v, b, p), lanes_of(v, b),
                                      _mm512_loadu_ps(sums[h] + (b * v->planes + p) * LANES));
}

/* Every kind and number of heads is a function of its own. */
#define SOME_HEADS(name, kind, k_bits, v_bits, heads)                                                                     \
    static void name##_##heads(const Attend *a, const Part *part, int64_t h0, const Layout *k, const Layout *v) { \
        attend_heads(kind, k_bits, v_bits, heads, a, part, h0, k, v);                                                     \
    }
#define ALL_HEADS(name, kind, k_bits, v_bits)                                                                             \
    SOME_HEADS(name, kind, k_bits, v_bits, 1)                                                                             \
    SOME_HEADS(name, kind, k_bits, v_bits, 2)                                                                             \
    SOME_HEADS(name, kind, k_bits, v_bits, 3)                                                                             \
    SOME_HEADS(name, kind, k_bits, v_bits, 4)
#define TABLE(name) {name##_1, name##_2, name##_3, name##_4}

typedef void Heads(const Attend *, const Part *, int64_t, const Layout *, const Layout *);
ALL_HEADS(int8, INT8, 8, 8)
ALL_HEADS(int4, INT4, 4, 4)
ALL_HEADS(kivi4, KIVI, 4, 4)
ALL_HEADS(kivi2, KIVI, 2, 2)
ALL_HEADS(kivi42, KIVI, 4, 2)
ALL_HEADS(kivi24, KIVI, 2, 4)

void attend_packed(const Attend *a, const Part *part) {
    static Heads *const functions[6][HEADS_PACKED] = {TABLE(int8),  TABLE(int4),   TABLE(kivi4),
                                                      TABLE(kivi2), TABLE(kivi42), TABLE(kivi24)};
    const int kivi = a->k_bits == 4 ? a->v_bits == 4 ? 2 : 4 : a->v_bits == 2 ? 3 : 5;
    const int kind = a->kind == INT8 ? 0 : a->kind == INT4 ? 1 : kivi;
    const Layout k = layout_of(a->k_width, a->k_bits), v = layout_of(a->v_width, a->v_bits);
    for (int64_t h = 0; h < part->heads; h += heads_now(part->heads - h, HEADS_PACKED))
        functions[kind][heads_now(part->heads - h, HEADS_PACKED) - 1](a, part, h, &k, &v);
}
#endif
