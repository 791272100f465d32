/* Attention of single rows over packed keys and values, which are read as they are: for few rows that is less work than to
 * unpack them. */
#include "attention_packed.h"

enum { HEADS_PACKED = 4, STRETCH = 128 };

/* Query heads that share each read of a key, out of ``left``; and keys that go with so many, so that HELD sums are held. */
INLINE int heads_now(int64_t left) { return left >= HEADS_PACKED ? HEADS_PACKED : (int)left; }
INLINE int keys_with(int heads) { return HELD / (heads == 3 ? 4 : heads); }
INLINE int64_t slot_of(const Part *part, int64_t key) { return (int64_t)part->pages[key / PAGE] * PAGE + key % PAGE; }

/* The score of a key that a row of a tree does not see: its weight is 0 beside any other's. (Not infinite: of a part's keys
 * all may be such.) */
static const float UNSEEN = -1e38f;

/* Scores of the keys from ``at`` on, without those that the row of a tree does not see. */
INLINE void leave_out(const Part *part, int64_t at, int now, float *scores) {
    for (int64_t i = part->tree ? unseen_from(part->tree, at) : now; i < now; i++)
        if (!sees(part->tree, at + i)) scores[i] = UNSEEN;
}

/* Scores of one head become weights against the largest score so far; the sums so far follow it. */
INLINE void weigh(float *scores, int now, float *top, float *total, float *sums) {
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
        for (int64_t d = 0; d < WIDEST_PACKED; d += LANES) put_floats(sums + d, floats_at(sums + d) * kept);
    }
    *top = after;
    *total = *total * kept + sum_of_lanes(sum);
}

/* scores[h] of ``now`` keys of a page, and of what follows them up to a multiple of keys_with(heads). ``meta`` is NULL
 * where queries already carry the scales of channels; constants after inlining: kind, bits, heads, and whether meta is NULL. */
INLINE void score_page(const int kind, const int bits, const int heads, const Layout *l, const float (*q)[WIDEST_PACKED],
                       const float *offset, const uint8_t *keys, int64_t step, const Meta *meta, int now, float scale,
                       float *scores) {
    const int lot = keys_with(heads), planes = 8 / bits;
    for (int i = 0; i < now; i += lot) {
        Floats sum[HELD];
        UNROLL for (int j = 0; j < HELD; j++) sum[j] = (Floats){0};
        for (int b = 0; b < l->blocks; b++) {
            const int whole = is_whole(l, b);
            UNROLL for (int j = 0; j < lot; j++) {
                const int token = i + j < now ? i + j : now - 1;
                const Words bytes = read_codes(keys + token * step + b * LANES, whole);
                UNROLL for (int p = 0; p < planes; p++) {
                    const int block = b * planes + p;
                    Floats key = code_of(kind, bits, p, bytes);
                    if (bits != 8 && meta)
                        key = key * by_group(l, block, meta->pairs[token]) + by_group(l, block, meta->pairs[token] + 1);
                    UNROLL for (int h = 0; h < heads; h++) sum[h * lot + j] += key * floats_at(q[h] + block * LANES);
                }
            }
        }
        float all[HELD];
        for (int j = 0; j < HELD; j += LANES) put_floats(all + j, sums_of(sum + j));
        for (int h = 0; h < heads; h++)
            for (int j = 0; j < lot; j++) {
                float x = all[h * lot + j];
                if (bits == 8) x *= meta->whole[i + j];
                if (!meta) x += offset[h];
                scores[h * STRETCH + i + j] = x * scale;
            }
    }
}

/* sums[h] += weights[h] times the values of ``now`` tokens of a page, so many planes at a time that HELD sums are held. */
INLINE void gather_page(const int kind, const int bits, const int heads, const Layout *l, const uint8_t *values, int64_t step,
                        const Meta *meta, int now, const float *weights, float (*sums)[WIDEST_PACKED]) {
    const int planes = 8 / bits, most = HELD / (heads == 3 ? 4 : heads), lot = planes < most ? planes : most;
    float scaled[HEADS_PACKED][PAGE];
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < now; i++) scaled[h][i] = weights[h * STRETCH + i] * (bits == 8 ? meta->whole[i] : 1);
    for (int b = 0; b < l->blocks; b++) {
        const int whole = is_whole(l, b);
        UNROLL for (int first = 0; first < planes; first += lot) {
            const int block = b * planes + first;
            Floats sum[HEADS_PACKED][4];
            UNROLL for (int p = 0; p < lot; p++)
                UNROLL for (int h = 0; h < heads; h++) sum[h][p] = floats_at(sums[h] + (block + p) * LANES);
            for (int i = 0; i < now; i++) {
                const Words bytes = read_codes(values + i * step + b * LANES, whole);
                UNROLL for (int p = 0; p < lot; p++) {
                    Floats value = code_of(kind, bits, first + p, bytes);
                    if (bits != 8)
                        value = value * by_group(l, block + p, meta->pairs[i]) +
                                by_group(l, block + p, meta->pairs[i] + 1);
                    UNROLL for (int h = 0; h < heads; h++) sum[h][p] += value * scaled[h][i];
                }
            }
            UNROLL for (int p = 0; p < lot; p++)
                UNROLL for (int h = 0; h < heads; h++) put_floats(sums[h] + (block + p) * LANES, sum[h][p]);
        }
    }
}

