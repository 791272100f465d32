/* Products of bfloat16 activations with grouped codes (grouped.h), AVX-512.
 *
 * Activations become float32, which is exact, and weights are looked up or converted, never rounded. A lane of a vector
 * is an output feature, so no sum ever crosses lanes, and a row of x meets the weights in the same order whatever other
 * rows there are: results do not depend on the batch.
 */
#include "grouped.h"

#ifdef __AVX512BF16__

enum { MOST_ROWS = 8 };
/* Bytes of codes to fetch ahead of use. */
enum { AHEAD = 4096 };

/* Code j of each word, as a number. */
INLINE __m512 value(const int bits, const int j, __m512i word, __m512 table) {
    /* An index's bits above the fourth do not matter. */
    if (bits == 4) return _mm512_permutexvar_ps(_mm512_srli_epi32(word, 4 * j), table);
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(word, 24 - 8 * j), 24));
}

/* ``rows`` rows, arranged at x, times ``columns`` vectors of a block from ``c0`` on; constants after inlining. */
INLINE void product(const int bits, const int rows, const int columns, const Grouped *w, const float *x, int64_t block,
                           int c0, const float *scales, float *out) {
    const int per = 32 / bits;
    const int64_t K = w->in_features, span = span_of(w), words = span / per;
    const uint32_t *codes = block_codes(w, block) + c0 * LANES;
    const int8_t *zeros = block_zeros(w, block);
    const float *sums = x + K * rows;
    const __m512 table = bits == 4 ? _mm512_loadu_ps(w->table) : _mm512_setzero_ps();
    __m512 total[MOST_ROWS][TILE];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) total[r][c] = _mm512_setzero_ps();
    for (int64_t k = 0; k < K; k += span, sums += rows) {
        /* Two sums in turn, so that an addition need not wait for the one before it. */
        __m512 sum[MOST_ROWS][TILE][2];
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++) sum[r][c][0] = sum[r][c][1] = _mm512_setzero_ps();
        for (int64_t i = 0; i < words; i++, codes += BLOCK, x += per * rows) {
            __m512i word[TILE];
            for (int c = 0; c < columns; c++) {
                word[c] = _mm512_loadu_si512(codes + c * LANES);
                _mm_prefetch((const char *)(codes + c * LANES) + AHEAD, _MM_HINT_T0);
            }
            _Pragma("GCC unroll 8") for (int j = 0; j < per; j++) {
                __m512 values[TILE];
                for (int c = 0; c < columns; c++) values[c] = value(bits, j, word[c], table);
                for (int r = 0; r < rows; r++)
                    for (int c = 0; c < columns; c++)
                        sum[r][c][j % 2] = _mm512_fmadd_ps(values[c], _mm512_set1_ps(x[j * rows + r]), sum[r][c][j % 2]);
            }
        }
        for (int c = 0; c < columns; c++) {
            const int64_t at = k / w->group * BLOCK + (c0 + c) * LANES;
            const __m512 scale = _mm512_loadu_ps(scales + at);
            __m512 zero = _mm512_setzero_ps();
            if (zeros) zero = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(zeros + at))));
            for (int r = 0; r < rows; r++) {
                __m512 whole = _mm512_add_ps(sum[r][c][0], sum[r][c][1]);
                if (zeros) whole = _mm512_fnmadd_ps(zero, _mm512_set1_ps(sums[r]), whole);
                total[r][c] = _mm512_fmadd_ps(whole, scale, total[r][c]);
            }
        }
    }
    for (int c = 0; c < columns; c++) {
        const int64_t first = block * BLOCK + (c0 + c) * LANES, left = w->out_features - first;
        const __mmask16 kept = left >= LANES ? 0xFFFF : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
        for (int r = 0; r < rows; r++)
            _mm512_mask_storeu_ps(out + r * w->out_features + first, kept,
                                  _mm512_mul_ps(total[r][c], _mm512_set1_ps(w->factor)));
    }
}

/* A whole block for some rows, COLUMNS vectors at a time: as many as there are registers for. */
#define DEFINE(BITS, ROWS, COLUMNS)                                                                                   \
    static void block_##BITS##_##ROWS(const Grouped *w, const float *x, int64_t block, const float *scales,    \
                                             float *out) {                                                            \
        for (int c = 0; c < TILE; c += COLUMNS) product(BITS, ROWS, COLUMNS, w, x, block, c, scales, out);            \
    }
