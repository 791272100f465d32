/* See products.h. */
#include "products.h"
#include "books.h"
#include "rows.h"
#include "simd.h"
#include "threads.h"

/* Vectors of features, and virtual rows (digits of rows), that go through a block's codes together, as many as there are
 * registers for; the rows that a thread takes at a time; and those from which on codes are unpacked for all of them. */
enum { AT_ONCE = 2, LOT = LANES == 16 ? 8 : 4, PANEL = 256, MANY = 8 };
/* Input features of a row that a thread quantises at a time, and of all virtual rows from which on several do. */
enum { PIECE = 1024, WORTH_SHARING = 16384 };
/* Words of a cache line, and between those that are read and those that are asked for meanwhile. */
enum { LINE = 16, AHEAD = 1024 };
/* Words of a unit once each has four codes of a feature, and steps to take them: dots. */
enum { DOTS = UNIT / 4 };
static const float NEXT_DIGIT = 254;

/* ------------------------------------------------------------------ activations */

/* Quantised activations, in lots of virtual rows: within one, numbers for the same input features stand side by side. */
typedef struct {
    int32_t *digits;      /* [K / 4]: four of a row's in a word */
    int32_t *starts;      /* [K / span]: what a sum begins with */
    float *scales, *sums; /* [K / span]: of x, and of the values of its span, for offsets */
} Quantised;

/* Bytes of a virtual row in all; ``spans`` are those of a unit. */
INLINE int64_t quantised_bytes(int64_t K, int64_t spans) { return K + K / UNIT * spans * 12; }

/* Virtual rows that stand side by side: LOT of them, then 4, then those that are left. */
typedef struct {
    int64_t first, width;
} Lot;

INLINE Lot lot_of(int64_t row, int64_t rows) {
    const int64_t whole = rows / LOT * LOT, fours = rows / 4 * 4;
    if (row < whole) return (Lot){row / LOT * LOT, LOT};
    return row < fours ? (Lot){row / 4 * 4, 4} : (Lot){fours, rows - fours};
}

INLINE Quantised quantised_at(void *bytes, Lot lot, int64_t K, int64_t spans) {
    const int64_t places = K / UNIT * spans * lot.width;
    Quantised result;
    result.digits = (int32_t *)((char *)bytes + lot.first * quantised_bytes(K, spans));
    result.starts = result.digits + K / 4 * lot.width;
    result.scales = (float *)(result.starts + places);
    result.sums = result.scales + places;
    return result;
}

/* Where lots begin that stand behind those of so many virtual rows. */
INLINE void *second_digits(void *bytes, int64_t rows, int64_t K, int64_t spans) {
    return (char *)bytes + rows * quantised_bytes(K, spans);
}

/* The largest magnitude of values [32]. Such bits are in the order of what they stand for, and NaN is above all. */
INLINE float largest_of(const Floats *values) {
    Ints most = {0};
    for (int i = 0; i < UNIT / LANES; i++) {
        const Ints bits = (Ints)values[i] & 0x7FFFFFFF, above = bits > most;
        most = (bits & above) | (most & ~above);
    }
    const int32_t largest = largest_int(most);
    float result;
    memcpy(&result, &largest, 4);
    return result;
}

/* What sums of codes times digits start from, given the sums of every fourth of these. */
INLINE int32_t start_of(FourInts sums, int middle) {
    const int low = sums[0] + sums[1], high = sums[2] + sums[3];
    if (WIDE) return -middle * (low + high);
    return (int32_t)((uint32_t)(-middle * high) << 16 | ((uint32_t)(-middle * low) & 0xFFFF));
}

/* Where the digits of a row go: the virtual rows of its lot stand side by side. */
typedef struct {
    Quantised to;
    int64_t width;
} Column;

INLINE Column column_of(void *out, int64_t row, int64_t rows, int64_t K, int64_t spans) {
    const Lot lot = lot_of(row, rows);
    const int64_t column = row - lot.first;
    const Quantised all = quantised_at(out, lot, K, spans);
    return (Column){{all.digits + column, all.starts + column, all.scales + column, all.sums + column}, lot.width};
}

/* Input features [k, stop) of row ``row`` of x into its lots. ``middle`` is taken off the codes that x is to meet. With
 * ``refined`` there are two digits in the units that it has a 1 for, and the second ones stand in lots of their own,
 * behind those of all rows. */
