/* Products with ggml's blocks (ggml.h), data [N, row_bytes].
 *
 * Codes are multiplied as they are, exact also in bfloat16, and scales and offsets come to the sums of a run, in float32:
 * weights are never rounded. A row of x meets the weights in the same order whatever other rows there are: results do
 * not depend on the batch.
 */
#include "ggml.h"
#include "ggml_avx512.h"

enum { TILE = 8, MOST_ROWS = 8 };
/* Input features of several rows that stay in the nearest cache while the weights of a tile go by. */
enum { PIECE = 1024 };

/* Runs of 16 in a row, those of an incomplete last step included. */
static int64_t runs_of(const Ggml *w) { return (w->in_features + STEP - 1) / STEP * RUNS; }

#ifdef __AVX512BF16__

/* ------------------------------------------------------------------ bfloat16 activations, AVX-512 BF16 */

/* Two sums in lanes, so that an addition need not wait for the one before it. */
typedef struct { __m512 sums[2]; } Total;

/* ``rows`` rows of x, each ``length`` long, times as much of a row of weights from ``p`` on, of which ``left`` are left;
 * type and rows are constants after inlining. */
INLINE void bf16_product(const int type, const int rows, const uint8_t *p, int64_t left, const uint16_t *x,
                                const float *sums, int64_t length, Total *totals) {
    const int64_t bytes = step_bytes(type), runs = length / 16;
    /* Where the next piece is, whose turn comes after those of the tile's other features; one row has no pieces. */
    const int64_t ahead = bytes * (PIECE / STEP);
    const int offsets = has_offsets(type);
    __m512 total[MOST_ROWS][2];
    for (int r = 0; r < rows; r++) total[r][0] = totals[r].sums[0], total[r][1] = totals[r].sums[1];
    for (int64_t k = 0; k < length && k < left; k += STEP, p += bytes) {
        const int whole = (type >= Q2_K && type <= Q6_K) || type == IQ4_XS || left - k >= STEP;
        const int parts = whole ? 8 : (int)(left - k) / 32;
        for (int64_t line = 0; rows > 1 && line < bytes; line += 64)
            _mm_prefetch((const char *)p + ahead + line, _MM_HINT_T0);
        const Head head = head_of(type, p, parts);
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) {
            if (i >= parts) break;
            const __m512bh codes = codes_of(type, p, i);
            const __m512 scale = scale_of(type, p, i, &head);
            for (int r = 0; r < rows; r++) {
                const __m512i values = _mm512_loadu_si512(x + r * length + k + 32 * i);
                const __m512 part = _mm512_dpbf16_ps(_mm512_setzero_ps(), codes, (__m512bh)values);
                total[r][i % 2] = _mm512_fmadd_ps(part, scale, total[r][i % 2]);
            }
        }
        if (offsets)
            for (int r = 0; r < rows; r++)
                total[r][0] = _mm512_fmadd_ps(head.offsets, _mm512_loadu_ps(sums + r * runs + k / 16), total[r][0]);
    }
    for (int r = 0; r < rows; r++) totals[r].sums[0] = total[r][0], totals[r].sums[1] = total[r][1];
}

#define DEFINE_BF16(TYPE, ROWS)                                                                                     \
    static void bf16_##TYPE##_##ROWS(const uint8_t *p, int64_t left, const uint16_t *x, const float *sums,   \
                                            int64_t length, Total *totals) {                                        \
        bf16_product(TYPE, ROWS, p, left, x, sums, length, totals);                                                 \
    }
#define DEFINE_TYPE(TYPE)                                                                                           \
    DEFINE_BF16(TYPE, 1) DEFINE_BF16(TYPE, 2) DEFINE_BF16(TYPE, 3) DEFINE_BF16(TYPE, 4)                             \
    DEFINE_BF16(TYPE, 5) DEFINE_BF16(TYPE, 6) DEFINE_BF16(TYPE, 7) DEFINE_BF16(TYPE, 8)
DEFINE_TYPE(Q8_0)
DEFINE_TYPE(Q4_K)
DEFINE_TYPE(Q5_K)
DEFINE_TYPE(Q6_K)
DEFINE_TYPE(Q2_K)
DEFINE_TYPE(Q3_K)
DEFINE_TYPE(Q4_1)
DEFINE_TYPE(Q5_0)
DEFINE_TYPE(Q5_1)
DEFINE_TYPE(IQ4_NL)
DEFINE_TYPE(IQ4_XS)
DEFINE_TYPE(MXFP4)
DEFINE_TYPE(Q4_0)

