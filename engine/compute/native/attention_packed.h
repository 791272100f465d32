/* How packed keys and values become float32 in registers; what attention.c, attention_packed.c and attention_unpack.c share.
 *
 * A byte holds one code of 8 bits or a channel of each of 8 / b planes (PackedKV of engine/cache/stores/packed.py). Blocks of
 * LANES bytes are LANES channels of every plane; numbers are kept in that order here, [blocks, planes, LANES], filled up
 * where a plane ends within a block: planes are whole numbers of 8 bytes, so that only blocks of 16 can be halves.
 * Channels share scales and minima in groups of 32.
 */
#pragma once
#include "attention.h"

enum { GROUP = 32, MOST_BLOCKS = WIDEST_PACKED / LANES, MOST_PAIRS = 2 * WIDEST_PACKED / GROUP };
/* Lanes of a block whose groups are kept: where blocks are as short as 8, all have the first one's. */
enum { GROUPED = LANES == 16 ? LANES : 1 };

/* How a head's channels lie in memory; ``block`` counts blocks of bytes times planes, at most MOST_BLOCKS. */
typedef struct {
    int bits, planes, blocks;
    int64_t bytes;                       /* of a plane, and so of a head */
    int32_t pair[MOST_BLOCKS][GROUPED]; /* of each channel, in the order of this file, where its scale is in Meta */
} Layout;

/* Scales and minima of a page's tokens, [token, group, 2]; a token's scale alone for codes of 8 bits. */
typedef struct {
    float pairs[PAGE][MOST_PAIRS + 1]; /* so that as many can be read from the first minimum on */
    float whole[PAGE];
} Meta;

INLINE Layout layout_of(int64_t width, int64_t bits) {
    Layout l = {.bits = (int)bits, .planes = (int)(8 / bits), .bytes = width * bits / 8};
    l.blocks = (int)((l.bytes + LANES - 1) / LANES);
    for (int b = 0; b < l.blocks; b++)
        for (int p = 0; p < l.planes; p++)
            for (int i = 0; i < GROUPED; i++) {
                const int32_t channel = (int32_t)(p * l.bytes) + b * LANES + i, last = (int32_t)width - 1;
                l.pair[b * l.planes + p][i] = (channel < last ? channel : last) / GROUP * 2;
            }
    return l;
}

INLINE int64_t channel_of(const Layout *l, int block, int plane) { return plane * l->bytes + block * LANES; }
/* Whether a block is full; else it is half of one. */
INLINE int is_whole(const Layout *l, int block) { return LANES < 16 || l->bytes - block * LANES >= LANES; }

/* A block of codes, a byte to a word. */
INLINE Words read_codes(const uint8_t *codes, int whole) {
    if (whole) return widened_at(codes);
    uint8_t half[LANES] = {0};
    memcpy(half, codes, LANES / 2);
    return widened_at(half);
}

/* ``kind`` says which of the two a code of 8 bits is: an integer, or the bits of a float whose exponents begin 120 above
 * those of float32. */
INLINE Floats code_of(const int kind, const int bits, const int plane, Words bytes) {
    if (kind == FP8) return (Floats)((Words)((Ints)(bytes << 24) >> 4) & 0x87f00000) * 0x1p120f;
    const Ints codes = bits == 8 ? (Ints)(bytes << 24) >> 24 : (Ints)(bytes >> bits * plane & ((1 << bits) - 1));
    return __builtin_convertvector(codes, Floats);
}

/* The next LANES numbers in float16, or half of them and zeros. */
INLINE Floats read_halves(const uint16_t *from, int whole) { return some_halves(from, whole ? LANES : LANES / 2); }
INLINE Floats read_floats(const float *from, int whole) {
    if (whole) return floats_at(from);
    float half[LANES] = {0};
    memcpy(half, from, sizeof half / 2);
    return floats_at(half);
}
INLINE void write_floats(float *to, Floats numbers, int whole) { memcpy(to, &numbers, sizeof numbers / (whole ? 1 : 2)); }

/* Of each lane of a block the scale, or with pairs + 1 the minimum. */
INLINE Floats by_group(const Layout *l, int block, const float *pairs) {
#if defined(__AVX512VNNI__)
    return (Floats)_mm512_permutexvar_ps(_mm512_loadu_si512(l->pair[block]), _mm512_loadu_ps(pairs));
#else
    return every_float(pairs[l->pair[block][0]]);
#endif
}

/* Meta of ``now`` tokens from slot ``slot`` on. */
INLINE void read_meta(const int bits, const uint16_t *meta, int64_t slot, int64_t kv_heads, int64_t kv_head, int64_t width,
                      int now, Meta *out) {
    if (bits == 8) {
        uint16_t some[PAGE] = {0};
        for (int i = 0; i < now; i++) some[i] = meta[(slot + i) * kv_heads + kv_head];
        for (int i = 0; i < PAGE; i += LANES) put_floats(out->whole + i, halves_at(some + i));
        return;
    }
    const int pairs = (int)(width / GROUP) * 2;
    for (int i = 0; i < now; i++)
        for (int g = 0; g < pairs; g += LANES) {
            const uint16_t *from = meta + ((slot + i) * kv_heads + kv_head) * pairs + g;
            put_floats(out->pairs[i] + g, some_halves(from, pairs - g < LANES ? pairs - g : LANES));
        }
}

/* Keys or values of the cache, as Attend describes them. by_channel: each pair of pages has a scale for each channel (KIVI's
 * keys); floats: codes are those of FP8; wide: numbers become float32, else bfloat16. */
typedef struct {
    const uint8_t *codes;
    const uint16_t *meta;
    int64_t kv_heads, width, slot, head, bits, by_channel, floats, wide;
} Side;

INLINE Side keys_of(const Attend *a, int64_t wide) {
    const int kivi = a->kind == KIVI, fp8 = a->kind == FP8;
    return (Side){a->k, a->k_meta, a->kv_heads, a->k_width, a->k_slot, a->k_head, a->k_bits, kivi, fp8, wide};
}
INLINE Side values_of(const Attend *a, int64_t wide) {
    return (Side){a->v, a->v_meta, a->kv_heads, a->v_width, a->v_slot, a->v_head, a->v_bits, 0, a->kind == FP8, wide};
}

/* The float32 numbers of a KV head in page ``page`` of some: tokens ``row`` numbers apart, of a side that is wide. */
void unpack_head(const Side *side, const Layout *layout, const int32_t *pages, int64_t page, int64_t kv_head, float *out,
                 int64_t row);

/* Some query heads of a row, which share a KV head, over some of its keys. */
typedef struct {
    const int32_t *pages;   /* of the row */
    int64_t first, stop;    /* keys, within one part */
    int64_t last;           /* of all keys of the row; those behind this part are fetched ahead */
    int64_t kv_head, heads; /* heads: how many query heads */
    const float *q;         /* [heads, k_width] */
    float *sums;            /* [heads, v_width]: values weighted by e^(score - top) */
    float *top, *total;     /* [heads]: the largest score, and the sum of the weights */
    const int64_t *tree;    /* of the row, see Attend; NULL: it sees all of these keys */
} Part;

void attend_packed(const Attend *a, const Part *part);