INLINE void quantise_row(const void *x, const int bfloat16, int64_t row, int64_t k, int64_t stop, int64_t K,
                         const int spans, int digits, const uint8_t *refined, int middle, int64_t rows, void *out) {
    enum { VECTORS = UNIT / LANES, MOST_DIGITS = 3 };
    /* Added and taken off, this leaves a whole number, which in between stands in the lowest bits. */
    const Floats magic = every_float(0x1.8p23f);
    Column columns[MOST_DIGITS];
    if (refined) digits = 2;
    for (int d = 0; d < digits; d++)
        columns[d] = refined ? column_of(second_digits(out, rows * d, K, spans), row, rows, K, spans)
                             : column_of(out, row * digits + d, rows, K, spans);
    for (; k < stop; k += UNIT) {
        Floats values[VECTORS];
        for (int i = 0; i < VECTORS; i++) {
            const int64_t at = row * K + k + i * LANES;
            values[i] = bfloat16 ? bfloat16_at((const uint16_t *)x + at) : floats_at((const float *)x + at);
        }
        const float largest = largest_of(values), inverse = largest > 0x1p-120f ? 127 / largest : 0;
        float scale = largest / 127;
        for (int i = 0; i < VECTORS; i++) values[i] = times(values[i], inverse);
        Ints sums[VECTORS];
        const int here = refined && !refined[k / UNIT] ? 1 : digits;
        for (int d = 0; d < here; d++) {
            const Quantised to = columns[d].to;
            const int64_t width = columns[d].width;
            int32_t words[DOTS];
            if (d) {
                scale /= NEXT_DIGIT;
                for (int i = 0; i < VECTORS; i++) values[i] = times(values[i] - __builtin_convertvector(sums[i], Floats), NEXT_DIGIT);
            }
            for (int i = 0; i < VECTORS; i++) {
                sums[i] = (Ints)(values[i] + magic) - (Ints)magic;
                put_bytes((int8_t *)words + i * LANES, sums[i]);
            }
            for (int i = 0; i < DOTS; i++) to.digits[(k / 4 + i) * width] = words[i];
            for (int s = 0; s < spans; s++) {
                const int64_t place = (k / UNIT * spans + s) * width;
                Ints sum = {0};
                for (int i = 0; i < VECTORS / spans; i++) sum += sums[s * (VECTORS / spans) + i];
                const FourInts four = fourths(sum);
                to.starts[place] = start_of(four, middle);
                to.scales[place] = scale;
                to.sums[place] = (float)(four[0] + four[1] + four[2] + four[3]) * scale;
            }
        }
    }
}

static void quantise(const void *x, int bfloat16, int64_t row, int64_t k, int64_t stop, int64_t K, int spans, int digits,
                     const uint8_t *refined, int middle, int64_t rows, void *out) {
    if (bfloat16 && spans == 1) quantise_row(x, 1, row, k, stop, K, 1, digits, refined, middle, rows, out);
    else if (bfloat16) quantise_row(x, 1, row, k, stop, K, 2, digits, refined, middle, rows, out);
    else if (spans == 1) quantise_row(x, 0, row, k, stop, K, 1, digits, refined, middle, rows, out);
    else quantise_row(x, 0, row, k, stop, K, 2, digits, refined, middle, rows, out);
}

/* ------------------------------------------------------------------ weights */

static const int MIDDLE[] = {[UNSIGNED2] = 2, [UNSIGNED3] = 4, [UNSIGNED4] = 8, [UNSIGNED5] = 16, [UNSIGNED6] = 32};

INLINE int is_signed(int64_t kind) { return kind == SIGNED8 || kind == TABLE4; }
INLINE int64_t middle_of(int64_t kind) { return is_signed(kind) ? 0 : MIDDLE[kind]; }
/* Of a unit, the spans whose products are added as integers: one, if its codes allow it and have one scale. */
INLINE int64_t spans_of(const Lanes *w) { return w->group % UNIT || w->kind == UNSIGNED6 ? 2 : 1; }
INLINE int64_t blocks_of(const Lanes *w) { return (w->out_features + BLOCK - 1) / BLOCK; }
/* Some units of a block: where its codes are, and what they mean in float32, [spans, 64]; NULL without offsets. */
typedef struct {
    const uint32_t *codes, *high;
    const float *scales, *offsets;
    const int8_t *table;
    int64_t units;
} Chunk;

/* Fields 4 i .. 4 i + 3 of a unit in a plane of so many bits, for a vector of features, from bit ``to`` of each byte on. */
INLINE Words fields_at(const int bits, const uint32_t *unit, int i, const int to) {
    const int per = 8 / bits, down = bits * (i % per) - to;
    const Words word = words_at(unit + i / per * BLOCK);
    const uint32_t mask = 0x01010101u * (((1u << bits) - 1) << to & 0xFF);
    return (down < 0 ? word << -down : word >> down) & mask;
}

INLINE Words raw_codes_at(const int kind, const Chunk *c, int64_t unit, int i, int lane) {
    const int bits = code_bits(kind), above = high_bits(kind);
    Words codes = fields_at(bits, c->codes + unit * bits * BLOCK + lane, i, 0);
    if (above) codes |= fields_at(above, c->high + unit * above * BLOCK + lane, i, bits);
    return codes;
}
INLINE Words codes_at(const int kind, const Chunk *c, int64_t unit, int i, int lane) {
    const Words codes = raw_codes_at(kind, c, unit, i, lane);
    return kind == TABLE4 ? look_up(codes, c->table) : codes;
}

/* ``rows`` virtual rows times one unit, for some vectors of features from ``lane`` on, added to total. Constants after
 * inlining: kind, span and rows. */
