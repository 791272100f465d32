/* The few operations on vectors that products of 8-bit numbers, and attention, are made of, for each set of instructions.
 *
 * For products a lane of a vector is an output feature. A Word holds four codes of consecutive input features, a byte each. Codes
 * below 128 are unsigned, and the middle of their range is taken off by what a sum starts from; others are signed. Sums
 * are of integers and exact, so that every set gives the same. Where they are of 16 bits a lane has two, which start
 * and end within 16 bits and may wrap in between.
 */
#pragma once
#include "native.h"

#if defined(__AVX512VNNI__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef int16_t Shorts __attribute__((vector_size(4 * LANES)));

INLINE Words words_at(const uint32_t *p) {
    Words result;
    memcpy(&result, p, sizeof result);
    return result;
}
INLINE Floats floats_at(const float *p) {
    Floats result;
    memcpy(&result, p, sizeof result);
    return result;
}
INLINE void put_floats(float *p, Floats values) { memcpy(p, &values, sizeof values); }
/* Compilers otherwise make all products of a span before they add any, and run out of registers. */
#if defined(__x86_64__)
#define IN_ORDER(sum) __asm__("" : "+x"(sum))
#elif defined(__aarch64__)
#define IN_ORDER(sum) __asm__("" : "+w"(sum))
#else
#define IN_ORDER(sum)
#endif
/* A product that is rounded before anything is added to it, on every processor. */
INLINE Floats times(Floats values, float factor) {
    values *= factor;
    IN_ORDER(values);
    return values;
}
INLINE Ints every(int32_t value) { return (Ints){0} + value; }

/* float16, exactly. */
INLINE Floats halves_at(const uint16_t *p) {
#if defined(__AVX512VNNI__)
    return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__AVX2__)
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#elif defined(__ARM_NEON)
    return (Floats)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
    Floats result;
    for (int i = 0; i < LANES; i++) result[i] = half_value(p[i]);
    return result;
#endif
}

/* Vectors of sums that are held at once, whatever else is in the registers meanwhile. */
#if defined(__AVX512VNNI__) || defined(__aarch64__)
enum { HELD = 16 };
#else
enum { HELD = 8 };
#endif

INLINE Floats every_float(float value) { return value - (Floats){0}; }
/* Lanes of a where those of mask are -1, and of b where they are 0. */
INLINE Floats chosen(Ints mask, Floats a, Floats b) { return (Floats)((mask & (Ints)a) | (~mask & (Ints)b)); }

/* Lane j of rows[i] becomes lane i of rows[j]. */
INLINE void transpose(Floats *rows) {
    Floats mixed[LANES];
#if defined(__AVX512VNNI__)
    const __m512i lower = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i upper = _mm512_add_epi32(lower, _mm512_set1_epi32(8));
#pragma GCC unroll 16
    for (int n = 1; n < LANES; n *= 2) { /* halves of the rows interleaved, four times */
#pragma GCC unroll 16
        for (int i = 0; i < LANES / 2; i++) {
            const __m512 a = (__m512)rows[i], b = (__m512)rows[i + LANES / 2];
            mixed[2 * i] = (Floats)_mm512_permutex2var_ps(a, lower, b);
            mixed[2 * i + 1] = (Floats)_mm512_permutex2var_ps(a, upper, b);
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) rows[i] = mixed[i];
    }
#elif defined(__AVX2__)
    for (int i = 0; i < 8; i += 4) { /* squares of four, in each half */
        const __m256 a = (__m256)rows[i], b = (__m256)rows[i + 1], c = (__m256)rows[i + 2], d = (__m256)rows[i + 3];
        const __m256d ab = (__m256d)_mm256_unpacklo_ps(a, b), cd = (__m256d)_mm256_unpacklo_ps(c, d);
        const __m256d later_ab = (__m256d)_mm256_unpackhi_ps(a, b), later_cd = (__m256d)_mm256_unpackhi_ps(c, d);
        mixed[i] = (Floats)_mm256_unpacklo_pd(ab, cd), mixed[i + 1] = (Floats)_mm256_unpackhi_pd(ab, cd);
        mixed[i + 2] = (Floats)_mm256_unpacklo_pd(later_ab, later_cd);
        mixed[i + 3] = (Floats)_mm256_unpackhi_pd(later_ab, later_cd);
    }
    for (int i = 0; i < 4; i++) {
        rows[i] = (Floats)_mm256_permute2f128_ps((__m256)mixed[i], (__m256)mixed[i + 4], 0x20);
        rows[i + 4] = (Floats)_mm256_permute2f128_ps((__m256)mixed[i], (__m256)mixed[i + 4], 0x31);
    }
#else
    for (int j = 0; j < LANES; j++) mixed[j] = (Floats){rows[0][j], rows[1][j], rows[2][j], rows[3][j]};
    for (int j = 0; j < LANES; j++) rows[j] = mixed[j];
#endif
}

