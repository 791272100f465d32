/* Packed codes with their input features in another order, for groups that are not runs of them (GPTQ's act-order). */
#include "native.h"

/* Output features at a time: few enough that their words of all input features stay in a cache. */
enum { PART = 64 };

INLINE void reorder_part(const int bits, const uint32_t *words, int64_t stride, const int32_t *order, int64_t count,
                              int64_t width, int64_t columns, uint32_t *out) {
    const int per = 32 / bits;
    const uint32_t mask = (1u << bits) - 1;
    for (int64_t i = 0; i < count; i++, out += columns) {
        uint32_t found[PART] = {0};
        for (int j = 0; j < per; j++) {
            const int32_t from = order[i * per + j];
            const uint32_t *row = words + from / per * stride;
            const int right = from % per * bits, left = j * bits;
            if (width == PART)
                for (int64_t n = 0; n < PART; n++) found[n] |= (row[n] >> right & mask) << left;
            else
                for (int64_t n = 0; n < width; n++) found[n] |= (row[n] >> right & mask) << left;
        }
        memcpy(out, found, (size_t)width * sizeof *out);
    }
}
static void reorder_4(const uint32_t *words, int64_t stride, const int32_t *order, int64_t count, int64_t width,
                           int64_t columns, uint32_t *out) {
    reorder_part(4, words, stride, order, count, width, columns, out);
}
static void reorder_8(const uint32_t *words, int64_t stride, const int32_t *order, int64_t count, int64_t width,
                           int64_t columns, uint32_t *out) {
    reorder_part(8, words, stride, order, count, width, columns, out);
}

/* words [count, columns], rows ``stride`` apart, of 32 / bits codes each (bits 4 or 8), the first lowest -> out
 * [count, columns], whose code k of a column is code order[k] of words. */
EXPORT void reorder_codes(const uint32_t *words, int64_t stride, const int32_t *order, int64_t count, int64_t columns, int bits,
                          uint32_t *out, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t first = 0; first < columns; first += PART) {
        const int64_t width = columns - first < PART ? columns - first : PART;
        (bits == 4 ? reorder_4 : reorder_8)(words + first, stride, order, count, width, columns, out + first);
    }
}