INLINE void add_unit(const int kind, const int span, const int rows, const Chunk *c, Quantised x,
                     int64_t unit, int lane, Floats total[LOT][AT_ONCE]) {
    const int spans = UNIT / span, dots = span / 4;
    for (int s = 0; s < spans; s++) {
        const int64_t place = unit * spans + s;
        Ints sum[LOT][AT_ONCE];
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < AT_ONCE; v++)
                sum[r][v] = is_signed(kind) && !SHIFTED ? every(0) : every(x.starts[place * rows + r]);
#pragma GCC unroll 8
        for (int i = s * dots; i < s * dots + dots; i++) {
            Words codes[AT_ONCE];
            for (int v = 0; v < AT_ONCE; v++) codes[v] = codes_at(kind, c, unit, i, lane + v * LANES);
            for (int r = 0; r < rows; r++) {
                const int32_t four = x.digits[(unit * DOTS + i) * rows + r];
                for (int v = 0; v < AT_ONCE; v++) {
                    sum[r][v] = is_signed(kind) ? dot_signed(sum[r][v], codes[v], four) : dot(sum[r][v], codes[v], four);
                    IN_ORDER(sum[r][v]);
                }
            }
        }
        for (int v = 0; v < AT_ONCE; v++) {
            const int64_t at = place * BLOCK + lane + v * LANES;
            const Floats scale = floats_at(c->scales + at);
            for (int r = 0; r < rows; r++) {
                const Ints whole = is_signed(kind) ? sum[r][v] : joined(sum[r][v]);
                total[r][v] += __builtin_convertvector(whole, Floats) * (scale * x.scales[place * rows + r]);
            }
            if (c->offsets)
                for (int r = 0; r < rows; r++) total[r][v] += floats_at(c->offsets + at) * x.sums[place * rows + r];
        }
    }
}

INLINE void read_totals(const int rows, const float *totals, Floats total[LOT][AT_ONCE]) {
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < AT_ONCE; v++) total[r][v] = floats_at(totals + r * BLOCK + v * LANES);
}
INLINE void put_totals(const int rows, Floats total[LOT][AT_ONCE], float *totals) {
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < AT_ONCE; v++) put_floats(totals + r * BLOCK + v * LANES, total[r][v]);
}

/* Ask for a plane's words of a unit, for some vectors of features: of many at once memory brings them sooner than in the
 * order in which a processor foresees them, which ends with a page of 4 KB. */
INLINE void fetch(const uint32_t *plane, int bits, int64_t unit, int lane) {
    const uint32_t *first = plane + (unit * BLOCK + lane) * bits;
    for (int i = 0; i < AT_ONCE * LANES * bits; i += LINE) __builtin_prefetch(first + i);
}

/* ``rows`` virtual rows, from unit ``at`` on, times a chunk, added to totals [rows, 64]. Codes in memory are read in the
 * order in which they lie, which processors foresee: that is worth half the speed. Those that were unpacked are near, and
 * totals stay in registers instead. */
INLINE void multiply(const int kind, const int span, const int rows, const Chunk *c, Quantised x, int64_t at, float *totals) {
    const int spans = UNIT / span, step = AT_ONCE * LANES;
    Floats total[LOT][AT_ONCE];
    x.digits += at * DOTS * rows, x.starts += at * spans * rows, x.scales += at * spans * rows, x.sums += at * spans * rows;
    if (kind == UNSIGNED8)
        for (int lane = 0; lane < BLOCK; lane += step) {
            read_totals(rows, totals + lane, total);
            for (int64_t unit = 0; unit < c->units; unit++) add_unit(kind, span, rows, c, x, unit, lane, total);
            put_totals(rows, total, totals + lane);
        }
    else
        for (int64_t unit = 0; unit < c->units; unit++)
            for (int lane = 0; lane < BLOCK; lane += step) {
                fetch(c->codes + AHEAD, code_bits(kind), unit, lane);
                if (high_bits(kind)) fetch(c->high + AHEAD, high_bits(kind), unit, lane);
                read_totals(rows, totals + lane, total);
                add_unit(kind, span, rows, c, x, unit, lane, total);
                put_totals(rows, total, totals + lane);
            }
}

/* ------------------------------------------------------------------ products */

#define PRODUCT(KIND, SPAN, ROWS)                                                                                      \
    static void product_##KIND##_##SPAN##_##ROWS(const Chunk *c, Quantised x, int64_t at, float *totals) {            \
        multiply(KIND, SPAN, ROWS, c, x, at, totals);                     \
    }
#define PRODUCTS(KIND, SPAN)                                                                                           \
    PRODUCT(KIND, SPAN, 1) PRODUCT(KIND, SPAN, 2) PRODUCT(KIND, SPAN, 3) PRODUCT(KIND, SPAN, 4) PRODUCT(KIND, SPAN, LOT)
PRODUCTS(UNSIGNED2, 16) PRODUCTS(UNSIGNED3, 16) PRODUCTS(UNSIGNED4, 16) PRODUCTS(UNSIGNED6, 16)
PRODUCTS(UNSIGNED2, 32) PRODUCTS(UNSIGNED3, 32) PRODUCTS(UNSIGNED4, 32) PRODUCTS(UNSIGNED5, 32)
PRODUCTS(UNSIGNED8, 16) PRODUCTS(UNSIGNED8, 32) PRODUCTS(SIGNED8, 16) PRODUCTS(SIGNED8, 32)
PRODUCTS(TABLE4, 16) PRODUCTS(TABLE4, 32)