INLINE float sum_of_lanes(Floats values) {
#if defined(__AVX512VNNI__)
    return _mm512_reduce_add_ps((__m512)values);
#else
    float all[LANES];
    put_floats(all, values);
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) all[i] += all[i + n];
    return all[0];
#endif
}
INLINE float largest_lane(Floats values) {
#if defined(__AVX512VNNI__)
    return _mm512_reduce_max_ps((__m512)values);
#else
    float all[LANES];
    put_floats(all, values);
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) all[i] = all[i + n] > all[i] ? all[i + n] : all[i];
    return all[0];
#endif
}

#if defined(__AVX512VNNI__)
INLINE __m512 four_by_lane(const Floats *v) {
    const __m512 a = (__m512)v[0], b = (__m512)v[1], c = (__m512)v[2], d = (__m512)v[3];
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
#elif defined(__AVX2__)
INLINE __m256 four_by_lane(const Floats *v) {
    const __m256 a = (__m256)v[0], b = (__m256)v[1], c = (__m256)v[2], d = (__m256)v[3];
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const __m256d x = _mm256_castps_pd(ab), y = _mm256_castps_pd(cd);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
#endif
/* Lane i is the sum of the lanes of v[i], added in the same order for every i. */
INLINE Floats sums_of(const Floats *v) {
#if defined(__AVX512VNNI__)
    const __m512 a = four_by_lane(v), b = four_by_lane(v + 4), c = four_by_lane(v + 8), d = four_by_lane(v + 12);
    const __m512 x = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    const __m512 y = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
    return (Floats)_mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xDD));
#elif defined(__AVX2__)
    const __m256 a = four_by_lane(v), b = four_by_lane(v + 4);
    return (Floats)_mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
#elif defined(__aarch64__)
    return (Floats)vpaddq_f32(vpaddq_f32((float32x4_t)v[0], (float32x4_t)v[1]),
                              vpaddq_f32((float32x4_t)v[2], (float32x4_t)v[3]));
#else
    Floats result = {0};
    for (int i = 0; i < LANES; i++) result += (Floats){v[0][i], v[1][i], v[2][i], v[3][i]};
    return result;
#endif
}

typedef int32_t FourInts __attribute__((vector_size(16)));
/* The lowest byte of each lane. */
INLINE void put_bytes(int8_t *p, Ints values) {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
    const __m256i low = _mm256_set1_epi32(0x0C080400), bytes = _mm256_shuffle_epi8((__m256i)values, low);
    const int32_t halves[2] = {_mm256_extract_epi32(bytes, 0), _mm256_extract_epi32(bytes, 4)};
    memcpy(p, halves, sizeof halves);
#else
    typedef int8_t Bytes __attribute__((vector_size(LANES)));
    const Bytes bytes = __builtin_convertvector(values, Bytes);
    memcpy(p, &bytes, sizeof bytes);
#endif
}

/* Sums of every fourth lane, from the first four on. */
INLINE FourInts fourths(Ints values) {
    FourInts parts[LANES / 4];
    memcpy(parts, &values, sizeof parts);
    for (int n = LANES / 8; n; n /= 2)
        for (int i = 0; i < n; i++) parts[i] += parts[i + n];
    return parts[0];
}
INLINE int32_t largest_int(Ints values) {
    FourInts parts[LANES / 4];
    memcpy(parts, &values, sizeof parts);
    for (int n = LANES / 8; n; n /= 2)
        for (int i = 0; i < n; i++) {
            const FourInts above = parts[i] > parts[i + n];
            parts[i] = (parts[i] & above) | (parts[i + n] & ~above);
        }
    const int32_t a = parts[0][0] > parts[0][1] ? parts[0][0] : parts[0][1];
    const int32_t b = parts[0][2] > parts[0][3] ? parts[0][2] : parts[0][3];
    return a > b ? a : b;
}

