/* Attention of many rows of a sequence: reading a prompt.
 *
 * A task is some rows of a sequence, with all query heads that share a KV head. It goes over its keys in blocks: a block's
 * keys and values become float32 once, keys with a lane for each key, and are multiplied with six queries at a time, so that
 * sums stay in registers. Blocks begin at multiples of BLOCK from the sequence's start and each score and sum is added up
 * in the order of channels and keys: neither the rows of a task nor the number of threads change a row's bits. Scores, weights
 * and sums are float32; sums so far are rescaled when a larger score appears (Milakov and Gimelshein 2018; Dao et al. 2022).
 */
#include "attention_packed.h"
#include "threads.h"

#include <stdatomic.h>

/* QUERIES x SPAN vectors of sums are in registers, and a block's keys are SPAN vectors of lanes, panel after panel. */
enum { BLOCK = 64, QUERIES = 6, SPAN = HELD / 4, PANEL = SPAN * LANES };
/* Queries of a task, about: the more, the rarer keys are unpacked; the fewer, the more tasks there are. */
enum { TASK_QUERIES = 256 };

/* Rows [row, end) with the query heads of a KV head. */
typedef struct {
    int64_t row, end, kv_head;
} Tile;

typedef struct {
    const Attend *a;
    const Tile *tiles;
    Side keys, values;
    Layout key_layout, value_layout; /* of codes */
    _Atomic int failed;
} Tiles;

/* Six queries, padded by copies of the last one: their keys, and how far they have come. */
typedef struct {
    int64_t first[QUERIES], stop[QUERIES], begin, end; /* begin, end: of all keys that any of them sees */
    float top[QUERIES], total[QUERIES];
} Lot;

/* What a task keeps: q [count, k_width] and sums [count, v_width] of its queries, count a multiple of QUERIES; of a block
 * keys [BLOCK / PANEL, k_width, PANEL] and values [BLOCK, v_width]; numbers of a page of keys. */
typedef struct {
    int64_t count;
    Lot *lots;
    float *q, *sums, *keys, *values, *numbers;
} Held;

/* sum[r][p] += a[r][i] * b[i][p] for all i. */
INLINE void multiply(const int span, const float *a, int64_t a_row, int64_t count, const float *b, int64_t b_row,
                     Floats sum[QUERIES][SPAN]) {
    for (int64_t i = 0; i < count; i++) {
        Floats vector[SPAN];
        UNROLL for (int p = 0; p < span; p++) vector[p] = floats_at(b + i * b_row + p * LANES);
        UNROLL for (int r = 0; r < QUERIES; r++) {
            const Floats factor = every_float(a[r * a_row + i]);
            UNROLL for (int p = 0; p < span; p++) sum[r][p] += vector[p] * factor;
        }
    }
}

/* Whether queries and keys stay bfloat16, two of them a word, since the processor multiplies these. */
INLINE int in_pairs(const Attend *a) {
#ifdef __AVX512BF16__
    return !a->wide && a->kind == PLAIN;
#else
    (void)a;
    return 0;
#endif
}

INLINE int64_t key_words(const Attend *a) { return in_pairs(a) ? a->k_width / 2 : a->k_width; }

INLINE void multiply_pairs(const float *a, int64_t a_row, int64_t count, const float *b, Floats sum[QUERIES][SPAN]) {
#ifdef __AVX512BF16__
    for (int64_t i = 0; i < count; i++) {
        __m512bh vector[SPAN];
        UNROLL for (int p = 0; p < SPAN; p++) vector[p] = (__m512bh)floats_at(b + i * PANEL + p * LANES);
        UNROLL for (int r = 0; r < QUERIES; r++) {
            const __m512bh factor = (__m512bh)_mm512_set1_ps(a[r * a_row + i]);
            UNROLL for (int p = 0; p < SPAN; p++)
                sum[r][p] = (Floats)_mm512_dpbf16_ps((__m512)sum[r][p], vector[p], factor);
        }
    }
#else
    (void)a, (void)a_row, (void)count, (void)b, (void)sum;
#endif
}

