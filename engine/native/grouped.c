/* Products of float32 activations with grouped codes (grouped.h), on any vector unit; sums in float32.
 *
 * As in grouped_avx512.c a lane is an output feature, and results do not depend on the batch.
 */
#include "grouped.h"

typedef float Floats __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(32)));
typedef int8_t Bytes __attribute__((vector_size(8)));
enum { HALF = LANES / 2, MOST_ROWS = 4, MOST_COLUMNS = 4 };

INLINE Floats floats(const float *values) {
    Floats result;
    memcpy(&result, values, sizeof result);
    return result;
}

/* What the codes in the lowest bits of each lane stand for. */
INLINE Floats look_up(const float *table, Ints codes) {
#ifdef __AVX2__
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)codes);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), (__m256i)codes);
    return (Floats)_mm256_blendv_ps(low, high, (__m256)(codes << 28)); /* by the fourth bit, moved to the sign */
#else
    Floats result;
    for (int i = 0; i < HALF; i++) result[i] = table[codes[i] & 15];
    return result;
#endif
}

/* Code j of each of eight words, as a number. */
INLINE Floats value(const int bits, const int j, const uint32_t *words, const float *table) {
    Ints word;
    memcpy(&word, words, sizeof word);
    if (bits == 4) return look_up(table, word >> 4 * j);
    return __builtin_convertvector(word << (24 - 8 * j) >> 24, Floats);
}

INLINE Floats zeros_at(const int8_t *zeros) {
    Bytes result;
    memcpy(&result, zeros, sizeof result);
    return __builtin_convertvector(result, Floats);
}

/* ``rows`` rows, arranged at x, times ``columns`` eights of a block's features from lane on; constants after inlining. */
INLINE void product(const int bits, const int rows, const int columns, const Grouped *w, const float *x, int64_t block,
                         int lane, const float *scales, float *out) {
    const int per = 32 / bits;
    const int64_t K = w->in_features, span = span_of(w);
    const uint32_t *codes = block_codes(w, block) + lane;
    const int8_t *zeros = block_zeros(w, block);
    const float *sums = x + K * rows;
    Floats total[MOST_ROWS][MOST_COLUMNS] = {0};
    for (int64_t k = 0; k < K; k += span, sums += rows) {
        Floats sum[MOST_ROWS][MOST_COLUMNS][2] = {0};
        for (int64_t i = 0; i < span; i += per, codes += BLOCK, x += per * rows)
            _Pragma("GCC unroll 8") for (int j = 0; j < per; j++)
                for (int c = 0; c < columns; c++) {
                    const Floats values = value(bits, j, codes + c * HALF, w->table);
                    for (int r = 0; r < rows; r++) sum[r][c][j % 2] += values * x[j * rows + r];
                }
        for (int c = 0; c < columns; c++) {
            const int64_t at = k / w->group * BLOCK + lane + c * HALF;
            for (int r = 0; r < rows; r++) {
                Floats whole = sum[r][c][0] + sum[r][c][1];
                if (zeros) whole -= zeros_at(zeros + at) * sums[r];
                total[r][c] += whole * floats(scales + at);
            }
        }
    }
    for (int c = 0; c < columns; c++) {
        const int64_t first = block * BLOCK + lane + c * HALF;
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < HALF && first + i < w->out_features; i++)
                out[r * w->out_features + first + i] = total[r][c][i] * w->factor;
    }
}

/* A whole block for some rows, COLUMNS eights at a time: as many as there are registers for. */
#define DEFINE(BITS, ROWS, COLUMNS)                                                                                   \
    static void block_##BITS##_##ROWS(const Grouped *w, const float *x, int64_t block, const float *scales,      \
                                           float *out) {                                                              \
        for (int lane = 0; lane < BLOCK; lane += COLUMNS * HALF)                                                      \
            product(BITS, ROWS, COLUMNS, w, x, block, lane, scales, out);                                             \
    }
DEFINE(4, 1, 4) DEFINE(4, 2, 2) DEFINE(4, 3, 1) DEFINE(4, 4, 1)
DEFINE(8, 1, 4) DEFINE(8, 2, 2) DEFINE(8, 3, 1) DEFINE(8, 4, 1)

typedef void (*Part)(const Grouped *, const float *, int64_t, const float *, float *);
static const Part PARTS[2][MOST_ROWS] = {{block_4_1, block_4_2, block_4_3, block_4_4},
                                         {block_8_1, block_8_2, block_8_3, block_8_4}};

/* out [rows, N] = x [rows, K] W^T, all float32. 0, or 1 where memory ran out. */
EXPORT int grouped_matmul_f32(const Grouped *w, const float *x, float *out, int64_t rows, int threads) {
    const int64_t blocks = blocks_of(w);
    float *arranged = scratch(arranged_size(w, rows) * sizeof(float));
    if (!arranged) return 1;
    grouped_arrange(w, x, 0, rows, MOST_ROWS, arranged);
    int failed = 0;
#pragma omp parallel for schedule(static) num_threads(product_threads(w->in_features * w->out_features, threads)) \
    reduction(| : failed)
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

INLINE void write_block(const int bits, const Grouped *w, int64_t block, const float *scales, float *out, int64_t width) {
    const int per = 32 / bits;
    const uint32_t *codes = block_codes(w, block);
    const int8_t *zeros = block_zeros(w, block);
    for (int64_t k = 0; k < w->in_features; k += per, codes += BLOCK) {
        const int64_t g = k / w->group * BLOCK;
        _Pragma("GCC unroll 8") for (int j = 0; j < per; j++, out += width)
            for (int lane = 0; lane < BLOCK; lane += HALF) {
                Floats weights = value(bits, j, codes + lane, w->table);
                if (zeros) weights -= zeros_at(zeros + g + lane);
                weights *= floats(scales + g + lane);
                if (bits == 8) weights *= w->factor;
                memcpy(out + lane, &weights, sizeof weights);
            }
    }
}
static void write_4(const Grouped *w, int64_t block, const float *scales, float *out, int64_t width) {
    write_block(4, w, block, scales, out, width);
}
static void write_8(const Grouped *w, int64_t block, const float *scales, float *out, int64_t width) {
    write_block(8, w, block, scales, out, width);
}

/* out [K, 64 (stop - start)] = W^T of blocks [start, stop), exactly as grouped.h says. 0, or 1 where memory ran out. */
EXPORT int grouped_write_f32(const Grouped *w, int64_t start, int64_t stop, float *out, int threads) {
    int failed = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(| : failed)
    for (int64_t b = start; b < stop; b++) {
        const float *scales = grouped_scales(w, b);
        if (scales)
            (w->table ? write_4 : write_8)(w, b, scales, out + (b - start) * BLOCK, (stop - start) * BLOCK);
        else
            failed = 1;
    }
    return failed;
}
