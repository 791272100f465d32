/* Whole pages of packed keys or values as numbers, for kernels that read many rows at once. */
#include "attention_packed.h"
#include "threads.h"

/* A token's numbers, from codes that a constant number of bits has, to out[at]; scale and minimum by channel if not NULL. */
INLINE void unpack_token(const int kind, const int bits, const Layout *l, const uint8_t *codes, const Meta *meta,
                         int token, const uint16_t *scales, const uint16_t *minima, int64_t wide, void *out, int64_t at) {
    for (int b = 0; b < l->blocks; b++) {
        const int whole = is_whole(l, b);
        const Words bytes = read_codes(codes + b * LANES, whole);
        for (int p = 0; p < 8 / bits; p++) {
            const int64_t channel = channel_of(l, b, p);
            const int block = b * (8 / bits) + p;
            Floats x = code_of(kind, bits, p, bytes);
            if (scales)
                x = x * read_halves(scales + channel, whole) + read_halves(minima + channel, whole);
            else if (bits == 8)
                x *= meta->whole[token];
            else
                x = x * by_group(l, block, meta->pairs[token]) + by_group(l, block, meta->pairs[token] + 1);
            if (wide) {
                write_floats((float *)out + at + channel, x, whole);
            } else {
                uint16_t numbers[LANES];
                put_bfloat16(numbers, x);
                memcpy((uint16_t *)out + at + channel, numbers, whole ? sizeof numbers : sizeof numbers / 2);
            }
        }
    }
}

INLINE void unpack_with(const int kind, const int bits, const Side *s, const Layout *l, const int32_t *pages, int64_t page,
                        int64_t h, void *out, int64_t at, int64_t row) {
    const int64_t slot = (int64_t)pages[page] * PAGE, channels = s->kv_heads * s->width;
    const uint16_t *scales = NULL, *minima = NULL;
    Meta meta;
    if (s->by_channel) {
        scales = s->meta + pages[page / 2 * 2] * channels + h * s->width;
        minima = s->meta + pages[page / 2 * 2 + 1] * channels + h * s->width;
    } else {
        read_meta(bits, s->meta, slot, s->kv_heads, h, s->width, PAGE, &meta);
    }
    for (int i = 0; i < PAGE; i++)
        unpack_token(kind, bits, l, s->codes + (slot + i) * s->slot + h * s->head, &meta, i, scales, minima, s->wide, out,
                     at + i * row);
}

static void unpack_at(const Side *s, const Layout *l, const int32_t *pages, int64_t page, int64_t h, void *out, int64_t at,
                      int64_t row) {
    if (s->floats)
        unpack_with(FP8, 8, s, l, pages, page, h, out, at, row);
    else if (s->bits == 8)
        unpack_with(INT8, 8, s, l, pages, page, h, out, at, row);
    else if (s->bits == 4)
        unpack_with(INT4, 4, s, l, pages, page, h, out, at, row);
    else
        unpack_with(KIVI, 2, s, l, pages, page, h, out, at, row);
}

void unpack_head(const Side *s, const Layout *l, const int32_t *pages, int64_t page, int64_t h, float *out, int64_t row) {
    unpack_at(s, l, pages, page, h, out, 0, row);
}

typedef struct {
    const Side *side;
    Layout layout;
    const int32_t *pages;
    void *out;
} Unpacking;

static void unpack_one(const void *of, int64_t page) {
    const Unpacking *u = of;
    const int64_t width = u->side->width, row = u->side->kv_heads * width;
    for (int64_t h = 0; h < u->side->kv_heads; h++)
        unpack_at(u->side, &u->layout, u->pages, page, h, u->out, page * PAGE * row + h * width, row);
}

/* out [count * 16, kv_heads, width] = the numbers of ``count`` pages, an even count where scales are by channel. */
static void unpack(const Side *s, const int32_t *pages, int64_t count, void *out, int threads) {
    const Unpacking all = {s, layout_of(s->width, s->bits), pages, out};
    share_out(unpack_one, &all, count, count * s->kv_heads * s->width < 4096 ? 1 : threads);
}

/* Keys and values of pages, float32 where a->wide; its pages, rows and what belongs to queries do not matter. */
EXPORT void unpack_pages(const Attend *a, const int32_t *pages, int64_t count, void *k, void *v, int threads) {
    const Side keys = keys_of(a, a->wide), values = values_of(a, a->wide);
    unpack(&keys, pages, count, k, threads);
    unpack(&values, pages, count, v, threads);
}