/* e^x for x <= 0, to about 2 units in the last place, and 0 below e^-87 (Cody and Waite's reduction, a polynomial of
 * degree 6). */
INLINE Floats exponential(Floats x) {
    const Floats to_whole = every_float(0x1.8p23f), zero = {0};
    const Ints tiny = x < every_float(-87.0f); /* NaN is not, and stays */
    const Floats y = chosen(tiny, zero, x), moved = y * 1.44269504f + to_whole, n = moved - to_whole;
    const Floats r = y - n * 0.693359375f - n * -2.12194440e-4f;
    Floats p = r * 1.3888889e-3f + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const Words power = ((Words)moved - (Words)to_whole + 127) << 23;
    return chosen(tiny, zero, p * (Floats)power);
}

/* 1 / (1 + e^-x). */
INLINE Floats sigmoid(Floats x) {
    const Floats power = exponential((Floats)((Words)x | 0x80000000)), share = 1 / (1 + power);
    return chosen(x < 0, power * share, share);
}

/* tanh x, to about 2 units in the last place: a polynomial near 0 (Cephes' tanhf), and beyond it by e^(-2 |x|). */
INLINE Floats hyperbolic_tangent(Floats x) {
    const Words sign = (Words)x & 0x80000000;
    const Floats size = (Floats)((Words)x ^ sign), square = x * x;
    Floats p = square * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    const Floats power = exponential(size * -2), share = (1 - power) / (1 + power);
    return chosen(size < every_float(0.625f), x + x * (square * p), (Floats)((Words)share | sign));
}

/* bfloat16: of the numbers that a word holds, that of the lower half and that of the upper one. */
INLINE Floats lower_numbers(Words pairs) { return (Floats)(pairs << 16); }
INLINE Floats upper_numbers(Words pairs) { return (Floats)(pairs & 0xFFFF0000); }

typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

/* The next LANES numbers in bfloat16, in their order. */
INLINE Floats bfloat16_at(const uint16_t *p) {
#if defined(__AVX512VNNI__) /* a compiler makes two halves of it */
    return (Floats)((Words)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)) << 16);
#else
    Halves result;
    memcpy(&result, p, sizeof result);
    return (Floats)(__builtin_convertvector(result, Words) << 16);
#endif
}
/* Rounded to the nearest, and to even in the middle. */
INLINE void put_bfloat16(uint16_t *p, Floats values) {
    const Words bits = (Words)values;
    const Floats rounded = (Floats)(bits + 0x7FFF + (bits >> 16 & 1)), same = (Floats)(bits | 0x400000);
    const Halves result = __builtin_convertvector((Words)chosen(values == values, rounded, same) >> 16, Halves);
    memcpy(p, &result, sizeof result);
}

/* LANES bytes, each in a word of its own. */
INLINE Words widened_at(const uint8_t *p) {
#if defined(__AVX512VNNI__)
    return (Words)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif defined(__AVX2__)
    return (Words)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
#else
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return (Words){four, four >> 8, four >> 16, four >> 24} & 0xFF;
#endif
}
/* n numbers in float16 (even, at most LANES), and zeros. */
INLINE Floats some_halves(const uint16_t *p, int n) {
    if (n == LANES) return halves_at(p);
#if defined(__AVX512VNNI__)
    return (Floats)_mm512_cvtph_ps(_mm256_maskz_loadu_epi32((__mmask8)((1u << n / 2) - 1), p));
#elif defined(__AVX2__)
    const __m128i there = _mm_cmpgt_epi32(_mm_set1_epi32(n / 2), _mm_setr_epi32(0, 1, 2, 3));
    return (Floats)_mm256_cvtph_ps(_mm_maskload_epi32((const int *)p, there));
#else
    uint16_t all[LANES] = {0};
    for (int i = 0; i < n; i++) all[i] = p[i];
    return halves_at(all);
#endif
}

/* A word of a table for each lane. (Instructions that gather are slower, on some processors by far.) */
INLINE Words entries_at(const uint32_t *table, Words indices) {
    uint32_t at[LANES];
    memcpy(at, &indices, sizeof at);
#if defined(__AVX512VNNI__)
    return (Words){table[at[0]], table[at[1]], table[at[2]],  table[at[3]],  table[at[4]],  table[at[5]],  table[at[6]],  table[at[7]],
                   table[at[8]], table[at[9]], table[at[10]], table[at[11]], table[at[12]], table[at[13]], table[at[14]], table[at[15]]};
#elif defined(__AVX2__)
    return (Words){table[at[0]], table[at[1]], table[at[2]], table[at[3]], table[at[4]], table[at[5]], table[at[6]], table[at[7]]};
#else
    return (Words){table[at[0]], table[at[1]], table[at[2]], table[at[3]]};
#endif
}