typedef void (*Product)(const uint8_t *, int64_t, const uint16_t *, const float *, int64_t, Total *);
#define ROW_OF(TYPE)                                                                                                \
    {bf16_##TYPE##_1, bf16_##TYPE##_2, bf16_##TYPE##_3, bf16_##TYPE##_4,                                            \
     bf16_##TYPE##_5, bf16_##TYPE##_6, bf16_##TYPE##_7, bf16_##TYPE##_8}
static const Product *products_for(int64_t type) {
#define CASE_OF(TYPE)                                                                                               \
    case TYPE: {                                                                                                    \
        static const Product products[MOST_ROWS] = ROW_OF(TYPE);                                                    \
        return products;                                                                                            \
    }
    switch (type) {
        CASE_OF(Q8_0) CASE_OF(Q2_K) CASE_OF(Q3_K) CASE_OF(Q4_K) CASE_OF(Q5_K) CASE_OF(Q6_K)
        CASE_OF(Q4_1) CASE_OF(Q5_0) CASE_OF(Q5_1) CASE_OF(IQ4_NL) CASE_OF(IQ4_XS) CASE_OF(MXFP4)
        default: break;
    }
    static const Product others[MOST_ROWS] = ROW_OF(Q4_0);
    return others;
}

/* Row r of piece c of x begins at (c * rows + r) * length, and so do, by sixteenths, the sums of its runs. */
typedef struct {
    const uint16_t *x;
    float *sums;
    int64_t rows, length, pieces;
} Pieces;

static void sum_runs(const Pieces *in, const uint16_t *x, int64_t K) {
    const int64_t runs = in->length / 16;
    for (int64_t c = 0; c < in->pieces; c++)
        for (int64_t r = 0; r < in->rows; r++)
            for (int64_t i = 0; i < runs; i++) {
                __m512 values = _mm512_setzero_ps();
                if (c * in->length + 16 * i < K) {
                    const uint16_t *at = x + r * K + c * in->length + 16 * i;
                    const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at));
                    values = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
                }
                in->sums[(c * in->rows + r) * runs + i] = _mm512_reduce_add_ps(values);
            }
}

/* Output features [n, stop), at most TILE, for all rows. */
static void bf16_tile(const Ggml *w, const Pieces *in, int64_t n, int64_t stop, float *out) {
    const Product *products = products_for(w->type);
    const int64_t bytes = step_bytes(w->type) * (in->length / STEP);
    for (int64_t r = 0; r < in->rows; r += MOST_ROWS) {
        const int now = in->rows - r < MOST_ROWS ? (int)(in->rows - r) : MOST_ROWS;
        Total totals[TILE][MOST_ROWS];
        memset(totals, 0, sizeof totals);
        for (int64_t c = 0; c < in->pieces; c++) {
            const int64_t at = (c * in->rows + r) * in->length;
            const float *sums = in->sums ? in->sums + at / 16 : NULL;
            for (int64_t i = n; i < stop; i++)
                products[now - 1](w->data + i * w->row_bytes + c * bytes, w->in_features - c * in->length, in->x + at,
                                  sums, in->length, totals[i - n]);
        }
        for (int64_t i = n; i < stop; i++)
            for (int j = 0; j < now; j++)
                out[(r + j) * w->out_features + i] =
                    _mm512_reduce_add_ps(_mm512_add_ps(totals[i - n][j].sums[0], totals[i - n][j].sums[1]));
    }
}

/* out [rows, N] float32 = x [rows, K] bfloat16 times W^T, sums in float32. 0, or 1 where memory ran out. */
EXPORT int ggml_matmul_bf16(const Ggml *w, const uint16_t *x, float *out, int64_t rows, int threads) {
    const int64_t K = w->in_features, N = w->out_features, whole = (K + STEP - 1) / STEP * STEP;
    const int64_t length = rows == 1 || whole < PIECE ? whole : PIECE, pieces = (whole + length - 1) / length;
    const size_t numbers = (size_t)(rows * length * pieces);
    const size_t sums = has_offsets(w->type) ? (numbers / 16 * sizeof(float) + 63) / 64 * 64 : 0;
    char *bytes = scratch(sums + (rows == 1 ? 0 : numbers * 2) + 64);
    if (!bytes) return 1;
    const Pieces in = {rows == 1 ? x : (uint16_t *)(bytes + sums), sums ? (float *)bytes : NULL, rows, length, pieces};
    if (sums) sum_runs(&in, x, K);
    for (int64_t i = 0; rows > 1 && i < rows * pieces; i++) {
        const int64_t k = i / rows * length, count = K - k < length ? K - k : length;
        memcpy(bytes + sums + i * length * 2, x + i % rows * K + k, (size_t)count * 2);
    }
#pragma omp parallel for schedule(static) num_threads(product_threads(w->in_features * w->out_features, threads))
    for (int64_t n = 0; n < N; n += TILE) bf16_tile(w, &in, n, n + TILE < N ? n + TILE : N, out);
    return 0;
}

