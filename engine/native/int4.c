/* Products with group-affine 4-bit weights, packed as engine/layers/linear/native/int4.py packs them.
 *
 * codes  uint32 [blocks of 64 features, K / 8, 64]: eight codes of consecutive input features, the first one lowest.
 * scales float16 or bfloat16 [blocks, K / group, 64];  zeros uint8 of the same shape, or NULL where every zero-point is 8.
 * W[n, k] = scale * (code - zero).
 *
 * A lane of a vector is an output feature, so no sum ever crosses lanes, and a row of x meets the weights in the same
 * order whatever other rows there are: results do not depend on the batch.
 */
#include "native.h"

/* b counts runs of 16 features; TILE of them make a block, which one pass reads as one stream. */
enum { LANES = 16, TILE = 4, BLOCK = LANES * TILE, MOST_ROWS = 8 };
/* Bytes of codes to fetch ahead of use. */
enum { AHEAD = 4096 };

typedef struct {
    const uint32_t *codes;
    const uint16_t *scales;
    const uint8_t *zeros;
    int64_t in_features, out_features, group;
    int64_t bfloat16_scales;
} Int4;

static int64_t runs_of(const Int4 *w) { return (w->out_features + LANES - 1) / LANES; }

/* Where run b begins in a tensor of ``rows`` rows to a block. */
INLINE int64_t place(int64_t b, int64_t rows) { return b / TILE * rows * BLOCK + b % TILE * LANES; }

#ifdef __AVX512BF16__

/* ------------------------------------------------------------------ bfloat16 activations, AVX-512 BF16 */

/* bfloat16 of -8 .. 7, twice: an index's fifth bit belongs to the next code and does not matter. */
static const uint16_t VALUES[32] = {
    0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80, 0, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0,
    0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80, 0, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0,
};

/* Code j and code j + 4 of a word lie 16 bits apart, so the pairs of a dot product are (0, 4), (1, 5), (2, 6), (3, 7). */
static void pair_row(const uint16_t *x, uint16_t *pairs, float *sums, int64_t count, int64_t group) {
    for (int64_t k = 0; k < count; k += 8)
        for (int j = 0; j < 4; j++) {
            pairs[k + 2 * j] = x[k + j];
            pairs[k + 2 * j + 1] = x[k + j + 4];
        }
    if (!sums) return;
    for (int64_t g = 0; g < count / group; g++) {
        float sum = 0;
        for (int64_t k = 0; k < group; k++) {
            uint32_t bits = (uint32_t)x[g * group + k] << 16;
            float value;
            memcpy(&value, &bits, 4);
            sum += value;
        }
        sums[g] = sum;
    }
}

/* ROWS rows of x times COLUMNS runs of 16 features, from run ``b`` on; they lie in one block. */
#define DEFINE_BF16(ROWS, COLUMNS)                                                                                    \
    static void bf16_##ROWS##x##COLUMNS(const Int4 *w, int64_t b, const uint16_t *pairs, const float *sums,    \
                                               uint16_t *out) {                                                       \
        const int64_t K = w->in_features, groups = K / w->group, words = w->group / 8;                                \
        const uint32_t *codes = w->codes + place(b, K / 8);                                                           \
        const uint16_t *scales = w->scales + place(b, groups);                                                        \
        const uint8_t *zeros = w->zeros ? w->zeros + place(b, groups) : NULL;                                         \
        const __m512i table = _mm512_loadu_si512(VALUES);                                                             \
        __m512 total[ROWS][COLUMNS];                                                                                  \
        for (int r = 0; r < ROWS; r++)                                                                                \
            for (int c = 0; c < COLUMNS; c++) total[r][c] = _mm512_setzero_ps();                                      \
        for (int64_t g = 0; g < groups; g++) {                                                                        \
            __m512 sum[ROWS][COLUMNS];                                                                                \
            for (int r = 0; r < ROWS; r++)                                                                            \
                for (int c = 0; c < COLUMNS; c++) sum[r][c] = _mm512_setzero_ps();                                    \
            const uint16_t *x = pairs + g * w->group;                                                                 \
            for (int64_t i = 0; i < words; i++, codes += BLOCK, x += 8) {                                             \
                __m512i word[COLUMNS];                                                                                \
                for (int c = 0; c < COLUMNS; c++) {                                                                   \
                    word[c] = _mm512_loadu_si512(codes + c * LANES);                                                  \
                    _mm_prefetch((const char *)(codes + c * LANES) + AHEAD, _MM_HINT_T0);                             \
                }                                                                                                     \
                if (b % TILE == 0) /* the first pass over a block brings it all near */                               \
                    for (int c = COLUMNS; c < TILE; c++)                                                              \
                        _mm_prefetch((const char *)(codes + c * LANES) + AHEAD, _MM_HINT_T1);                         \
                _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) {                                                 \
                    __m512bh values[COLUMNS];                                                                         \
                    for (int c = 0; c < COLUMNS; c++)                                                                 \
                        values[c] = (__m512bh)_mm512_permutexvar_epi16(_mm512_srli_epi32(word[c], 4 * j), table);     \
                    for (int r = 0; r < ROWS; r++) {                                                                  \
                        int32_t two;                                                                                  \
                        memcpy(&two, x + r * K + 2 * j, 4);                                                           \
                        for (int c = 0; c < COLUMNS; c++)                                                             \
                            sum[r][c] = _mm512_dpbf16_ps(sum[r][c], values[c], (__m512bh)_mm512_set1_epi32(two));     \
                    }                                                                                                 \
                }                                                                                                     \
            }                                                                                                         \
            for (int c = 0; c < COLUMNS; c++) {                                                                       \
                const int64_t at = g * BLOCK + c * LANES;                                                             \
                const __m256i raw = _mm256_loadu_si256((const __m256i *)(scales + at));                               \
                __m512 scale = _mm512_cvtph_ps(raw);                                                                  \
                if (w->bfloat16_scales)                                                                               \
                    scale = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));                   \
                if (zeros) {                                                                                          \
                    __m512i zero = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(zeros + at)));              \
                    __m512 shift = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_set1_epi32(8), zero));                  \
                    for (int r = 0; r < ROWS; r++)                                                                    \
                        sum[r][c] = _mm512_fmadd_ps(shift, _mm512_set1_ps(sums[r * groups + g]), sum[r][c]);          \
                }                                                                                                     \
                for (int r = 0; r < ROWS; r++) total[r][c] = _mm512_fmadd_ps(sum[r][c], scale, total[r][c]);          \
            }                                                                                                         \
        }                                                                                                             \
        for (int c = 0; c < COLUMNS; c++) {                                                                           \
            int64_t first = (b + c) * LANES, left = w->out_features - first;                                          \
            __mmask16 kept = left >= LANES ? 0xFFFF : (__mmask16)((1u << left) - 1);                                  \
            for (int r = 0; r < ROWS; r++)                                                                            \
                _mm256_mask_storeu_epi16(out + r * w->out_features + first, kept,                                     \
                                         (__m256i)_mm512_cvtneps_pbh(total[r][c]));                                   \
        }                                                                                                             \
    }
