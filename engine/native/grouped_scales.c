/* Grouped codes (grouped.h): scales in float32, whatever they are held in, and activations as products read them. */
#include "grouped.h"

static void unnest(const Grouped *w, int64_t block, const uint8_t *bytes, float *out) {
    const int64_t groups = groups_of(w), size = w->nested_size;
    for (int64_t lane = 0; lane < BLOCK; lane++) {
        /* Lanes beyond the last feature have no scales; whatever stands there is not used. */
        const int64_t n = block * BLOCK + lane, first = (n < w->out_features ? n : w->out_features - 1) * groups;
        for (int64_t g = 0; g < groups;) {
            const int64_t place = (first + g) / size, stop = (place + 1) * size - first;
            const float outer = w->nested_scales[place];
            for (; g < groups && g < stop; g++) out[g * BLOCK + lane] = w->nested_table[bytes[g * BLOCK + lane]] * outer;
        }
    }
    /* Products are rounded before the sum: the compiler may not fuse the two. */
    __asm__ volatile("" ::: "memory");
    for (int64_t i = 0; i < groups * BLOCK; i++) out[i] += w->nested_offset;
}

const float *grouped_scales(const Grouped *w, int64_t block) {
    const int64_t count = groups_of(w) * BLOCK;
    if (w->scale_type == SCALES_F32) return (const float *)w->scales + block * count;
    float *out = scratch((size_t)count * sizeof(float));
    if (!out) return NULL;
    const uint16_t *halves = (const uint16_t *)w->scales + block * count;
    if (w->scale_type == NESTED)
        unnest(w, block, (const uint8_t *)w->scales + block * count, out);
    else if (w->scale_type == SCALES_F16)
        for (int64_t i = 0; i < count; i++) out[i] = half_value(halves[i]);
    else
        for (int64_t i = 0; i < count; i++) {
            const uint32_t bits = (uint32_t)halves[i] << 16;
            memcpy(out + i, &bits, 4);
        }
    return out;
}

static float activation(const void *x, int bfloat16, int64_t place) {
    if (!bfloat16) return ((const float *)x)[place];
    const uint32_t bits = (uint32_t)((const uint16_t *)x)[place] << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

void grouped_arrange(const Grouped *w, const void *x, int bfloat16, int64_t rows, int64_t most, float *out) {
    const int64_t K = w->in_features, span = span_of(w);
    for (int64_t row = 0; row < rows; row += most) {
        const int64_t now = rows - row < most ? rows - row : most;
        for (int64_t r = 0; r < now; r++)
            for (int64_t k = 0; k < K; k++) out[k * now + r] = activation(x, bfloat16, (row + r) * K + k);
        const float *lot = out;
        out += K * now;
        if (!w->zeros) continue;
        for (int64_t i = 0; i < K / span; i++, out += now)
            for (int64_t r = 0; r < now; r++) {
                float sum = 0;
                for (int64_t k = i * span; k < (i + 1) * span; k++) sum += lot[k * now + r];
                out[r] = sum;
            }
    }
}
