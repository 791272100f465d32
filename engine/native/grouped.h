/* Codes with a scale for each group of input features, in lanes of output features: 4-bit codes that look up a table
 * (NF4, FP4) and 8-bit ones, packed as engine/layers/linear/native/grouped.py packs them.
 *
 * codes  uint32 [blocks of 64 features, K / per word, 64]: eight codes of 4 bits or four of 8 (two's complement) of
 *        consecutive input features, the first one lowest.
 * scales [blocks, K / group, 64] of scale_type;  zeros int8 of the same shape, or NULL where all are 0.
 * W[n, k] = table[code] * scale, or (code - zero) * scale * factor where table is NULL.
 *
 * NESTED scales are bytes: those of feature n, group g stand for nested_table[byte] * nested_scales[place] + offset,
 * place = (n * groups + g) / nested_size, each step rounded to float32.
 */
#pragma once
#include "native.h"

/* Features of a vector, of a block, and the vectors of a block. */
enum { LANES = 16, BLOCK = 64, TILE = BLOCK / LANES };
enum { SCALES_F32, SCALES_F16, SCALES_BF16, NESTED };

typedef struct {
    const uint32_t *codes;
    const void *scales;
    const int8_t *zeros;
    const float *table, *nested_table, *nested_scales;
    int64_t in_features, out_features, group, scale_type, nested_size;
    float nested_offset, factor;
} Grouped;

INLINE int64_t groups_of(const Grouped *w) { return w->in_features / w->group; }
INLINE int64_t blocks_of(const Grouped *w) { return (w->out_features + BLOCK - 1) / BLOCK; }
INLINE int64_t per_word(const Grouped *w) { return w->table ? 8 : 4; }
/* Input features that are summed before their scale is applied: all of a group, or an even part of a long one, since a
 * sum of fewer products is the more exact. */
INLINE int64_t span_of(const Grouped *w) {
    int64_t span = w->group;
    while (span > 256 && span % (2 * per_word(w)) == 0) span /= 2;
    return span;
}
INLINE const uint32_t *block_codes(const Grouped *w, int64_t block) {
    return w->codes + block * (w->in_features / per_word(w)) * BLOCK;
}
INLINE const int8_t *block_zeros(const Grouped *w, int64_t block) {
    return w->zeros ? w->zeros + block * groups_of(w) * BLOCK : NULL;
}

/* The scales of a block in float32 [groups, 64], valid until the calling thread's next call. NULL where memory ran out. */
const float *grouped_scales(const Grouped *w, int64_t block);

/* Floats that grouped_arrange writes. */
INLINE size_t arranged_size(const Grouped *w, int64_t rows) {
    return (size_t)(rows * (w->in_features + (w->zeros ? w->in_features / span_of(w) : 0)));
}

/* x [rows, K], float32 or else bfloat16, for products of ``most`` rows at a time: each lot of n rows as [K, n] and, with
 * zeros, the sums of its spans [K / span, n] behind it; lots lie one behind the other. */
void grouped_arrange(const Grouped *w, const void *x, int bfloat16, int64_t rows, int64_t most, float *out);