#define DEFINE_BITS(BITS)                                                                                             \
    DEFINE(BITS, 1, 4) DEFINE(BITS, 2, 4) DEFINE(BITS, 3, 2) DEFINE(BITS, 4, 2)                                       \
    DEFINE(BITS, 5, 2) DEFINE(BITS, 6, 2) DEFINE(BITS, 7, 1) DEFINE(BITS, 8, 1)
DEFINE_BITS(4)
DEFINE_BITS(8)

typedef void (*Part)(const Grouped *, const float *, int64_t, const float *, float *);
#define PARTS_OF(BITS)                                                                                                \
    {block_##BITS##_1, block_##BITS##_2, block_##BITS##_3, block_##BITS##_4,                                          \
     block_##BITS##_5, block_##BITS##_6, block_##BITS##_7, block_##BITS##_8}
static const Part PARTS[2][MOST_ROWS] = {PARTS_OF(4), PARTS_OF(8)};

/* out [rows, N] float32 = x [rows, K] bfloat16 times W^T, sums in float32. 0, or 1 where memory ran out. */
EXPORT int grouped_matmul_bf16(const Grouped *w, const uint16_t *x, float *out, int64_t rows, int threads) {
    const int64_t K = w->in_features, blocks = blocks_of(w);
    float *arranged = scratch(arranged_size(w, rows) * sizeof(float));
    if (!arranged) return 1;
    grouped_arrange(w, x, 1, rows, MOST_ROWS, arranged);
    int failed = 0;
#pragma omp parallel for schedule(static) num_threads(product_threads(K * w->out_features, threads)) reduction(| : failed)
    for (int64_t b = 0; b < blocks; b++) {
        const float *scales = grouped_scales(w, b);
        if (!scales) {
            failed = 1;
            continue;
        }
        for (int64_t r = 0; r < rows; r += MOST_ROWS) {
            const int64_t now = rows - r < MOST_ROWS ? rows - r : MOST_ROWS;
            const float *lot = arranged + arranged_size(w, r);
            PARTS[w->table ? 0 : 1][now - 1](w, lot, b, scales, out + r * w->out_features);
        }
    }
    return failed;
}

INLINE void round_block(const int bits, const Grouped *w, int64_t block, const float *scales, uint16_t *out,
                               int64_t width) {
    const int per = 32 / bits;
    const int64_t groups = groups_of(w), words = w->group / per;
    const uint32_t *codes = block_codes(w, block);
    const int8_t *zeros = block_zeros(w, block);
    const __m512 table = bits == 4 ? _mm512_loadu_ps(w->table) : _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; g++) {
        __m512 scale[TILE], zero[TILE];
        for (int c = 0; c < TILE; c++) {
            const int64_t at = g * BLOCK + c * LANES;
            scale[c] = _mm512_loadu_ps(scales + at);
            zero[c] = _mm512_setzero_ps();
            if (zeros) zero[c] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(zeros + at))));
        }
        for (int64_t i = 0; i < words; i++, codes += BLOCK)
            _Pragma("GCC unroll 8") for (int j = 0; j < per; j++, out += width) {
                __m512 weight[TILE];
                for (int c = 0; c < TILE; c++) {
                    weight[c] = value(bits, j, _mm512_loadu_si512(codes + c * LANES), table);
                    if (bits == 8) weight[c] = _mm512_sub_ps(weight[c], zero[c]);
                    weight[c] = _mm512_mul_ps(weight[c], scale[c]);
                    if (bits == 8) weight[c] = _mm512_mul_ps(weight[c], _mm512_set1_ps(w->factor));
                }
                for (int c = 0; c < TILE; c += 2)
                    _mm512_storeu_si512(out + c * LANES, (__m512i)_mm512_cvtne2ps_pbh(weight[c + 1], weight[c]));
            }
    }
}

static void round_4(const Grouped *w, int64_t block, const float *scales, uint16_t *out, int64_t width) {
    round_block(4, w, block, scales, out, width);
}
static void round_8(const Grouped *w, int64_t block, const float *scales, uint16_t *out, int64_t width) {
    round_block(8, w, block, scales, out, width);
}

/* out [K, 64 (stop - start)] bfloat16 = W^T of blocks [start, stop), rounded once. 0, or 1 where memory ran out. */
EXPORT int grouped_write_bf16(const Grouped *w, int64_t start, int64_t stop, uint16_t *out, int threads) {
    int failed = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(| : failed)
    for (int64_t b = start; b < stop; b++) {
        const float *scales = grouped_scales(w, b);
        if (scales)
            (w->table ? round_4 : round_8)(w, b, scales, out + (b - start) * BLOCK, (stop - start) * BLOCK);
        else
            failed = 1;
    }
    return failed;
}

#endif