/* Whether a lane's sums are one of 32 bits, or two of 16: of the first two of each four codes and of the others. */
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)
enum { WIDE = 1 };
#else
enum { WIDE = 0 };
#endif
/* Whether the sums of signed codes start from minus 128 times those of x, as unsigned ones do. */
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
enum { SHIFTED = 1 };
#else
enum { SHIFTED = 0 };
#endif

#if defined(__AVX512VNNI__)
INLINE Ints dot(Ints sum, Words codes, int32_t x) {
    return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, _mm512_set1_epi32(x));
}
INLINE Ints dot_signed(Ints sum, Words codes, int32_t x) { return dot(sum, codes ^ 0x80808080, x); }
INLINE Words look_up(Words codes, const int8_t *table) {
    const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
    return (Words)_mm512_shuffle_epi8(all, (__m512i)codes);
}
#elif defined(__AVX2__)
INLINE Words look_up(Words codes, const int8_t *table) {
    const __m256i all = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (Words)_mm256_shuffle_epi8(all, (__m256i)codes);
}
#if defined(__AVXVNNI__)
INLINE Ints dot(Ints sum, Words codes, int32_t x) {
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)codes, _mm256_set1_epi32(x));
}
INLINE Ints dot_signed(Ints sum, Words codes, int32_t x) { return dot(sum, codes ^ 0x80808080, x); }
#else
INLINE Ints dot(Ints sum, Words codes, int32_t x) {
    return (Ints)((Shorts)sum + (Shorts)_mm256_maddubs_epi16((__m256i)codes, _mm256_set1_epi32(x)));
}
INLINE Ints dot_signed(Ints sum, Words codes, int32_t x) {
    const __m256i signs = _mm256_sign_epi8(_mm256_set1_epi32(x), (__m256i)codes);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)codes), signs);
    return sum + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
INLINE Ints joined(Ints sums) { return (Ints)_mm256_madd_epi16((__m256i)sums, _mm256_set1_epi16(1)); }
#endif
#elif defined(__ARM_FEATURE_DOTPROD)
INLINE Ints dot_signed(Ints sum, Words codes, int32_t x) {
    return (Ints)vdotq_s32((int32x4_t)sum, (int8x16_t)codes, vreinterpretq_s8_s32(vdupq_n_s32(x)));
}
INLINE Ints dot(Ints sum, Words codes, int32_t x) { return dot_signed(sum, codes, x); }
INLINE Words look_up(Words codes, const int8_t *table) { return (Words)vqtbl1q_s8(vld1q_s8(table), (uint8x16_t)codes); }
#else
/* The products of the lower bytes of 16-bit numbers, and those of the upper ones, added up. */
INLINE Shorts pairs_of(Words codes, int32_t x, int is_signed) {
    const Shorts number = (Shorts)every(x), low = number << 8 >> 8, high = number >> 8;
    if (is_signed) return ((Shorts)codes << 8 >> 8) * low + ((Shorts)codes >> 8) * high;
    return (Shorts)(codes & 0x00FF00FF) * low + (Shorts)(codes >> 8 & 0x00FF00FF) * high;
}
INLINE Ints joined(Ints sums) { return (sums << 16 >> 16) + (sums >> 16); }
INLINE Ints dot(Ints sum, Words codes, int32_t x) { return (Ints)((Shorts)sum + pairs_of(codes, x, 0)); }
INLINE Ints dot_signed(Ints sum, Words codes, int32_t x) { return sum + joined((Ints)pairs_of(codes, x, 1)); }
INLINE Words look_up(Words codes, const int8_t *table) {
    uint8_t bytes[sizeof codes];
    memcpy(bytes, &codes, sizeof codes);
    for (size_t i = 0; i < sizeof codes; i++) bytes[i] = (uint8_t)table[bytes[i]];
    memcpy(&codes, bytes, sizeof codes);
    return codes;
}
#endif
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)
INLINE Ints joined(Ints sums) { return sums; }
#endif
