/* What all native code shares. */
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
#define INLINE static inline __attribute__((always_inline))

/* Every source is compiled once for each set of instructions (instructions.py), into a library of its own, which only
 * processors that have them load: what a set offers is asked of the compiler (__AVX2__, __AVX512BF16__). */
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

typedef struct {
    char *bytes;
    size_t size;
} Buffer;

/* Room for so many bytes, which what was there before does not survive. NULL where memory ran out. */
static inline void *room_of(Buffer *buffer, size_t size) {
    if (!buffer->bytes || buffer->size < size) {
        free(buffer->bytes);
        buffer->bytes = aligned_alloc(64, size / 64 * 64 + 64);
        buffer->size = buffer->bytes ? size : 0;
    }
    return buffer->bytes;
}

/* Give up what is larger than so many bytes. */
static inline void keep_small(Buffer *buffer, size_t most) {
    if (buffer->size <= most) return;
    free(buffer->bytes);
    *buffer = (Buffer){0};
}

/* One buffer a thread for each file of code, grown as needed. NULL where memory ran out. */
static _Thread_local Buffer held;
static inline void *scratch(size_t size) { return room_of(&held, size); }

/* Threads for a product with so many weights: below a few a second thread costs more than it gives. */
static inline int product_threads(int64_t weights, int threads) { return weights < 1 << 18 ? 1 : threads; }

/* A float16 given by its bits; exact, and in C that every compiler has. No operand is subnormal: processors are slow with
 * those, and the outer scales of K-quants usually are, as float16. */
INLINE float half_value(uint16_t half) {
    const uint32_t exponent = half & 0x7C00;
    uint32_t bits = ((uint32_t)(half & 0x7FFF) << 13) + (112u << 23); /* the exponents' biases differ by 112 */
    float value = (float)(half & 0x3FF) * 0x1p-24f;
    if (!exponent) memcpy(&bits, &value, 4);
    if (exponent == 0x7C00) bits |= 0x7F800000; /* infinite, or not a number */
    bits |= (uint32_t)(half & 0x8000) << 16;
    memcpy(&value, &bits, 4);
    return value;
}