INLINE void gather_span(const int span, const Held *held, int64_t width, const float *weights, const float *kept,
                        int64_t begin, int64_t end, float *sums, int64_t channel) {
    Floats sum[QUERIES][SPAN];
    UNROLL for (int r = 0; r < QUERIES; r++)
        UNROLL for (int p = 0; p < span; p++) sum[r][p] = floats_at(sums + r * width + channel + p * LANES) * kept[r];
    multiply(span, weights + begin, BLOCK, end - begin, held->values + begin * width + channel, width, sum);
    UNROLL for (int r = 0; r < QUERIES; r++)
        UNROLL for (int p = 0; p < span; p++) put_floats(sums + r * width + channel + p * LANES, sum[r][p]);
}

/* Scores of a block become weights; those of keys that a query does not see are none. ``kept`` is what sums so far are
 * multiplied with. Queries go side by side, as each waits for its own largest score. */
static void weigh_block(Lot *lot, int64_t block, float scale, float (*scores)[BLOCK], float *kept) {
    enum { ALL = (QUERIES + LANES - 1) / LANES * LANES };
    float before[ALL] = {0}, origin[ALL] = {0}, fallen[ALL];
    for (int r = 0; r < QUERIES; r++) {
        float *row = scores[r];
        const int64_t begin = lot->first[r] - block, end = lot->stop[r] - block;
        for (int64_t i = 0; i < begin && i < BLOCK; i++) row[i] = -INFINITY;
        for (int64_t i = end > 0 ? end : 0; i < BLOCK; i++) row[i] = -INFINITY;
    }
    UNROLL for (int r = 0; r < QUERIES; r++) {
        Floats largest = every_float(-INFINITY);
        UNROLL for (int i = 0; i < BLOCK; i += LANES) {
            const Floats x = floats_at(scores[r] + i) * scale;
            put_floats(scores[r] + i, x);
            largest = chosen(largest < x, x, largest);
        }
        const float found = largest_lane(largest), top = lot->top[r];
        before[r] = top;
        lot->top[r] = found > top ? found : top;
        origin[r] = lot->top[r] == -INFINITY ? 0 : lot->top[r];
    }
    for (int i = 0; i < ALL; i += LANES) put_floats(fallen + i, exponential(floats_at(before + i) - floats_at(origin + i)));
    for (int r = 0; r < QUERIES; r++) {
        Floats sum = {0};
        UNROLL for (int i = 0; i < BLOCK; i += LANES) {
            const Floats weight = exponential(floats_at(scores[r] + i) - origin[r]);
            put_floats(scores[r] + i, weight);
            sum += weight;
        }
        kept[r] = fallen[r];
        lot->total[r] = lot->total[r] * kept[r] + sum_of_lanes(sum);
    }
}

static void attend_block(const Attend *a, const Held *held, int64_t lot_index, int64_t block) {
    Lot *lot = held->lots + lot_index;
    const int64_t words = key_words(a);
    const float *q = held->q + lot_index * QUERIES * words;
    float *sums = held->sums + lot_index * QUERIES * a->v_width, scores[QUERIES][BLOCK], kept[QUERIES];
    for (int at = 0; at < BLOCK; at += PANEL) {
        Floats sum[QUERIES][SPAN];
        UNROLL for (int r = 0; r < QUERIES; r++)
            UNROLL for (int p = 0; p < SPAN; p++) sum[r][p] = (Floats){0};
        if (in_pairs(a))
            multiply_pairs(q, words, words, held->keys + at * words, sum);
        else
            multiply(SPAN, q, words, words, held->keys + at * words, PANEL, sum);
        UNROLL for (int r = 0; r < QUERIES; r++)
            UNROLL for (int p = 0; p < SPAN; p++) put_floats(scores[r] + at + p * LANES, sum[r][p]);
    }
    weigh_block(lot, block, a->scale, scores, kept);
    const int64_t begin = lot->begin > block ? lot->begin - block : 0, end = smaller(lot->end - block, BLOCK);
    int64_t d = 0;
    for (; d + PANEL <= a->v_width; d += PANEL)
        gather_span(SPAN, held, a->v_width, scores[0], kept, begin, end, sums, d);
    if (d < a->v_width) gather_span(SPAN / 2, held, a->v_width, scores[0], kept, begin, end, sums, d); /* 32 of 96 */
}

INLINE void widen(const uint16_t *from, int64_t width, float *to) {
    for (int64_t d = 0; d < width; d += LANES) put_floats(to + d, bfloat16_at(from + d));
}