DEFINE_BF16(1, 1)
DEFINE_BF16(1, 4)
DEFINE_BF16(2, 1)
DEFINE_BF16(2, 4)
DEFINE_BF16(3, 1)
DEFINE_BF16(3, 4)
DEFINE_BF16(4, 1)
DEFINE_BF16(4, 4)
DEFINE_BF16(5, 1)
DEFINE_BF16(5, 2)
DEFINE_BF16(6, 1)
DEFINE_BF16(6, 2)
DEFINE_BF16(7, 1)
DEFINE_BF16(7, 2)
DEFINE_BF16(8, 1)
DEFINE_BF16(8, 2)

typedef void (*Part)(const Int4 *, int64_t, const uint16_t *, const float *, uint16_t *);
static const struct { int columns; Part wide, narrow; } PARTS[MOST_ROWS + 1] = {
    {0, NULL, NULL},
    {4, bf16_1x4, bf16_1x1},
    {4, bf16_2x4, bf16_2x1},
    {4, bf16_3x4, bf16_3x1},
    {4, bf16_4x4, bf16_4x1},
    {2, bf16_5x2, bf16_5x1},
    {2, bf16_6x2, bf16_6x1},
    {2, bf16_7x2, bf16_7x1},
    {2, bf16_8x2, bf16_8x1},
};

/* Runs [b, stop) of one block for all rows, MOST_ROWS at a time, while the codes are in a near cache. */
static void bf16_tile(const Int4 *w, int64_t b, int64_t stop, int64_t rows, const uint16_t *pairs, const float *sums,
                      uint16_t *out) {
    const int64_t groups = w->in_features / w->group;
    for (int64_t r = 0; r < rows; r += MOST_ROWS) {
        const int now = rows - r < MOST_ROWS ? (int)(rows - r) : MOST_ROWS, columns = PARTS[now].columns;
        for (int64_t at = b; at < stop;) {
            const int wide = at + columns <= stop;
            (wide ? PARTS[now].wide : PARTS[now].narrow)(w, at, pairs + r * w->in_features, sums ? sums + r * groups : NULL,
                                                         out + r * w->out_features);
            at += wide ? columns : 1;
        }
    }
}

/* out [rows, N] = x [rows, K] W^T, both bfloat16, sums in float32. 0, or 1 where memory ran out. */
EXPORT int int4_matmul_bf16(const Int4 *w, const uint16_t *x, uint16_t *out, int64_t rows, int threads) {
    const int64_t K = w->in_features, groups = K / w->group;
    uint16_t *pairs = scratch(rows * (K * 2 + (w->zeros ? groups * 4 : 0)));
    if (!pairs) return 1;
    float *sums = w->zeros ? (float *)(pairs + rows * K) : NULL;
    for (int64_t r = 0; r < rows; r++) pair_row(x + r * K, pairs + r * K, sums ? sums + r * groups : NULL, K, w->group);
    const int64_t runs = runs_of(w);
#pragma omp parallel for schedule(static) num_threads(product_threads(w->in_features * w->out_features, threads))
    for (int64_t b = 0; b < runs; b += TILE)
        bf16_tile(w, b, b + TILE < runs ? b + TILE : runs, rows, pairs, sums, out);
    return 0;
}

