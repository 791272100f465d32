/* Numbers of rows in either type, and what rows.c has for other code. */
#pragma once
#include "simd.h"

INLINE Floats numbers_at(const void *p, int64_t i, int bfloat16) {
    return bfloat16 ? bfloat16_at((const uint16_t *)p + i) : floats_at((const float *)p + i);
}
INLINE void put_numbers(void *p, int64_t i, Floats values, int bfloat16) {
    if (bfloat16) put_bfloat16((uint16_t *)p + i, values);
    else put_floats((float *)p + i, values);
}

/* What a gated block does between its products: what GATINGS of library.py names. */
enum { SILU, GELU_TANH, CLAMPED };

/* Row ``row`` of out [.., size] from that of x [.., 2 size]: see gate. */
void gate_numbers(int kind, int bfloat16, const void *x, int64_t row, int64_t size, float limit, float alpha, void *out);