typedef void (*Product)(const Chunk *, Quantised, int64_t, float *);
#define ROW_COUNTS(KIND, SPAN)                                                                                         \
    {product_##KIND##_##SPAN##_1, product_##KIND##_##SPAN##_2, product_##KIND##_##SPAN##_3, product_##KIND##_##SPAN##_4, \
     product_##KIND##_##SPAN##_LOT}
/* UNSIGNED5 in spans of 16 is not there, as nothing has it, and sums of UNSIGNED6 in spans of 32 need more bits. */
static const Product PRODUCTS_OF[][2][5] = {
    [UNSIGNED2] = {ROW_COUNTS(UNSIGNED2, 16), ROW_COUNTS(UNSIGNED2, 32)},
    [UNSIGNED3] = {ROW_COUNTS(UNSIGNED3, 16), ROW_COUNTS(UNSIGNED3, 32)},
    [UNSIGNED4] = {ROW_COUNTS(UNSIGNED4, 16), ROW_COUNTS(UNSIGNED4, 32)},
    [UNSIGNED5] = {{0}, ROW_COUNTS(UNSIGNED5, 32)},
    [UNSIGNED6] = {ROW_COUNTS(UNSIGNED6, 16), {0}},
    [UNSIGNED8] = {ROW_COUNTS(UNSIGNED8, 16), ROW_COUNTS(UNSIGNED8, 32)},
    [SIGNED8] = {ROW_COUNTS(SIGNED8, 16), ROW_COUNTS(SIGNED8, 32)},
    [TABLE4] = {ROW_COUNTS(TABLE4, 16), ROW_COUNTS(TABLE4, 32)},
};

INLINE int has_offsets(const Lanes *w) { return w->zeros || w->shifts || w->scale_type == NIBBLES; }

INLINE Floats whole_floats(Words numbers) { return __builtin_convertvector((Ints)numbers, Floats); }
INLINE Floats signed_at(const uint8_t *p) { return whole_floats((Words)((Ints)(widened_at(p) << 24) >> 24)); }

/* Where the scales of a block's group are: in those of groups, and of 256 input features. Found once for all lanes, as
 * it takes divisions. */
typedef struct {
    int64_t block, group, groups, at, outer;
} Place;

INLINE Place place_of(const Lanes *w, int64_t block, int64_t k) {
    const int64_t group = k / w->group, groups = w->in_features / w->group;
    return (Place){block, group, groups, (block * groups + group) * BLOCK,
                   (block * ((w->in_features + 255) / 256) + k / 256) * BLOCK};
}

/* Scales for a vector of features of a block. */
INLINE Floats scales_at(const int type, const Lanes *w, Place p, int lane) {
    const uint8_t *bytes = (const uint8_t *)w->scales + p.at + lane;
    const uint16_t *halves = (const uint16_t *)w->scales + p.at + lane, *supers = w->supers + p.outer + lane;
    Floats result = {0};
    switch (type) {
    case SCALES_F32: return floats_at((const float *)w->scales + p.at + lane);
    case SCALES_F16: return halves_at(halves);
    case SUPER: return halves_at(supers) * signed_at(bytes);
    case NIBBLES: return halves_at(supers) * whole_floats(widened_at(bytes) & 15);
    case BOOK: {
        const uint32_t *words = w->codes + p.outer * book_words(w->book_type) + lane;
        const int64_t last = w->group == 16 ? 15 : w->group == 32 ? 7 : 0; /* group of a block */
        return halves_at(supers) * whole_floats(2 * number_at(w->book_type, words, p.group & last) + 1);
    }
    case SCALES_BF16: return bfloat16_at(halves);
    case EXPONENTS:
        for (int i = 0; i < LANES; i++) {
            const uint32_t bits = bytes[i] < 2 ? 0x00200000u << bytes[i] : (uint32_t)(bytes[i] - 1) << 23;
            float value;
            memcpy(&value, &bits, 4);
            result[i] = value;
        }
        return result;
    default: /* NESTED, each step rounded */
        for (int i = 0; i < LANES; i++) {
            const int64_t feature = p.block * BLOCK + lane + i, n = feature < w->out_features ? feature : 0;
            result[i] = w->nested_table[bytes[i]] * w->nested_scales[(n * p.groups + p.group) / w->nested_size];
        }
        IN_ORDER(result);
        return result + w->nested_offset;
    }
}

/* The zero-point of a group's codes. */
INLINE Floats zeros_at(const int type, const Lanes *w, Place p, int lane) {
    const uint8_t *zeros = w->zeros + p.at + lane;
    if (type == SUPER ? w->least != NULL : type == NIBBLES || w->shifts) return (Floats){0};
    if (!w->zeros) return (Floats){0} + (float)middle_of(w->kind);
    return is_signed(w->kind) ? signed_at(zeros) : whole_floats(widened_at(zeros));
}

/* What is added to the weights of a group. */
INLINE Floats shifts_at(const int type, const Lanes *w, Place p, int lane) {
    const int64_t at = p.at + lane;
    const uint16_t *least = w->least + p.outer + lane;
    if (type == NIBBLES) return -(halves_at(least) * whole_floats(widened_at((const uint8_t *)w->scales + at) >> 4));
    if (type == SUPER && w->least) return -(halves_at(least) * whole_floats(widened_at(w->zeros + at)));
    return w->shifts ? halves_at(w->shifts + at) : (Floats){0};
}

/* The scales [spans, 64] of a block from input feature k on, and, if there are any, the offsets of its weights: what is
 * added to codes that count from the middle, times their scale. */
INLINE void means(const int type, const Lanes *w, int64_t block, int64_t k, int64_t spans, int64_t span, float *scales,
                  float *offsets) {
    const float middle = (float)middle_of(w->kind), factor = w->kind == TABLE4 ? w->factor * w->table_scale : w->factor;
    const int shifted = has_offsets(w);
    Place place = place_of(w, block, k);
    int64_t left = w->group - k % w->group; /* input features of this group */
    for (int64_t i = 0; i < spans; i++, left -= span, scales += BLOCK, offsets += BLOCK) {
        if (!left) left = w->group, place.group++, place.at += BLOCK;
        else if (i) { /* of the same group as the span before */
            memcpy(scales, scales - BLOCK, BLOCK * sizeof(float));
            if (shifted) memcpy(offsets, offsets - BLOCK, BLOCK * sizeof(float));
            continue;
        }
        for (int lane = 0; lane < BLOCK; lane += LANES) {
            const Floats scale = scales_at(type, w, place, lane) * factor;
            put_floats(scales + lane, scale);
            if (shifted)
                put_floats(offsets + lane, (middle - zeros_at(type, w, place, lane)) * scale + shifts_at(type, w, place, lane));
        }
    }
}

#define EACH_SCALE_TYPE(CASE)                                                                                          \
    CASE(SCALES_F32) CASE(SCALES_F16) CASE(SCALES_BF16) CASE(NESTED) CASE(EXPONENTS) CASE(SUPER) CASE(NIBBLES)           \
    CASE(BOOK)

/* The same of blocks of a codebook, [count, 64] from the first group of the block with input feature k on. */
INLINE void book_scales(const int type, const Lanes *w, int64_t block, int64_t k, int64_t count, float *scales) {
    const int64_t at = block * (w->in_features / STEP) + k / STEP;
    const uint32_t *words = w->codes + at * book_words(type) * BLOCK;
    for (int lane = 0; lane < BLOCK; lane += LANES) {
        const Floats super = halves_at(w->supers + at * BLOCK + lane) * (w->factor * w->table_scale);
        for (int64_t g = 0; g < count; g++)
            put_floats(scales + g * BLOCK + lane, super * whole_floats(2 * number_at(type, words + lane, g) + 1));
    }
}

static void read_scales(const Lanes *w, int64_t block, int64_t k, int64_t spans, int64_t span, float *scales, float *offsets) {
    if (w->scale_type == BOOK) switch (w->book_type) {
#define BOOK_SCALES(TYPE)                                                                                              \
    case TYPE: book_scales(TYPE, w, block, k, spans, scales); return;
        EACH_BOOK(BOOK_SCALES)
    }
    switch (w->scale_type) {
#define MEANS(TYPE)                                                                                                    \
    case TYPE: means(TYPE, w, block, k, spans, span, scales, offsets); break;
        EACH_SCALE_TYPE(MEANS)
    }
}

INLINE void unpack(const int kind, const Chunk *c, uint32_t *out) {
    for (int64_t unit = 0; unit < c->units; unit++)
#pragma GCC unroll 8
        for (int i = 0; i < DOTS; i++, out += BLOCK)
            for (int lane = 0; lane < BLOCK; lane += LANES) {
                const Words codes = codes_at(kind, c, unit, i, lane);
                memcpy(out + lane, &codes, sizeof codes);
            }
}

static void unpack_codes(int64_t kind, const Chunk *c, uint32_t *out) {
    switch (kind) {
#define CASE_OF_KIND(KIND)                                                                                             \
    case KIND: unpack(KIND, c, out); break;
        CASE_OF_KIND(UNSIGNED2) CASE_OF_KIND(UNSIGNED3) CASE_OF_KIND(UNSIGNED4) CASE_OF_KIND(UNSIGNED5)
        CASE_OF_KIND(UNSIGNED6) default: unpack(TABLE4, c, out);
    }
}

/* Units [unit, unit + count) of the block of 256 weights that has input feature k, as codes of 4 bits [count * 4, 64]. */
INLINE void open_units(const int type, const Lanes *w, int64_t block, int64_t k, int64_t unit, int64_t count, uint32_t *out) {
    const int64_t words = book_words(type);
    const uint32_t *from = w->codes + (block * (w->in_features / STEP) + k / STEP) * words * BLOCK;
    for (; count--; unit++, out += 4 * BLOCK) {
        const uint32_t *next = from + (words + unit * words / 8) * BLOCK;
        for (int i = 0; i < BLOCK * 4; i += LINE) __builtin_prefetch(next + i);
        for (int lane = 0; lane < BLOCK; lane += LANES) {
            Words codes[4];
            open_unit(type, w->book, from + lane, unit, codes);
            for (int o = 0; o < 4; o++) memcpy(out + o * BLOCK + lane, codes + o, sizeof *codes);
        }
    }
}

static void open_book(const Lanes *w, int64_t block, int64_t k, int64_t unit, int64_t count, uint32_t *out) {
    switch (w->book_type) {
#define OPEN(TYPE)                                                                                                     \
    case TYPE: open_units(TYPE, w, block, k, unit, count, out); break;
        EACH_BOOK(OPEN)
    }
}

/* A chunk of a block, with room for what is made of it. */
typedef struct {
    Chunk chunk;
    float scales[CHUNK / 16 * BLOCK], offsets[CHUNK / 16 * BLOCK];
    uint32_t codes[CHUNK / 4 * BLOCK], opened[CHUNK / 8 * BLOCK];
} __attribute__((aligned(64))) Work;

/* Ask for the scales and zero-points of the chunk that begins at input feature k of a block, or, beyond its last one, at
 * the next block: they lie apart from the codes, and all are read before these. Worth 4 % of one row's products (Zen 5). */
INLINE void fetch_means(const Lanes *w, int64_t block, int64_t k) {
    static const int BYTES[] = {[SCALES_F32] = 4, [SCALES_F16] = 2, [SCALES_BF16] = 2, [BOOK] = 0,   [NESTED] = 1,
                                [EXPONENTS] = 1,  [SUPER] = 1,      [NIBBLES] = 1};
    const Place place = k < w->in_features ? place_of(w, block, k) : place_of(w, block + 1, 0);
    const int64_t count = (w->group < CHUNK ? CHUNK / w->group : 1) * BLOCK, bytes = BYTES[w->scale_type];
    const char *scales = (const char *)w->scales + place.at * bytes;
    for (int64_t i = 0; i < count * bytes; i += LINE * 4) __builtin_prefetch(scales + i);
    for (int64_t i = 0; w->zeros && i < count; i += LINE * 4) __builtin_prefetch(w->zeros + place.at + i);
    for (int64_t i = 0; w->supers && i < BLOCK; i += LINE * 2) __builtin_prefetch(w->supers + place.outer + i);
    for (int64_t i = 0; w->least && i < BLOCK; i += LINE * 2) __builtin_prefetch(w->least + place.outer + i);
}

static void read_chunk(const Lanes *w, int64_t block, int64_t k, Work *work) {
    const int64_t units = w->in_features / UNIT, left = (w->in_features - k) / UNIT, spans = spans_of(w);
    const int bits = code_bits(w->kind), above = high_bits(w->kind);
    const int64_t first = block * units + k / UNIT;
    work->chunk.units = left < CHUNK_UNITS ? left : CHUNK_UNITS;
    work->chunk.codes = w->book_type ? work->opened : w->codes + first * bits * BLOCK;
    if (w->book_type) open_book(w, block, k, 0, work->chunk.units, work->opened);
    work->chunk.high = above ? w->high + first * above * BLOCK : NULL;
    work->chunk.scales = work->scales;
    work->chunk.offsets = has_offsets(w) ? work->offsets : NULL;
    read_scales(w, block, k, work->chunk.units * spans, UNIT / spans, work->scales, work->offsets);
    fetch_means(w, block, k + CHUNK);
}

/* Ask for rows [first, stop) of ``all``'s share of the codes behind a chunk, which follow it in both planes: codes are unpacked
 * at once for many rows, and would be waited for at the beginning of each chunk. */
INLINE void fetch_next(int64_t kind, const Chunk *c, int64_t first, int64_t stop, int64_t all) {
    const int64_t lines = c->units * BLOCK / LINE; /* for each bit of a code */
    const int bits = code_bits(kind), above = high_bits(kind);
    for (int64_t i = lines * bits * first / all; i < lines * bits * stop / all; i++)
        __builtin_prefetch(c->codes + lines * bits * LINE + i * LINE, 0, 2);
    for (int64_t i = lines * above * first / all; i < lines * above * stop / all; i++)
        __builtin_prefetch(c->high + lines * above * LINE + i * LINE, 0, 2);
}

/* Units [first, stop) of a chunk whose codes are held as ``kind``. */
INLINE Chunk part_of(const Chunk *c, int64_t kind, int64_t spans, int64_t first, int64_t stop) {
    Chunk part = *c;
    part.codes += first * code_bits(kind) * BLOCK;
    if (part.high) part.high += first * high_bits(kind) * BLOCK;
    part.scales += first * spans * BLOCK;
    if (part.offsets) part.offsets += first * spans * BLOCK;
    part.units = stop - first;
    return part;
}

/* One block for ``rows`` virtual rows, at most PANEL, from ``first`` on, where a lot begins: totals [rows, 64]. */
static void block_product(const Lanes *w, int64_t block, const void *x, int64_t first, int64_t rows, int64_t all, int tables,
                          const uint8_t *refined, float *totals) {
    const int64_t K = w->in_features, spans = spans_of(w);
    const int unpacked = rows > MANY && w->kind != SIGNED8;
    const int64_t kind = !unpacked ? w->kind : is_signed(w->kind) ? SIGNED8 : UNSIGNED8;
    const Product *products = PRODUCTS_OF[kind][spans == 1];
    Work work;
    memset(totals, 0, (size_t)(rows * BLOCK) * sizeof(float));
    for (int64_t k = 0; k < K; k += CHUNK) {
        read_chunk(w, block, k, &work);
        const Chunk held = work.chunk;
        for (int table = 0; table < tables; table++) {
            for (int64_t i = 0; table && i < held.units * spans * BLOCK; i++) work.scales[i] /= NEXT_DIGIT;
            work.chunk = held;
            work.chunk.table = w->tables[table];
            if (table) work.chunk.offsets = NULL;
            if (unpacked) {
                unpack_codes(w->kind, &work.chunk, work.codes);
                work.chunk.codes = work.codes;
            }
            for (int64_t r = 0; r < rows;) {
                const Lot lot = lot_of(first + r, all);
                const Product product = products[lot.width > 4 ? 4 : lot.width - 1];
                product(&work.chunk, quantised_at((void *)x, lot, K, spans), k / UNIT, totals + r * BLOCK);
                if (unpacked && !table && !w->book_type) fetch_next(w->kind, &held, r, r + lot.width, rows);
                if (refined) {
                    const Quantised second = quantised_at(second_digits((void *)x, all, K, spans), lot, K, spans);
                    const uint8_t *units = refined + k / UNIT;
                    for (int64_t unit = 0, stop; unit < held.units; unit = stop) {
                        for (stop = unit + 1; stop < held.units && units[stop] == units[unit];) stop++;
                        if (!units[unit]) continue;
                        const Chunk part = part_of(&work.chunk, kind, spans, unit, stop);
                        product(&part, second, k / UNIT + unit, totals + r * BLOCK);
                    }
                }
                r += lot.width;
            }
        }
    }
}

/* The first of some values, at most 64, from place ``at`` on of out, which is in either type. */
INLINE void put_values(void *out, int64_t at, const float *values, int64_t count, int bfloat16) {
    uint16_t rounded[BLOCK];
    if (count == BLOCK) { /* a whole block needs no call to copy it */
        for (int64_t i = 0; bfloat16 && i < BLOCK; i += LANES) put_bfloat16((uint16_t *)out + at + i, floats_at(values + i));
        for (int64_t i = 0; !bfloat16 && i < BLOCK; i += LANES) put_floats((float *)out + at + i, floats_at(values + i));
        return;
    }
    for (int64_t i = 0; bfloat16 && i < count; i += LANES) put_bfloat16(rounded + i, floats_at(values + i));
    if (bfloat16) memcpy((uint16_t *)out + at, rounded, (size_t)count * sizeof *rounded);
    else memcpy((float *)out + at, values, (size_t)count * sizeof *values);
}

/* A row's digits in totals, added up. */
INLINE const float *row_of(const float *totals, int digits, float sums[BLOCK]) {
    if (digits == 1) return totals;
    memcpy(sums, totals + (digits - 1) * BLOCK, BLOCK * sizeof *sums);
    for (int d = digits - 2; d >= 0; d--)
        for (int n = 0; n < BLOCK; n++) sums[n] += totals[d * BLOCK + n];
    return sums;
}

/* Rows [row, row + rows) of a block, whose digits are in totals, into out [.., N]. */
static void write_rows(const Matmul *m, int64_t block, const float *totals, int64_t row, int64_t rows) {
    const int64_t N = m->w->out_features, left = N - block * BLOCK, width = left < BLOCK ? left : BLOCK;
    float sums[BLOCK];
    for (int64_t r = 0; r < rows; r++, totals += m->digits * BLOCK)
        put_values(m->out, (row + r) * N + block * BLOCK, row_of(totals, m->digits, sums), width, m->out_bfloat16);
}

/* The same of a block of gates and of what they let through, each rounded as if it had been written; out [.., N / 2]. */
static void write_gated(const Matmul *m, int64_t block, const float *gates, const float *ups, int64_t row, int64_t rows) {
    const int64_t each = m->out_bfloat16 ? 2 : 4, step = m->digits * BLOCK;
    float sums[BLOCK], pair[2 * BLOCK];
    for (int64_t r = 0; r < rows; r++, gates += step, ups += step) {
        put_values(pair, 0, row_of(gates, m->digits, sums), BLOCK, m->out_bfloat16);
        put_values(pair, BLOCK, row_of(ups, m->digits, sums), BLOCK, m->out_bfloat16);
        gate_numbers(m->gating, m->out_bfloat16, pair, 0, BLOCK, 0, 0,
                     (char *)m->out + ((row + r) * (m->w->out_features / 2) + block * BLOCK) * each);
    }
}

void quantise_piece(const void *of, int64_t i) {
    const Matmul *m = of;
    const int64_t K = m->w->in_features, k = i % m->pieces * PIECE, stop = k + PIECE < K ? k + PIECE : K;
    const int middle = is_signed(m->w->kind) ? 128 : (int)middle_of(m->w->kind);
    quantise(m->x, m->bfloat16, i / m->pieces, k, stop, K, (int)spans_of(m->w), m->digits, m->refined,
             middle, m->all, m->quantised);
}

void panel_product(const void *of, int64_t i) {
    const Matmul *m = of;
    const int64_t first = i / m->blocks * m->panel, block = i % m->blocks, left = m->all - first;
    const int64_t now = left < m->panel ? left : m->panel;
    float totals[PANEL * BLOCK] __attribute__((aligned(64)));
    block_product(m->w, block, m->quantised, first, now, m->all, m->tables, m->refined, totals);
    if (m->gating < 0) {
        write_rows(m, block, totals, first / m->digits, now / m->digits);
        return;
    }
    float ups[PANEL * BLOCK] __attribute__((aligned(64)));
    block_product(m->w, m->blocks + block, m->quantised, first, now, m->all, m->tables, m->refined, ups);
    write_gated(m, block, totals, ups, first / m->digits, now / m->digits);
}

int64_t panel_rows(int digits) { return PANEL / (LOT * digits) * LOT; } /* whole rows and whole lots */

int64_t matmul_bytes(const Lanes *w, int64_t rows, int digits, const uint8_t *refined) {
    return rows * digits * quantised_bytes(w->in_features, spans_of(w)) << (refined != NULL);
}

Matmul matmul_of(const Lanes *w, const void *x, int bfloat16, void *out, int out_bfloat16, int64_t rows, int digits,
                 const uint8_t *refined, void *quantised) {
    const int64_t all = rows * digits, panel = all < PANEL ? all : panel_rows(digits) * digits;
    return (Matmul){
        .w = w, .x = x, .quantised = quantised, .out = out, .refined = refined, .all = all, .panel = panel,
        .pieces = (w->in_features + PIECE - 1) / PIECE, .panels = (all + panel - 1) / panel, .blocks = blocks_of(w),
        .bfloat16 = bfloat16, .out_bfloat16 = out_bfloat16, .digits = digits, .tables = digits > 1 ? (int)w->table_count : 1,
        .gating = -1,
    };
}

/* out [rows, N] = x [rows, K] W^T, x quantised in so many digits (1 to 3); either is bfloat16 or else float32. Where there
 * is one digit, ``refined`` [K / 32] has a 1 for the units that get a second one; it may be NULL. With a ``gating`` of rows.h
 * out is [rows, N / 2], and N a multiple of 128; it is -1 for none. 0, or 1 where memory ran out. */
EXPORT int lanes_matmul(const Lanes *w, const void *x, int bfloat16, void *out, int out_bfloat16, int64_t rows, int digits,
                        const uint8_t *refined, int gating, int threads) {
    if (!rows) return 0;
    void *quantised = scratch((size_t)matmul_bytes(w, rows, digits, refined));
    if (!quantised) return 1;
    Matmul m = matmul_of(w, x, bfloat16, out, out_bfloat16, rows, digits, refined, quantised);
    m.gating = gating;
    if (gating >= 0) m.blocks /= 2;
    threads = product_threads(w->in_features * w->out_features, threads);
    share_out(quantise_piece, &m, rows * m.pieces, m.all * w->in_features < WORTH_SHARING ? 1 : threads);
    share_out(panel_product, &m, m.panels * m.blocks, threads);
    return 0;
}

/* ------------------------------------------------------------------ weights as numbers */

/* Input features [k, k + 32) of one block as [32, 64], each by its definition: (code - zero) * scale + shift, each step
 * rounded to float32. */
INLINE void write_unit(const int type, const Lanes *w, int64_t block, int64_t k, float *out) {
    const int64_t units = w->in_features / UNIT;
    const int bits = code_bits(w->kind), above = high_bits(w->kind);
    uint32_t opened[UNIT / 8 * BLOCK];
    if (w->book_type) open_book(w, block, k, k / UNIT % CHUNK_UNITS, 1, opened);
    const Chunk chunk = {.codes = w->book_type ? opened : w->codes + (block * units + k / UNIT) * bits * BLOCK,
                         .high = above ? w->high + (block * units + k / UNIT) * above * BLOCK : NULL};
    for (int i = 0; i < DOTS; i++, k += 4) {
        const Place place = place_of(w, block, k);
        for (int lane = 0; lane < BLOCK; lane += LANES) {
            const Floats scale = scales_at(type, w, place, lane), zero = zeros_at(type, w, place, lane);
            const Floats shift = shifts_at(type, w, place, lane);
            const Words codes = raw_codes_at(w->kind, &chunk, 0, i, lane);
            for (int j = 0; j < 4; j++) {
                const Words code = codes >> 8 * j & 0xFF;
                Floats value = w->kind == SIGNED8 ? (Floats)__builtin_convertvector((Ints)(code << 24) >> 24, Floats)
                                                  : whole_floats(code);
                if (w->kind == TABLE4)
                    for (int n = 0; n < LANES; n++) value[n] = w->values[code[n]];
                value = (value - zero) * scale;
                if (w->factor != 1) value *= w->factor;
                IN_ORDER(value); /* not multiplied and added in one rounding */
                put_floats(out + (4 * i + j) * BLOCK + lane, value + shift);
            }
        }
    }
}

/* Rows ``features`` of W, in float32 or rounded once to bfloat16. */
typedef struct {
    const Lanes *w;
    const int64_t *features;
    int64_t count;
    void *out;
    int bfloat16;
} Rows;

static void write_units(const void *of, int64_t index) {
    const Rows *rows = of;
    const Lanes *w = rows->w;
    const int64_t k = index * UNIT;
    float unit[UNIT * BLOCK];
    for (int64_t i = 0, block = -1; i < rows->count; i++) {
        const int64_t feature = rows->features[i];
        if (feature / BLOCK != block) {
            block = feature / BLOCK;
            switch (w->scale_type) {
#define WRITE(TYPE)                                                                                                    \
    case TYPE: write_unit(TYPE, w, block, k, unit); break;
                EACH_SCALE_TYPE(WRITE)
            }
        }
        float values[UNIT];
        for (int j = 0; j < UNIT; j++) values[j] = unit[j * BLOCK + feature % BLOCK];
        put_values(rows->out, i * w->in_features + k, values, UNIT, rows->bfloat16);
    }
}

/* out [count, K]. */
EXPORT void lanes_write(const Lanes *w, const int64_t *features, int64_t count, void *out, int bfloat16, int threads) {
    const Rows rows = {w, features, count, out, bfloat16};
    share_out(write_units, &rows, w->in_features / UNIT, product_threads(count * w->in_features, threads));
}