/* numbers [LANES, width] to panel [width, PANEL], LANES of its columns: halves of the rows interleaved, again and again. */
static void turn(const float *numbers, int64_t width, float *panel) {
    for (int64_t d = 0; d < width; d += LANES) {
        Floats rows[LANES], mixed[LANES];
        UNROLL for (int i = 0; i < LANES; i++) rows[i] = floats_at(numbers + i * width + d);
        UNROLL for (int n = 1; n < LANES; n *= 2) {
            UNROLL for (int i = 0; i < LANES / 2; i++) interleave(rows[i], rows[i + LANES / 2], mixed + 2 * i);
            UNROLL for (int i = 0; i < LANES; i++) rows[i] = mixed[i];
        }
        UNROLL for (int i = 0; i < LANES; i++) put_floats(panel + (d + i) * PANEL, rows[i]);
    }
}

/* The numbers [PAGE, width] of a page of keys, or words where they stay in pairs, or of values. */
INLINE void read_page(const Tiles *all, const Side *side, const Layout *layout, int in_words, const int32_t *pages,
                      int64_t page, int64_t kv_head, float *numbers) {
    if (all->a->kind != PLAIN) {
        unpack_head(side, layout, pages, page, kv_head, numbers, side->width);
        return;
    }
    for (int i = 0; i < PAGE; i++) {
        const int64_t slot = (int64_t)pages[page] * PAGE + i;
        const uint16_t *from = (const uint16_t *)(side->codes + slot * side->slot + kv_head * side->head);
        if (in_words)
            memcpy(numbers + i * side->width / 2, from, side->width * sizeof(uint16_t));
        else
            widen(from, side->width, numbers + i * side->width);
    }
}

/* Keys and values of a block; zeros where no row of the task sees one, whatever is there. */
static void read_block(const Tiles *all, const Held *held, const Tile *tile, int64_t block) {
    const Attend *a = all->a;
    const int64_t words = key_words(a);
    const int32_t *pages = a->pages + a->rows[tile->row][0];
    uint8_t seen[BLOCK] = {0};
    for (int64_t row = tile->row; row < tile->end; row++) {
        const int64_t begin = a->rows[row][1] > block ? a->rows[row][1] - block : 0;
        for (int64_t i = begin; i < BLOCK && block + i < a->rows[row][2]; i++) seen[i] = 1;
    }
    for (int i = 0; i < BLOCK; i += PAGE) {
        float *keys = held->numbers, *values = held->values + i * a->v_width;
        if (memchr(seen + i, 1, PAGE)) {
            read_page(all, &all->keys, &all->key_layout, in_pairs(a), pages, (block + i) / PAGE, tile->kv_head, keys);
            read_page(all, &all->values, &all->value_layout, 0, pages, (block + i) / PAGE, tile->kv_head, values);
        }
        for (int j = 0; j < PAGE; j++)
            if (!seen[i + j]) {
                memset(keys + j * words, 0, words * sizeof(float));
                memset(values + j * a->v_width, 0, a->v_width * sizeof(float));
            }
        for (int j = 0; j < PAGE; j += LANES)
            turn(keys + j * words, words, held->keys + (i + j) / PANEL * PANEL * words + (i + j) % PANEL);
    }
}

static void begin_tile(const Attend *a, const Tile *tile, const Held *held) {
    const int64_t group = a->heads / a->kv_heads, last = (tile->end - tile->row) * group - 1;
    for (int64_t i = 0; i < held->count; i++) {
        const int64_t query = smaller(i, last), row = tile->row + query / group;
        const int64_t at = (row * a->heads + tile->kv_head * group + query % group) * a->k_width;
        float *q = held->q + i * key_words(a);
        if (a->wide)
            memcpy(q, (const float *)a->q + at, a->k_width * sizeof(float));
        else if (in_pairs(a))
            memcpy(q, (const uint16_t *)a->q + at, a->k_width * sizeof(uint16_t));
        else
            widen((const uint16_t *)a->q + at, a->k_width, q);
        Lot *lot = held->lots + i / QUERIES;
        const int r = i % QUERIES;
        if (!r) lot->begin = INT64_MAX, lot->end = 0;
        lot->first[r] = a->rows[row][1], lot->stop[r] = a->rows[row][2];
        lot->top[r] = -INFINITY, lot->total[r] = 0;
        if (lot->first[r] >= lot->stop[r]) continue;
        lot->begin = smaller(lot->begin, lot->first[r]);
        if (lot->stop[r] > lot->end) lot->end = lot->stop[r];
    }
    memset(held->sums, 0, held->count * a->v_width * sizeof(float));
}