/* Queries [heads, width] in the order of this file. */
INLINE void arrange(const int heads, const Layout *l, const float *q, int64_t width, float (*out)[WIDEST_PACKED]) {
    for (int h = 0; h < heads; h++)
        for (int b = 0; b < l->blocks; b++)
            for (int p = 0; p < l->planes; p++)
                put_floats(out[h] + (b * l->planes + p) * LANES,
                           read_floats(q + h * width + channel_of(l, b, p), is_whole(l, b)));
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
    Floats sum[HEADS_PACKED];
    for (int h = 0; h < heads; h++) sum[h] = (Floats){0};
    for (int b = 0; b < l->blocks; b++)
        for (int p = 0; p < l->planes; p++) {
            const Floats scale = read_halves(scales + channel_of(l, b, p), is_whole(l, b));
            const Floats minimum = read_halves(minima + channel_of(l, b, p), is_whole(l, b));
            for (int h = 0; h < heads; h++) {
                const Floats query = floats_at(q[h] + (b * l->planes + p) * LANES);
                put_floats(out->q[h] + (b * l->planes + p) * LANES, query * scale);
                sum[h] += query * minimum;
            }
        }
    for (int h = 0; h < heads; h++) out->offset[h] = sum_of_lanes(sum[h]);
}

/* Ask for a page's codes, and the scales and minima of its tokens if they have their own. Parts of a page are fetched whole.
 */
INLINE void fetch_page(const uint8_t *codes, int64_t step, int64_t bytes, const uint16_t *meta, int64_t meta_step) {
    for (int i = 0; i < PAGE; i++) {
        for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(codes + i * step + b);
        __builtin_prefetch(codes + i * step + bytes - 1);
        if (meta) __builtin_prefetch(meta + i * meta_step);
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
        score_page(kind, bits, heads, l, (const float(*)[WIDEST_PACKED])carried->q, carried->offset, keys, a->k_slot, NULL, now,
                   a->scale, scores);
        return;
    }
    Meta meta;
    read_meta(bits, a->k_meta, slot, a->kv_heads, part->kv_head, a->k_width, now, &meta);
    score_page(kind, bits, heads, l, q, NULL, keys, a->k_slot, &meta, now, a->scale, scores);
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
        for (int h = 0; a->softcap > 0 && h < heads; h++) cap_scores(scores[h], stop - first, a->softcap);
        for (int h = 0; h < heads; h++) leave_out(part, first, (int)(stop - first), scores[h]);
        for (int h = 0; h < heads; h++) weigh(scores[h], (int)(stop - first), top + h, total + h, sums[h]);
        for (int64_t at = first, end; at < stop; at = end) {
            end = smaller((at / PAGE + 1) * PAGE, stop);
            Meta meta;
            const int64_t slot = slot_of(part, at);
            if (!h0 && at + STRETCH <= part->last) fetch_keys(kind, k_bits, a, part, at + STRETCH);
            read_meta(v_bits, a->v_meta, slot, a->kv_heads, part->kv_head, a->v_width, (int)(end - at), &meta);
            gather_page(kind, v_bits, heads, v, a->v + slot * a->v_slot + part->kv_head * a->v_head, a->v_slot, &meta,
                        (int)(end - at), scores[0] + (at - first), sums);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int b = 0; b < v->blocks; b++)
            for (int p = 0; p < v->planes; p++)
                write_floats(part->sums + (h0 + h) * a->v_width + channel_of(v, b, p),
                             floats_at(sums[h] + (b * v->planes + p) * LANES), is_whole(v, b));
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
ALL_HEADS(fp8, FP8, 8, 8)
ALL_HEADS(int4, INT4, 4, 4)
ALL_HEADS(kivi4, KIVI, 4, 4)
ALL_HEADS(kivi2, KIVI, 2, 2)
ALL_HEADS(kivi42, KIVI, 4, 2)
ALL_HEADS(kivi24, KIVI, 2, 4)

void attend_packed(const Attend *a, const Part *part) {
    static Heads *const functions[7][HEADS_PACKED] = {TABLE(int8),  TABLE(fp8),    TABLE(int4),  TABLE(kivi4),
                                                      TABLE(kivi2), TABLE(kivi42), TABLE(kivi24)};
    const int kivi = a->k_bits == 4 ? a->v_bits == 4 ? 3 : 5 : a->v_bits == 2 ? 4 : 6;
    const int kind = a->kind == KIVI ? kivi : (int)a->kind - INT8;
    const Layout k = layout_of(a->k_width, a->k_bits), v = layout_of(a->v_width, a->v_bits);
    for (int64_t h = 0; h < part->heads; h += heads_now(part->heads - h))
        functions[kind][heads_now(part->heads - h) - 1](a, part, h, &k, &v);
}
