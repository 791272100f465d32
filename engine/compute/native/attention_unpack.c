/* Whole pages of packed keys or values as numbers, for kernels that read many rows at once. */
#include "attention_packed.h"
#include "threads.h"

/* One side of the cache, as Attend describes it; by_channel: each page pair has a scale for each channel (KIVI's keys);
 * floats: codes are those of FP8; wide: numbers become float32, else bfloat16. */
typedef struct {
    const uint8_t *codes;
    const uint16_t *meta;
    int64_t kv_heads, width, slot, head, bits, by_channel, floats, wide;
} Side;

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

INLINE void unpack_page(const int kind, const int bits, const Side *s, const Layout *l, const int32_t *pages, int64_t page,
                        void *out) {
    const int64_t slot = (int64_t)pages[page] * PAGE, row = s->kv_heads * s->width;
    for (int64_t h = 0; h < s->kv_heads; h++) {
        const uint16_t *scales = NULL, *minima = NULL;
        Meta meta;
        if (s->by_channel) {
            scales = s->meta + pages[page / 2 * 2] * row + h * s->width;
            minima = s->meta + pages[page / 2 * 2 + 1] * row + h * s->width;
        } else {
            read_meta(bits, s->meta, slot, s->kv_heads, h, s->width, PAGE, &meta);
        }
        for (int i = 0; i < PAGE; i++)
            unpack_token(kind, bits, l, s->codes + (slot + i) * s->slot + h * s->head, &meta, i, scales, minima,
                         s->wide, out, (page * PAGE + i) * row + h * s->width);
    }
}

typedef struct {
    const Side *side;
    Layout layout;
    const int32_t *pages;
    void *out;
} Unpacking;

static void unpack_one(const void *of, int64_t page) {
    const Unpacking *u = of;
    if (u->side->floats)
        unpack_page(FP8, 8, u->side, &u->layout, u->pages, page, u->out);
    else if (u->side->bits == 8)
        unpack_page(INT8, 8, u->side, &u->layout, u->pages, page, u->out);
    else if (u->side->bits == 4)
        unpack_page(INT4, 4, u->side, &u->layout, u->pages, page, u->out);
    else
        unpack_page(KIVI, 2, u->side, &u->layout, u->pages, page, u->out);
}

/* out [count * 16, kv_heads, width] = the numbers of ``count`` pages, an even count where scales are by channel. */
static void unpack(const Side *s, const int32_t *pages, int64_t count, void *out, int threads) {
    const Unpacking all = {s, layout_of(s->width, s->bits), pages, out};
    share_out(unpack_one, &all, count, count * s->kv_heads * s->width < 4096 ? 1 : threads);
}

/* Keys and values of pages, float32 where a->wide; its pages, rows and what belongs to queries do not matter. */
EXPORT void unpack_pages(const Attend *a, const int32_t *pages, int64_t count, void *k, void *v, int threads) {
    const int kivi = a->kind == KIVI, fp8 = a->kind == FP8;
    const Side keys = {a->k, a->k_meta, a->kv_heads, a->k_width, a->k_slot, a->k_head, a->k_bits, kivi, fp8, a->wide};
    const Side values = {a->v, a->v_meta, a->kv_heads, a->v_width, a->v_slot, a->v_head, a->v_bits, 0, fp8, a->wide};
    unpack(&keys, pages, count, k, threads);
    unpack(&values, pages, count, v, threads);
}
