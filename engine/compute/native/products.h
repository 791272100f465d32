/* Products of quantised activations with packed weights, in lanes of output features.
 *
 * Weights. Output features stand in blocks of 64, each a lane; the last block's other lanes are zero. Input features are
 * taken in units of 32, and K is a multiple of that.
 * The lower bits of codes and those above them lie in two planes, each of uint32 [blocks, K * bits / 32, 64]:
 *   8 bits  byte j of a word belongs to feature j of four;
 *   4 bits  the lower half of byte j to feature j of eight, the upper half to feature 4 + j;
 *   2 or 1  field i of byte j, from the lowest one on, to feature 4 i + j of sixteen, or of 32.
 * W[n, k] = (code - zero) * scale + shift; a table's value stands for its code.
 *
 * Activations. x is cut into spans of 32 and each written as digits of 8 bits: x = scale * (d0 + d1 / 254 + ...), every
 * digit within -127 .. 127. One digit is what is commonly called 8-bit activations, two are more than a bfloat16 holds
 * and three as many as a float32; some units may have a second digit where the others have one. Digits meet the weights
 * as rows of their own do, and are added at the end.
 *
 * Products of a span are added as integers, exactly; spans in float32, in order. What other rows there are changes no
 * result, and the set of instructions only whether a span is multiplied by its scale and added in one rounding or two.
 */
#pragma once
#include "native.h"

enum { BLOCK = 64, UNIT = 32, CHUNK = 256, CHUNK_UNITS = CHUNK / UNIT };

/* How codes are held. The first five are unsigned, and their middle is half of their range. Any of
 * these are held unpacked for many rows: UNSIGNED8. */
enum { UNSIGNED2, UNSIGNED3, UNSIGNED4, UNSIGNED5, UNSIGNED6, SIGNED8, TABLE4, UNSIGNED8 };

/* How scales are held, those of a block's features side by side. The first three: a number for each group, [K / group].
 * NESTED: see below. EXPONENTS: a byte, of a power of two, halved. SUPER: a signed byte for each group times a float16 for
 * each 256, ``supers``; with ``least``, minima are bytes alike times that, and are taken off. NIBBLES: so, but unsigned
 * scales are the lower and minima the upper halves of bytes. BOOK: in the blocks of books.h, times supers. */
enum { SCALES_F32, SCALES_F16, SCALES_BF16, NESTED, EXPONENTS, SUPER, NIBBLES, BOOK };

enum { MOST_TABLES = 3 };

typedef struct {
    const uint32_t *codes, *high;
    const void *scales;
    const uint8_t *zeros;  /* like scales: zero-points (signed ones of SIGNED8), or minima; NULL where there are none */
    const uint16_t *supers, *least; /* float16 [blocks, K / 256, 64] */
    const uint16_t *shifts;         /* float16 like scales: what is added to each weight */
    /* NESTED: the byte of feature n, group g means nested_table[byte] * nested_scales[(n groups + g) / nested_size] +
     * nested_offset, each step rounded to float32. */
    const float *nested_table, *nested_scales;
    const uint32_t *book; /* entries of books.h, each as codes of 4 bits */
    int64_t in_features, out_features, group, kind, scale_type, nested_size;
    int64_t book_type; /* ggml's number of the type whose blocks the codes are (books.h, of kind TABLE4); 0: planes */
    float nested_offset, factor; /* every scale is multiplied by the latter */
    /* What TABLE4's codes mean, exactly, and as digits like those of activations: tables[0] + tables[1] / 254 + .. times
     * table_scale. */
    float values[16], table_scale;
    int32_t table_count;
    int8_t tables[MOST_TABLES][16];
} Lanes;

/* Bits of a code in either plane, which is also how many words hold 32 of a feature. */
INLINE int code_bits(int64_t kind) {
    return kind == SIGNED8 || kind == UNSIGNED8 ? 8 : kind == UNSIGNED2 || kind == UNSIGNED3 ? 2 : 4;
}
INLINE int high_bits(int64_t kind) { return kind == UNSIGNED6 ? 2 : kind == UNSIGNED3 || kind == UNSIGNED5; }

/* A product in pieces that threads may share with those of others: x [rows, K] is quantised in rows * pieces of them, and
 * then multiplied in panels * blocks, for all of which ``quantised`` is kept. Its other arguments are those of
 * lanes_matmul. */
typedef struct {
    const Lanes *w;
    const void *x;
    void *quantised, *out;
    const uint8_t *refined;
    int64_t all, panel, pieces, panels, blocks; /* all: virtual rows (digits of rows); panel: those of each */
    int bfloat16, out_bfloat16, digits, tables;
    int gating; /* what rows.h names: out [rows, N / 2] is that of the two halves of the products; -1: out is these */
} Matmul;

Matmul matmul_of(const Lanes *w, const void *x, int bfloat16, void *out, int out_bfloat16, int64_t rows, int digits,
                 const uint8_t *refined, void *quantised);
/* The most rows of a Matmul that has one panel. */
int64_t panel_rows(int digits);
/* Bytes of ``quantised``. */
int64_t matmul_bytes(const Lanes *w, int64_t rows, int digits, const uint8_t *refined);
/* The i-th piece of a Matmul, and the i-th block of a panel of it. */
void quantise_piece(const void *matmul, int64_t i);
void panel_product(const void *matmul, int64_t i);