#endif

/* ------------------------------------------------------------------ float32 activations, any vector unit */

typedef float Floats __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(32)));
typedef uint32_t Words __attribute__((vector_size(32)));
enum { HALF = LANES / 2, MOST_ROWS_F32 = 4 };

typedef struct { Floats low, high; } Lanes;

INLINE Lanes lanes_of(const float *values) {
    Lanes result;
    memcpy(&result, values, sizeof result);
    return result;
}

INLINE Lanes load_scales(const uint16_t *scales, int bfloat16) {
    float values[LANES];
    if (bfloat16)
        for (int i = 0; i < LANES; i++) {
            uint32_t bits = (uint32_t)scales[i] << 16;
            memcpy(values + i, &bits, 4);
        }
    else
        for (int i = 0; i < LANES; i++) values[i] = half_value(scales[i]);
    return lanes_of(values);
}

INLINE Lanes load_zeros(const uint8_t *zeros) {
    float values[LANES];
    for (int i = 0; i < LANES; i++) values[i] = zeros ? zeros[i] : 8;
    return lanes_of(values);
}

/* ``rows`` (a constant after inlining) rows of x times one run of 16 features. */
INLINE void f32_rows(const int rows, const Int4 *w, int64_t b, const float *x, const float *sums, float *out) {
    const int64_t K = w->in_features, groups = K / w->group;
    const uint32_t *codes = w->codes + place(b, K / 8);
    const uint16_t *scales = w->scales + place(b, groups);
    const uint8_t *zeros = w->zeros ? w->zeros + place(b, groups) : NULL;
    Lanes total[MOST_ROWS_F32] = {0};
    for (int64_t g = 0; g < groups; g++) {
        Lanes sum[MOST_ROWS_F32] = {0};
        for (int64_t k = g * w->group; k < (g + 1) * w->group; k += 8, codes += BLOCK) {
            Words low, high;
            memcpy(&low, codes, sizeof low);
            memcpy(&high, codes + HALF, sizeof high);
            for (int j = 0; j < 8; j++) {
                Floats first = __builtin_convertvector((Ints)(low >> 4 * j & 15), Floats);
                Floats second = __builtin_convertvector((Ints)(high >> 4 * j & 15), Floats);
                for (int r = 0; r < rows; r++) {
                    sum[r].low += first * x[r * K + k + j];
                    sum[r].high += second * x[r * K + k + j];
                }
            }
        }
        Lanes scale = load_scales(scales + g * BLOCK, w->bfloat16_scales);
        Lanes zero = load_zeros(zeros ? zeros + g * BLOCK : NULL);
        for (int r = 0; r < rows; r++) {
            total[r].low += (sum[r].low - zero.low * sums[r * groups + g]) * scale.low;
            total[r].high += (sum[r].high - zero.high * sums[r * groups + g]) * scale.high;
        }
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < LANES && b * LANES + i < w->out_features; i++)
            out[r * w->out_features + b * LANES + i] = i < HALF ? total[r].low[i] : total[r].high[i - HALF];
}

/* One run for all rows, a few at a time, while its codes are in the nearest cache. */
static void f32_run(const Int4 *w, int64_t b, int64_t rows, const float *x, const float *sums, float *out) {
    const int64_t K = w->in_features, groups = K / w->group;
    for (; rows > 0; rows -= MOST_ROWS_F32) {
        switch (rows) {
        case 1: f32_rows(1, w, b, x, sums, out); break;
        case 2: f32_rows(2, w, b, x, sums, out); break;
        case 3: f32_rows(3, w, b, x, sums, out); break;
        default: f32_rows(4, w, b, x, sums, out);
        }
        x += MOST_ROWS_F32 * K;
        sums += MOST_ROWS_F32 * groups;
        out += MOST_ROWS_F32 * w->out_features;
    }
}

/* out [rows, N] = x [rows, K] W^T, all float32. 0, or 1 where memory ran out. */
EXPORT int int4_matmul_f32(const Int4 *w, const float *x, float *out, int64_t rows, int threads) {
    const int64_t K = w->in_features, groups = K / w->group, runs = runs_of(w);
    float *sums = scratch(rows * groups * sizeof(float));
    if (!sums) return 1;
    for (int64_t i = 0; i < rows * groups; i++) {
        sums[i] = 0;
        for (int64_t k = 0; k < w->group; k++) sums[i] += x[i * w->group + k];
    }
#pragma omp parallel for schedule(static) num_threads(product_threads(w->in_features * w->out_features, threads))
    for (int64_t b = 0; b < runs; b++) f32_run(w, b, rows, x, sums, out);
    return 0;
}
