/* Whole pages of packed keys or values as bfloat16, for kernels that read many rows at once. */
#include "attention_packed.h"

#ifdef __AVX512BF16__

/* One side of the cache, as Attend describes it; by_channel: each page pair has a scale for each channel (KIVI's keys). */
typedef struct {
    const uint8_t *codes;
    const uint16_t *meta;
    int64_t kv_heads, width, slot, head, bits, by_channel;
} Side;

/* A token's numbers, from codes that a constant number of bits has; scale and minimum by channel if not NULL. */
INLINE void unpack_token(const int bits, const Layout *l, const uint8_t *codes, const Meta *meta, int token,
                                const uint16_t *scales, const uint16_t *minima, uint16_t *out) {
    const __m512 table = table_of(bits);
    for (int b = 0; b < l->blocks; b++) {
        const __mmask16 lanes = lanes_of(l, b);
        const __m512i bytes = read_codes(bits, codes + b * LANES, lanes == 0xFFFF);
        for (int p = 0; p < 8 / bits; p++) {
            const int64_t channel = channel_of(l, b, p);
            __m512 x = code_of(bits, p, bytes, table);
            if (scales) {
                x = _mm512_fmadd_ps(x, halves(scales + channel, lanes), halves(minima + channel, lanes));
            } else if (bits == 8) {
                x = _mm512_mul_ps(x, _mm512_set1_ps(meta->whole[token]));
            } else {
                const __m512i group = _mm512_loadu_si512(l->group[b * (8 / bits) + p]);
                x = _mm512_fmadd_ps(x, _mm512_permutexvar_ps(group, _mm512_loadu_ps(meta->scale[token])),
                                    _mm512_permutexvar_ps(group, _mm512_loadu_ps(meta->minimum[token])));
            }
            const __m256i numbers = (__m256i)_mm512_cvtneps_pbh(x);
            if (lanes == 0xFFFF)
                _mm256_storeu_si256((__m256i *)(out + channel), numbers);
            else /* half a block: masked stores are slow */
                _mm_storeu_si128((__m128i *)(out + channel), _mm256_castsi256_si128(numbers));
        }
    }
}

INLINE void unpack_page(const int bits, const Side *s, const Layout *l, const int32_t *pages, int64_t page,
                               uint16_t *out) {
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
            unpack_token(bits, l, s->codes + (slot + i) * s->slot + h * s->head, &meta, i, scales, minima,
                         out + (page * PAGE + i) * row + h * s->width);
    }
}

/* out [count * 16, kv_heads, width] = the numbers of ``count`` pages, an even count where scales are by channel. */
static void unpack(const Side *s, const int32_t *pages, int64_t count, uint16_t *out, int threads) {
    const Layout l = layout_of(s->width, s->bits);
#pragma omp parallel for schedule(static) num_threads(count * s->kv_heads * s->width < 4096 ? 1 : threads)
    for (int64_t page = 0; page < count; page++) switch (s->bits) {
        case 8: unpack_page(8, s, &l, pages, page, out); break;
        case 4: unpack_page(4, s, &l, pages, page, out); break;
        default: unpack_page(2, s, &l, pages, page, out);
        }
}

/* Keys and values of pages; a->pages, rows and what belongs to queries do not matter. */
EXPORT void unpack_pages(const Attend *a, const int32_t *pages, int64_t count, uint16_t *k, uint16_t *v, int threads) {
    const Side keys = {a->k, a->k_meta, a->kv_heads, a->k_width, a->k_slot, a->k_head, a->k_bits, a->kind == KIVI};
    const Side values = {a->v, a->v_meta, a->kv_heads, a->v_width, a->v_slot, a->v_head, a->v_bits, 0};
    unpack(&keys, pages, count, k, threads);
    unpack(&values, pages, count, v, threads);
}
#else
EXPORT void unpack_pages(const Attend *a, const int32_t *pages, int64_t count, uint16_t *k, uint16_t *v, int threads) {
    (void)a, (void)pages, (void)count, (void)k, (void)v, (void)threads;
}
#endif
