/* What lies between products, row by row. */
#include "simd.h"

INLINE Floats numbers_at(const void *p, int64_t i, int bfloat16) {
    return bfloat16 ? bfloat16_at((const uint16_t *)p + i) : floats_at((const float *)p + i);
}
INLINE void put_numbers(void *p, int64_t i, Floats values, int bfloat16) {
    if (bfloat16) put_bfloat16((uint16_t *)p + i, values);
    else put_floats((float *)p + i, values);
}

/* x += scale * added for a row, in the type of x. */
INLINE void add_row(const int bfloat16, void *x, const void *added, float scale, int64_t first, int64_t size) {
    for (int64_t i = first; i < first + size; i += LANES) {
        const Floats before = numbers_at(x, i, bfloat16);
        Floats more = numbers_at(added, i, bfloat16);
        if (scale != 1) { /* the product is rounded like the sum; x has its place meanwhile */
            put_numbers(x, i, times(more, scale), bfloat16);
            more = numbers_at(x, i, bfloat16);
        }
        put_numbers(x, i, before + more, bfloat16);
    }
}

INLINE void norm_row(const int bfloat16, const void *x, const void *weight, const int bfloat16_weight, float eps, void *out,
                     int64_t first, int64_t size) {
    Floats squares = {0};
    for (int64_t i = first; i < first + size; i += LANES) {
        const Floats value = numbers_at(x, i, bfloat16);
        squares += value * value;
    }
    const float inverse = 1 / sqrtf(sum_of_lanes(squares) / (float)size + eps);
    for (int64_t i = 0; i < size; i += LANES) {
        const Floats value = numbers_at(x, first + i, bfloat16) * inverse;
        put_numbers(out, first + i, value * numbers_at(weight, i, bfloat16_weight), bfloat16);
    }
}

/* out [rows, size] = the root mean square norm of x [rows, size], to which scale * added is added before, unless that is
 * NULL. x, added and out are bfloat16 or float32, and weight [size] is either. size is a multiple of 16. */
EXPORT void norm(void *x, const void *added, float scale, int bfloat16, const void *weight, int bfloat16_weight, float eps,
                 void *out, int64_t rows, int64_t size, int threads) {
    threads = product_threads(rows * size, threads);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t first = 0; first < rows * size; first += size) {
        if (bfloat16) {
            if (added) add_row(1, x, added, scale, first, size);
            norm_row(1, x, weight, bfloat16_weight, eps, out, first, size);
        } else {
            if (added) add_row(0, x, added, scale, first, size);
            norm_row(0, x, weight, bfloat16_weight, eps, out, first, size);
        }
    }
}
