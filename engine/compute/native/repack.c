/* Weights as files have them, put into lanes (products.h). */
#include "products.h"
#include "ggml.h"
#include "threads.h"

/* Codes of a chunk of a block, by input features, so that lanes lie side by side. */
typedef uint8_t Codes[CHUNK][BLOCK];

/* One plane of ``units`` units, which holds bits of the codes from ``shift`` on, for lanes [first, last). */
static void put_plane(int bits, int shift, const Codes codes, int64_t units, int64_t first, int64_t last, uint32_t *out) {
    const int per = 8 / bits;
    const uint32_t mask = (1u << bits) - 1;
    for (int64_t word = 0; word < units * bits; word++, out += BLOCK) {
        uint32_t words[BLOCK] = {0};
        for (int field = 0; field < per; field++)
            for (int j = 0; j < 4; j++) {
                const uint8_t *from = codes[(word * per + field) * 4 + j];
                for (int n = 0; n < BLOCK; n++) words[n] |= (from[n] >> shift & mask) << (8 * j + bits * field);
            }
        memcpy(out + first, words + first, (size_t)(last - first) * sizeof *out);
    }
}

static void put_chunk(const Lanes *w, int64_t block, int64_t k, const Codes codes, int64_t first, int64_t last) {
    const int64_t left = (w->in_features - k) / UNIT, units = left < CHUNK / UNIT ? left : CHUNK / UNIT;
    const int64_t at = block * (w->in_features / UNIT) + k / UNIT;
    const int bits = code_bits(w->kind), above = high_bits(w->kind);
    put_plane(bits, 0, codes, units, first, last, (uint32_t *)w->codes + at * bits * BLOCK);
    if (above) put_plane(above, bits, codes, units, first, last, (uint32_t *)w->high + at * above * BLOCK);
}

/* What a call puts: output features [start, start + count) of a layer, of which those of a block are lanes [first, last). */
typedef struct { int64_t block, first, last; } Part;

INLINE Part part_of(int64_t start, int64_t count, int64_t i) {
    const int64_t block = start / BLOCK + i, from = start - block * BLOCK, to = start + count - block * BLOCK;
    return (Part){block, from > 0 ? from : 0, to < BLOCK ? to : BLOCK};
}
INLINE int64_t parts_in(int64_t start, int64_t count) { return (start + count + BLOCK - 1) / BLOCK - start / BLOCK; }

typedef struct {
    const Lanes *w;
    const uint32_t *words;
    int64_t stride, start, count;
    const int32_t *order;
    int bits, flip;
} Words32;

static void put_words(const void *of, int64_t i) {
    const Words32 *p = of;
    const Lanes *w = p->w;
    const Part part = part_of(p->start, p->count, i);
    const uint32_t *columns = p->words + (part.block * BLOCK + part.first - p->start), mask = (1u << p->bits) - 1;
    const int64_t width = part.last - part.first;
    for (int64_t k = 0; k < w->in_features; k += CHUNK) {
        Codes codes;
        memset(codes, 0, sizeof codes);
        for (int64_t j = 0; j < CHUNK && k + j < w->in_features; j++) {
            const int64_t bit = (p->order ? p->order[k + j] : k + j) * (int64_t)p->bits;
            const uint32_t *row = columns + bit / 32 * p->stride, flip = (uint32_t)p->flip;
            const int right = (int)(bit % 32);
            uint8_t *to = codes[j] + part.first;
            if (right + p->bits <= 32)
                for (int64_t n = 0; n < width; n++) to[n] = (uint8_t)((row[n] >> right & mask) ^ flip);
            else
                for (int64_t n = 0; n < width; n++)
                    to[n] = (uint8_t)(((row[n] >> right | row[p->stride + n] << (32 - right)) & mask) ^ flip);
        }
        put_chunk(w, part.block, k, codes, part.first, part.last);
    }
}