static void end_tile(const Attend *a, const Tile *tile, const Held *held) {
    const int64_t group = a->heads / a->kv_heads;
    for (int64_t i = 0; i < (tile->end - tile->row) * group; i++) {
        const int64_t place = (tile->row + i / group) * a->heads + tile->kv_head * group + i % group;
        const Lot *lot = held->lots + i / QUERIES;
        const float total = lot->total[i % QUERIES], top = lot->top[i % QUERIES], *sums = held->sums + i * a->v_width;
        for (int64_t d = 0, at = place * a->v_width; d < a->v_width; d += LANES) {
            const Floats result = floats_at(sums + d) / (total == 0 ? 1 : total);
            if (a->wide)
                put_floats((float *)a->out + at + d, result);
            else
                put_bfloat16((uint16_t *)a->out + at + d, result);
        }
        if (a->lse) a->lse[place] = total == 0 ? -INFINITY : top + logf(total);
    }
}

static void attend_tile(const void *of, int64_t index) {
    Tiles *all = (Tiles *)of;
    const Attend *a = all->a;
    const Tile *tile = all->tiles + index;
    const int64_t group = a->heads / a->kv_heads, lots = ((tile->end - tile->row) * group + QUERIES - 1) / QUERIES;
    Held held = {.count = lots * QUERIES};
    const int64_t width = a->k_width + a->v_width;
    const int64_t floats = held.count * width + BLOCK * width + PAGE * a->k_width;
    held.q = scratch(floats * sizeof(float) + lots * sizeof(Lot));
    if (!held.q) {
        atomic_store(&all->failed, 1);
        return;
    }
    held.sums = held.q + held.count * a->k_width;
    held.keys = held.sums + held.count * a->v_width;
    held.values = held.keys + BLOCK * a->k_width;
    held.numbers = held.values + BLOCK * a->v_width;
    held.lots = (Lot *)(held.numbers + PAGE * a->k_width);
    begin_tile(a, tile, &held);
    int64_t begin = INT64_MAX, end = 0;
    for (int64_t i = 0; i < lots; i++) {
        begin = smaller(begin, held.lots[i].begin);
        if (held.lots[i].end > end) end = held.lots[i].end;
    }
    for (int64_t block = begin / BLOCK * BLOCK; block < end; block += BLOCK) {
        read_block(all, &held, tile, block);
        for (int64_t i = 0; i < lots; i++)
            if (held.lots[i].begin < block + BLOCK && held.lots[i].end > block) attend_block(a, &held, i, block);
    }
    end_tile(a, tile, &held);
}

/* attend_rows (attention.c) for sequences of many rows. 1 where memory ran out. */
EXPORT int attend_tiles(const Attend *a, int threads) {
    const int64_t group = a->heads / a->kv_heads, most = group < TASK_QUERIES ? TASK_QUERIES / group : 1;
    Tile *tiles = malloc((a->count * sizeof(Tile) + sizeof(Tile)) * a->kv_heads), *next = tiles;
    if (!tiles) return 1;
    for (int64_t row = 0, end; row < a->count; row = end) {
        for (end = row + 1; end < a->count && a->rows[end][0] == a->rows[row][0];) end++;
        const int64_t count = (end - row + most - 1) / most;
        for (int64_t head = 0; head < a->kv_heads; head++)
            for (int64_t i = 0; i < count; i++)
                *next++ = (Tile){row + (end - row) * i / count, row + (end - row) * (i + 1) / count, head};
    }
    Tiles all = {.a = a, .tiles = tiles, .keys = keys_of(a, 1), .values = values_of(a, 1)};
    if (a->kind != PLAIN) {
        all.key_layout = layout_of(a->k_width, a->k_bits);
        all.value_layout = layout_of(a->v_width, a->v_bits);
    }
    share_out(attend_tile, &all, next - tiles, threads);
    free(tiles);
    return all.failed;
}