/* Multiplied and added in two roundings, as ggml does it, before the one to bfloat16 (which has no subnormal numbers). */
static void round_step(const Unpacked *from, int64_t runs, uint16_t *out) {
    for (int64_t run = 0; run < runs; run++, out += 16) {
        const __m128i codes = _mm_load_si128((const __m128i *)from->codes + run);
        /* This form of the product is never fused with the sum. */
        const __m512 scaled = _mm512_mul_round_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)),
                                                  _mm512_set1_ps(from->scales[run]),
                                                  _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m512 weights = _mm512_add_ps(scaled, _mm512_set1_ps(from->offsets[run]));
        _mm256_storeu_si256((__m256i *)out, (__m256i)_mm512_cvtneps_pbh(weights));
    }
}

/* out [stop - start, K] bfloat16 = rows [start, stop) of W, each weight rounded to float32 as ggml does it, then once. */
EXPORT void ggml_round_bf16(const Ggml *w, int64_t start, int64_t stop, uint16_t *out, int threads) {
    const int64_t K = w->in_features, bytes = step_bytes(w->type);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = start; n < stop; n++)
        for (int64_t k = 0; k < K; k += STEP) {
            Unpacked unpacked;
            ggml_unpack(w->type, w->data + n * w->row_bytes + k / STEP * bytes, K - k, &unpacked);
            round_step(&unpacked, K - k < STEP ? (K - k) / 16 : RUNS, out + (n - start) * K + k);
        }
}

#endif

/* ------------------------------------------------------------------ float32 activations, any vector unit */

typedef float Floats __attribute__((vector_size(32)));
typedef int8_t Bytes __attribute__((vector_size(8)));
enum { LANES = 8, MOST_ROWS_F32 = 4 };

INLINE Floats floats(const float *values) {
    Floats result;
    memcpy(&result, values, sizeof result);
    return result;
}

INLINE Floats code_values(const int8_t *codes) {
    Bytes result;
    memcpy(&result, codes, sizeof result);
    return __builtin_convertvector(result, Floats);
}

/* ``rows`` (a constant after inlining) rows of x times one row of weights. */
INLINE void f32_product(const int rows, const Ggml *w, const uint8_t *p, const float *x, const float *sums, float *out) {
    const int64_t K = w->in_features, runs = runs_of(w), bytes = step_bytes(w->type);
    Floats total[MOST_ROWS_F32] = {0};
    for (int64_t k = 0; k < K; k += STEP, p += bytes) {
        Unpacked unpacked;
        ggml_unpack(w->type, p, K - k, &unpacked);
        const int64_t left = K - k < STEP ? K - k : STEP;
        for (int64_t i = 0; i < left; i += 16) {
            const Floats low = code_values(unpacked.codes + i), high = code_values(unpacked.codes + i + LANES);
            for (int r = 0; r < rows; r++) {
                const float *at = x + r * K + k + i;
                total[r] += (low * floats(at) + high * floats(at + LANES)) * unpacked.scales[i / 16];
            }
        }
        if (sums)
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < RUNS; i += LANES)
                    total[r] += floats(unpacked.offsets + i) * floats(sums + r * runs + k / 16 + i);
    }
    for (int r = 0; r < rows; r++) {
        float sum = 0;
        for (int i = 0; i < LANES; i++) sum += total[r][i];
        out[r * w->out_features] = sum;
    }
}

/* One row of weights for all rows of x, a few at a time. */
static void f32_feature(const Ggml *w, int64_t n, int64_t rows, const float *x, const float *sums, float *out) {
    const uint8_t *p = w->data + n * w->row_bytes;
    for (int64_t r = 0; r < rows; r += MOST_ROWS_F32) {
        const float *at = x + r * w->in_features, *its = sums ? sums + r * runs_of(w) : NULL;
        float *to = out + r * w->out_features + n;
        switch (rows - r) {
        case 1: f32_product(1, w, p, at, its, to); break;
        case 2: f32_product(2, w, p, at, its, to); break;
        case 3: f32_product(3, w, p, at, its, to); break;
        default: f32_product(4, w, p, at, its, to);
        }
    }
}

/* out [rows, N] = x [rows, K] W^T, all float32. 0, or 1 where memory ran out. */
EXPORT int ggml_matmul_f32(const Ggml *w, const float *x, float *out, int64_t rows, int threads) {
    const int64_t K = w->in_features, runs = runs_of(w);
    float *sums = NULL;
    if (has_offsets(w->type)) {
        if (!(sums = scratch((size_t)(rows * runs) * sizeof(float)))) return 1;
        memset(sums, 0, (size_t)(rows * runs) * sizeof(float));
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < K; k++) sums[r * runs + k / 16] += x[r * K + k];
    }
#pragma omp parallel for schedule(static) num_threads(product_threads(w->in_features * w->out_features, threads))
    for (int64_t n = 0; n < w->out_features; n++) f32_feature(w, n, rows, x, sums, out);
    return 0;
}