/* words [K * bits / 32, count], rows ``stride`` apart: a column's are a stream of codes of ``bits`` bits (2 to 8), the
 * lowest bits first, and code order[k] (k itself where order is NULL) is that of place k. Codes are changed in the bits of
 * ``flip``. They become those of output features from ``start`` on. */
EXPORT void lanes_put_words(const Lanes *w, const uint32_t *words, int64_t stride, const int32_t *order, int bits,
                            int flip, int64_t start, int64_t count, int threads) {
    const Words32 all = {w, words, stride, start, count, order, bits, flip};
    share_out(put_words, &all, parts_in(start, count), threads);
}

/* The scales of a step of feature ``lane`` of a block. */
static void put_scales(const Lanes *w, int64_t block, int64_t k, int64_t lane, const Step *step) {
    const int64_t groups = w->in_features / w->group, left = (w->in_features - k) / w->group;
    const int64_t outer = (block * ((w->in_features + 255) / 256) + k / STEP) * BLOCK + lane;
    for (int64_t g = 0; g < STEP / w->group && g < left; g++) {
        const int64_t at = (block * groups + k / w->group + g) * BLOCK + lane;
        if (w->scale_type == SCALES_F16) ((uint16_t *)w->scales)[at] = step->halves[g];
        else ((uint8_t *)w->scales)[at] = step->scales[g];
        if (w->shifts) ((uint16_t *)w->shifts)[at] = step->shifts[g];
        if (w->zeros) ((uint8_t *)w->zeros)[at] = step->minima[g];
    }
    if (w->supers) ((uint16_t *)w->supers)[outer] = step->super;
    if (w->least) ((uint16_t *)w->least)[outer] = step->least;
}

typedef struct {
    const Lanes *w;
    const uint8_t *data;
    int64_t row_bytes, start, count;
    int type;
} Blocks;

/* Blocks that stay as they are (books.h). */
static void put_book(const Blocks *p, Part part) {
    const Lanes *w = p->w;
    const int64_t words = book_words(p->type), steps = w->in_features / STEP;
    for (int64_t n = part.first; n < part.last; n++)
        for (int64_t step = 0; step < steps; step++) {
            const uint8_t *row = p->data + (part.block * BLOCK + n - p->start) * p->row_bytes;
            const int64_t at = part.block * steps + step;
            uint32_t own[MOST_BOOK_WORDS];
            read_book(p->type, row + step * step_bytes(p->type), own, (uint16_t *)w->supers + at * BLOCK + n);
            for (int64_t j = 0; j < words; j++) ((uint32_t *)w->codes)[(at * words + j) * BLOCK + n] = own[j];
        }
}

static void put_blocks(const void *of, int64_t i) {
    const Blocks *p = of;
    const Lanes *w = p->w;
    const Part part = part_of(p->start, p->count, i);
    if (w->book_type) {
        put_book(p, part);
        return;
    }
    for (int64_t k = 0; k < w->in_features; k += CHUNK) {
        Codes codes;
        memset(codes, 0, sizeof codes);
        for (int64_t n = part.first; n < part.last; n++) {
            const uint8_t *row = p->data + (part.block * BLOCK + n - p->start) * p->row_bytes;
            const int64_t left = w->in_features - k < STEP ? w->in_features - k : STEP;
            Step step;
            read_step(p->type, row + k / STEP * step_bytes(p->type), left, &step);
            for (int64_t j = 0; j < left; j++) codes[j][n] = step.codes[j];
            put_scales(w, part.block, k, n, &step);
        }
        put_chunk(w, part.block, k, codes, part.first, part.last);
    }
}

/* data [count, row_bytes], rows of ggml's blocks of ``type`` -> output features from ``start`` on, scales and all. */
EXPORT void lanes_put_ggml(const Lanes *w, int type, const uint8_t *data, int64_t row_bytes, int64_t start, int64_t count,
                           int threads) {
    const Blocks all = {w, data, row_bytes, start, count, type};
    share_out(put_blocks, &all, parts_in(start, count), threads);
}
