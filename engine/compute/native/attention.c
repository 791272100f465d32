/* Attention over paged keys and values: decoding, checking drafted tokens, and reading prompts.
 *
 * A task is some queries, which are of rows of one sequence and of heads that share a KV head, and a part of their keys.
 * Parts begin at multiples of PART from the sequence's start, and blocks of a part at multiples of BLOCK. A block's keys and
 * values become float32 once, keys with a lane for each, and are multiplied with up to six queries at a time, so that sums
 * stay in registers; sums so far are rescaled when a larger score appears (Milakov and Gimelshein 2018; Dao et al. 2022).
 * Parts are merged in their order. Scores and sums are added up in the order of channels and keys, in float32: a row's
 * bits depend on its keys alone, neither on other rows and heads nor on the number of threads, as long as the keys and values
 * that those see are finite. (What QUEST reads is one part. Packed keys and values of few rows are attention_packed.c's,
 * which adds up in another order.)
 */
#include "attention.h"
#include "attention_packed.h"
#include "threads.h"

#include <stdatomic.h>

/* A block's keys; queries at a time, and vectors of keys or channels that go with them. */
enum { BLOCK = 64, QUERIES = 6, SPAN = HELD / 4 };
/* Queries of a task: the more, the rarer keys are unpacked; the fewer, the more tasks there are. Rows up to FEW_ROWS of a
 * sequence have a task for each part of their keys, others go from part to part. */
enum { MOST_QUERIES = 256, LEAST_QUERIES = 32, FEW_ROWS = 16 };
/* Products of keys and queries below which a second thread costs more than it gives. */
enum { WORTH_A_THREAD = 1 << 17, WIDEST_KEY = 576 };

/* Where keys and values are. Of codes that are not PLAIN, how their channels lie. */
typedef struct {
    const Attend *a;
    Side keys, values;
    Layout key_layout, value_layout;
} Source;

/* Up to six queries, from place ``at`` on: their keys [first, stop), and the largest score and the sum of weights of the
 * part at hand, and of all before it. */
typedef struct {
    int64_t at, count, first[QUERIES], stop[QUERIES], begin, end; /* begin, end: of keys that any of them sees */
    const int64_t *tree[QUERIES]; /* see Attend; NULL: all of them */
    float top[QUERIES], total[QUERIES], tops[QUERIES], totals[QUERIES];
} Lot;

/* What a task keeps: q [count, words] and, of the part at hand and of those before, sums [count, v_width] of its queries;
 * keys [words, BLOCK] and values [BLOCK, v_width] of a block; a page's keys. */
typedef struct {
    int64_t count, lots, begin, end; /* begin, end: of keys that any query sees */
    Lot *lot;
    float *q, *sums, *merged, *keys, *values, *numbers;
} Held;

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

INLINE Floats add_product(const int pairs, Floats sum, Floats a, Floats b) {
#ifdef __AVX512BF16__
    if (pairs) return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    (void)pairs;
#endif
    return sum + a * b;
}

/* sum[r][p] += a[r][i] * b[i][p] for all i. */
INLINE void multiply(const int pairs, const int queries, const int span, const float *a, int64_t a_row, int64_t count,
                     const float *b, int64_t b_row, Floats sum[QUERIES][2 * SPAN]) {
    for (int64_t i = 0; i < count; i++) {
        Floats vector[2 * SPAN];
        UNROLL for (int p = 0; p < span; p++) vector[p] = floats_at(b + i * b_row + p * LANES);
        UNROLL for (int r = 0; r < queries; r++) {
            const Floats factor = every_float(a[r * a_row + i]);
            UNROLL for (int p = 0; p < span; p++) sum[r][p] = add_product(pairs, sum[r][p], vector[p], factor);
        }
    }
}

INLINE void score_span(const int pairs, const int queries, const int span, const float *q, int64_t words, const float *keys,
                       float scale, float (*scores)[BLOCK], int at) {
    Floats sum[QUERIES][2 * SPAN];
    UNROLL for (int r = 0; r < queries; r++)
        UNROLL for (int p = 0; p < span; p++) sum[r][p] = (Floats){0};
    multiply(pairs, queries, span, q, words, words, keys + at, BLOCK, sum);
    UNROLL for (int r = 0; r < queries; r++)
        UNROLL for (int p = 0; p < span; p++) put_floats(scores[r] + at + p * LANES, sum[r][p] * scale);
}

INLINE void gather_span(const int queries, const int span, const float *values, int64_t width, const float *weights,
                        int64_t count, const float *kept, float *sums) {
    Floats sum[QUERIES][2 * SPAN];
    UNROLL for (int r = 0; r < queries; r++)
        UNROLL for (int p = 0; p < span; p++) sum[r][p] = floats_at(sums + r * width + p * LANES) * kept[r];
    multiply(0, queries, span, weights, BLOCK, count, values, width, sum);
    UNROLL for (int r = 0; r < queries; r++)
        UNROLL for (int p = 0; p < span; p++) put_floats(sums + r * width + p * LANES, sum[r][p]);
}

/* Not inlined, as merge_part. */
__attribute__((noinline)) void cap_scores(float *scores, int64_t count, float cap) {
    for (int64_t i = count; i % LANES; i++) scores[i] = 0;
    for (int64_t i = 0; i < count; i += LANES) put_floats(scores + i, hyperbolic_tangent(floats_at(scores + i) / cap) * cap);
}

/* Scores of a block become weights; those of keys that a query does not see are none. ``kept`` is what sums so far are
 * multiplied with. Queries go side by side, as each waits for its own largest score. */
INLINE void weigh_block(const int queries, Lot *lot, int64_t block, float (*scores)[BLOCK], float *kept) {
    enum { ALL = (QUERIES + LANES - 1) / LANES * LANES };
    float before[ALL] = {0}, origin[ALL] = {0}, fallen[ALL];
    for (int r = 0; r < queries; r++) {
        float *row = scores[r];
        const int64_t begin = lot->first[r] - block, end = lot->stop[r] - block;
        for (int64_t i = 0; i < begin && i < BLOCK; i++) row[i] = -INFINITY;
        for (int64_t i = end > 0 ? end : 0; i < BLOCK; i++) row[i] = -INFINITY;
        for (int64_t i = lot->tree[r] ? unseen_from(lot->tree[r], block) : BLOCK; i < smaller(end, BLOCK); i++)
            if (!sees(lot->tree[r], block + i)) row[i] = -INFINITY;
    }
    UNROLL for (int r = 0; r < queries; r++) {
        Floats largest = every_float(-INFINITY);
        UNROLL for (int i = 0; i < BLOCK; i += LANES) {
            const Floats x = floats_at(scores[r] + i);
            largest = chosen(largest < x, x, largest);
        }
        const float found = largest_lane(largest), top = lot->top[r];
        before[r] = top;
        lot->top[r] = found > top ? found : top;
        origin[r] = lot->top[r] == -INFINITY ? 0 : lot->top[r];
    }
    for (int i = 0; i < ALL && i < queries; i += LANES)
        put_floats(fallen + i, exponential(floats_at(before + i) - floats_at(origin + i)));
    for (int r = 0; r < queries; r++) {
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

INLINE void attend_block(const int queries, const Attend *a, const Held *held, Lot *lot, int64_t block) {
    const int span = queries > 2 || BLOCK < 2 * SPAN * LANES ? SPAN : 2 * SPAN, panel = span * LANES;
    const int64_t words = key_words(a), begin = lot->begin > block ? lot->begin - block : 0;
    const int64_t end = smaller(lot->end - block, BLOCK);
    const float *q = held->q + lot->at * words;
    float *sums = held->sums + lot->at * a->v_width, scores[QUERIES][BLOCK], kept[QUERIES];
    for (int at = 0; at < end; at += panel) /* later scores are set by weigh_block */
        if (in_pairs(a))
            score_span(1, queries, span, q, words, held->keys, a->scale, scores, at);
        else
            score_span(0, queries, span, q, words, held->keys, a->scale, scores, at);
    for (int r = 0; a->softcap > 0 && r < queries; r++) cap_scores(scores[r], end, a->softcap);
    weigh_block(queries, lot, block, scores, kept);
    const float *values = held->values + begin * a->v_width, *weights = scores[0] + begin;
    int64_t d = 0;
    for (; d + panel <= a->v_width; d += panel)
        gather_span(queries, span, values + d, a->v_width, weights, end - begin, kept, sums + d);
    const int rest = 32 / LANES < span ? 32 / LANES : span; /* widths are multiples of 32 */
    for (; d < a->v_width; d += 32)
        gather_span(queries, rest, values + d, a->v_width, weights, end - begin, kept, sums + d);
}

static void attend_lot(const Attend *a, const Held *held, Lot *lot, int64_t block) {
    switch (lot->count) {
    case 1: attend_block(1, a, held, lot, block); break;
    case 2: attend_block(2, a, held, lot, block); break;
    case 3: attend_block(3, a, held, lot, block); break;
    case 4: attend_block(4, a, held, lot, block); break;
    case 5: attend_block(5, a, held, lot, block); break;
    default: attend_block(QUERIES, a, held, lot, block);
    }
}

INLINE void widen(const uint16_t *from, int64_t width, float *to) {
    for (int64_t d = 0; d < width; d += LANES) put_floats(to + d, bfloat16_at(from + d));
}

/* LANES keys to columns of [width, BLOCK]: keys of ``width`` words, which ``halve`` makes two numbers of each. */
INLINE void turn(const int halve, const float *const *keys, int64_t width, float *columns) {
    for (int64_t d = 0; d < width; d += LANES) {
        Floats rows[LANES];
        UNROLL for (int i = 0; i < LANES; i++) rows[i] = floats_at(keys[i] + d);
        transpose(rows);
        UNROLL for (int i = 0; i < LANES; i++)
            if (halve) {
                put_floats(columns + 2 * (d + i) * BLOCK, lower_numbers((Words)rows[i]));
                put_floats(columns + (2 * (d + i) + 1) * BLOCK, upper_numbers((Words)rows[i]));
            } else {
                put_floats(columns + (d + i) * BLOCK, rows[i]);
            }
    }
}

INLINE const uint16_t *plain_at(const Side *side, int64_t page, int i, int64_t kv_head) {
    return (const uint16_t *)(side->codes + (page * PAGE + i) * side->slot + kv_head * side->head);
}

/* Ask for a page, whose place no processor foresees, while the block before it is attended. */
INLINE void fetch_page(const Side *side, int64_t page, int64_t kv_head) {
    const int64_t bytes = side->width * side->bits / 8;
    for (int i = 0; i < PAGE; i++)
        for (int64_t at = 0; at < bytes; at += 64)
            __builtin_prefetch(side->codes + (page * PAGE + i) * side->slot + kv_head * side->head + at, 0, 2);
}

static void see(const Held *held, int64_t block, uint8_t seen[BLOCK]) {
    memset(seen, 0, BLOCK);
    for (int64_t i = 0; i < held->lots; i++) {
        const Lot *lot = held->lot + i;
        for (int r = 0; r < lot->count; r++) {
            const int64_t begin = lot->first[r] > block ? lot->first[r] - block : 0;
            const int64_t end = smaller(lot->stop[r] - block, BLOCK);
            if (begin < end) memset(seen + begin, 1, end - begin);
            if (end - begin == BLOCK) return;
        }
    }
}

/* Keys and values of a block up to key ``stop``; zeros where no query of the task sees one, whatever is there. ``last``: of
 * all its keys. */
static void read_block(const Source *s, const Held *held, const int32_t *pages, int64_t kv_head, int64_t block, int64_t stop,
                       int64_t last) {
    const Attend *a = s->a;
    const int64_t words = key_words(a);
    uint8_t seen[BLOCK];
    see(held, block, seen);
    for (int i = 0; i < BLOCK && block + i < stop; i += PAGE) {
        static const float nothing[WIDEST_KEY];
        const float *keys[PAGE];
        float *values = held->values + i * a->v_width;
        const int64_t page = (block + i) / PAGE, next = (block + BLOCK + i) / PAGE;
        if (memchr(seen + i, 1, PAGE)) {
            for (int j = 0; j < PAGE && a->kind == PLAIN; j++)
                widen(plain_at(&s->values, pages[page], j, kv_head), a->v_width, values + j * a->v_width);
            if (a->kind != PLAIN) unpack_head(&s->values, &s->value_layout, pages, page, kv_head, values, a->v_width);
            if (a->kind != PLAIN) unpack_head(&s->keys, &s->key_layout, pages, page, kv_head, held->numbers, words);
        }
        if (next * PAGE < last) fetch_page(&s->keys, pages[next], kv_head), fetch_page(&s->values, pages[next], kv_head);
        for (int j = 0; j < PAGE; j++)
            if (seen[i + j]) {
                keys[j] = held->numbers + j * words;
                if (a->kind == PLAIN) keys[j] = (const float *)plain_at(&s->keys, pages[page], j, kv_head);
            } else {
                keys[j] = nothing;
                memset(values + j * a->v_width, 0, a->v_width * sizeof(float));
            }
        for (int j = 0; j < PAGE; j += LANES)
            if (in_pairs(a) || a->kind != PLAIN)
                turn(0, keys + j, words, held->keys + i + j);
            else
                turn(1, keys + j, words / 2, held->keys + i + j);
    }
}

/* What a task needs for so many queries, from scratch. NULL where memory ran out. */
INLINE Held hold(const Attend *a, int64_t queries) {
    const int64_t lots = (queries + QUERIES - 1) / QUERIES, words = key_words(a), width = a->v_width;
    Held held = {.count = queries, .lots = lots, .begin = INT64_MAX};
    const int64_t floats = queries * (words + 2 * width) + BLOCK * (words + width) + PAGE * words;
    held.q = scratch(floats * sizeof(float) + lots * sizeof(Lot));
    if (!held.q) return held;
    held.sums = held.q + queries * words;
    held.merged = held.sums + queries * width;
    held.keys = held.merged + queries * width;
    held.values = held.keys + BLOCK * words;
    held.numbers = held.values + BLOCK * width;
    held.lot = (Lot *)(held.numbers + PAGE * words);
    for (int64_t i = 0; i < lots; i++) {
        Lot *lot = held.lot + i;
        lot->at = queries * i / lots, lot->count = queries * (i + 1) / lots - lot->at;
        lot->begin = INT64_MAX, lot->end = 0;
    }
    return held;
}

/* The query of a head, which ``head`` counts over all rows. */
INLINE void read_query(const Attend *a, int64_t head, float *q) {
    if (a->wide || in_pairs(a))
        memcpy(q, query_at(a, head), a->k_width * (a->wide ? sizeof(float) : sizeof(uint16_t)));
    else
        widen(query_at(a, head), a->k_width, q);
}

INLINE void see_keys(Lot *lot, int r, int64_t first, int64_t stop, const int64_t *tree) {
    lot->first[r] = first, lot->stop[r] = stop, lot->tree[r] = tree;
    if (first >= stop) return;
    lot->begin = smaller(lot->begin, first);
    if (stop > lot->end) lot->end = stop;
}

/* The keys [from, stop) that a task's queries see, as one part. */
static void attend_part(const Source *s, Held *held, const int32_t *pages, int64_t kv_head, int64_t from, int64_t stop,
                        int64_t last) {
    for (int64_t i = 0; i < held->lots; i++)
        for (int r = 0; r < QUERIES; r++) held->lot[i].top[r] = -INFINITY, held->lot[i].total[r] = 0;
    memset(held->sums, 0, held->count * s->a->v_width * sizeof(float));
    for (int64_t page = from / PAGE, some = 0; some < BLOCK / PAGE && page * PAGE < stop; page++, some++)
        fetch_page(&s->keys, pages[page], kv_head), fetch_page(&s->values, pages[page], kv_head);
    for (int64_t block = from / BLOCK * BLOCK; block < stop; block += BLOCK) {
        read_block(s, held, pages, kv_head, block, stop, last);
        for (int64_t i = 0; i < held->lots; i++)
            if (held->lot[i].begin < block + BLOCK && held->lot[i].end > block) attend_lot(s->a, held, held->lot + i, block);
    }
}

/* Merge a part (top, total, sums [width]) with those before it. Not inlined: wherever it is called it is the same code, and
 * gives the same bits. */
static __attribute__((noinline)) void merge_part(float *tops, float *totals, float *merged, float top, float total,
                                                 const float *sums, int64_t width) {
    const float most = *tops > top ? *tops : top, origin = most == -INFINITY ? 0 : most;
    const float before = exponential(every_float(*tops - origin))[0], now = exponential(every_float(top - origin))[0];
    *totals = *totals * before + total * now;
    *tops = most;
    for (int64_t d = 0; d < width; d += LANES)
        put_floats(merged + d, floats_at(merged + d) * before + floats_at(sums + d) * now);
}

/* The result of a row's head, ``place`` counts both, from its sums. */
INLINE void write_result(const Attend *a, int64_t place, const float *sums, float top, float total) {
    const int none = total == 0; /* it saw no key: of what is not a number the total is none either */
    for (int64_t d = 0, at = place * a->v_width; d < a->v_width; d += LANES) {
        const Floats result = none ? (Floats){0} : floats_at(sums + d) / total;
        if (a->wide)
            put_floats((float *)a->out + at + d, result);
        else
            put_bfloat16((uint16_t *)a->out + at + d, result);
    }
    if (a->lse) a->lse[place] = none ? -INFINITY : top + logf(total);
}

/* Queries [query, end) of a sequence's, row after row and of a row the heads of a KV head, over parts [part, stop). */
typedef struct {
    int64_t row, query, end, kv_head, part, stop;
    int one_part; /* of several tasks for these queries each has a part: results are merged later */
} Task;

/* Results of parts: of each part the sums of all query heads, then their largest scores, then their totals. */
typedef struct {
    Source source;
    Task *tasks;
    float *numbers;
    const int64_t *begins; /* of each row: parts before its own */
    int64_t size;          /* floats of a part */
    _Atomic int failed;
} Work;

INLINE int64_t first_part(const Attend *a, int64_t row) { return a->rows[row][1] / PART; }
INLINE int64_t parts_of(const Attend *a, int64_t row) {
    const int64_t first = a->rows[row][1], stop = a->rows[row][2];
    return stop > first ? (stop - 1) / PART - first / PART + 1 : 0;
}

/* A part of packed keys and values for few rows, one by one; ``numbers`` as Work has them. */
static void attend_codes(const Work *work, const Task *task) {
    const Attend *a = work->source.a;
    const int64_t group = a->heads / a->kv_heads;
    for (int64_t query = task->query, end; query < task->end; query = end) {
        const int64_t row = task->row + query / group, head = task->kv_head * group + query % group;
        const int64_t part = task->part - first_part(a, row), stop = a->rows[row][2], from = task->part * PART;
        end = smaller(query + smaller(group - query % group, MOST_QUERIES), task->end);
        if (part < 0 || part >= parts_of(a, row)) continue;
        float q[MOST_QUERIES * WIDEST_PACKED], *numbers = work->numbers + (work->begins[row] + part) * work->size;
        for (int64_t i = 0; i < end - query; i++) read_query(a, row * a->heads + head + i, q + i * a->k_width);
        const Part keys = {
            .pages = a->pages + a->rows[row][0],
            .first = from > a->rows[row][1] ? from : a->rows[row][1],
            .stop = smaller(from + PART, stop),
            .last = stop - 1,
            .tree = tree_of(a, row),
            .kv_head = task->kv_head,
            .heads = end - query,
            .q = q,
            .sums = numbers + head * a->v_width,
            .top = numbers + a->heads * a->v_width + head,
            .total = numbers + a->heads * (a->v_width + 1) + head,
        };
        for (int64_t i = 0; i < keys.heads; i++) keys.top[i] = -INFINITY, keys.total[i] = 0;
        attend_packed(a, &keys);
    }
}

/* Where the result of a task's query goes, rows and their heads counted together. */
INLINE int64_t place_of(const Attend *a, const Task *task, int64_t query) {
    const int64_t group = a->heads / a->kv_heads;
    return (task->row + query / group) * a->heads + task->kv_head * group + query % group;
}

/* A task's queries, and the keys that each of them sees. */
static void read_queries(const Attend *a, const Task *task, Held *held) {
    const int64_t words = key_words(a);
    for (int64_t i = 0; i < held->lots; i++) {
        Lot *lot = held->lot + i;
        for (int r = 0; r < lot->count; r++) {
            const int64_t place = place_of(a, task, task->query + lot->at + r), row = place / a->heads;
            read_query(a, place, held->q + (lot->at + r) * words);
            see_keys(lot, r, a->rows[row][1], a->rows[row][2], tree_of(a, row));
        }
        held->begin = smaller(held->begin, lot->begin);
        if (lot->end > held->end) held->end = lot->end;
    }
}

/* The part that was attended becomes the first of those before the next, or is merged with them. */
static void keep_part(const Attend *a, Held *held, int is_first) {
    for (int64_t i = 0; i < held->lots; i++) {
        Lot *lot = held->lot + i;
        for (int r = 0; r < lot->count; r++)
            if (is_first)
                lot->tops[r] = lot->top[r], lot->totals[r] = lot->total[r];
            else
                merge_part(lot->tops + r, lot->totals + r, held->merged + (lot->at + r) * a->v_width, lot->top[r], lot->total[r],
                           held->sums + (lot->at + r) * a->v_width, a->v_width);
    }
    if (!is_first) return;
    float *sums = held->sums;
    held->sums = held->merged, held->merged = sums;
}

/* The results of a task's queries, or of the one part that it has of their keys. */
static void put_results(const Work *work, const Task *task, const Held *held) {
    const Attend *a = work->source.a;
    for (int64_t i = 0; i < held->lots; i++)
        for (int r = 0; r < held->lot[i].count; r++) {
            const Lot *lot = held->lot + i;
            const int64_t place = place_of(a, task, task->query + lot->at + r), row = place / a->heads, head = place % a->heads;
            const float *sums = held->merged + (lot->at + r) * a->v_width;
            if (!task->one_part) {
                write_result(a, place, sums, lot->tops[r], task->part < task->stop ? lot->totals[r] : 0);
                continue;
            }
            const int64_t part = task->part - first_part(a, row);
            if (part < 0 || part >= parts_of(a, row)) continue;
            float *numbers = work->numbers + (work->begins[row] + part) * work->size;
            memcpy(numbers + head * a->v_width, sums, a->v_width * sizeof(float));
            numbers[a->heads * a->v_width + head] = lot->tops[r];
            numbers[a->heads * (a->v_width + 1) + head] = lot->totals[r];
        }
}

static void attend_task(const void *of, int64_t index) {
    Work *work = (Work *)of;
    const Attend *a = work->source.a;
    const Task *task = work->tasks + index;
    if (a->kind != PLAIN && task->one_part) {
        attend_codes(work, task);
        return;
    }
    Held held = hold(a, task->end - task->query);
    if (!held.q) {
        atomic_store(&work->failed, 1);
        return;
    }
    read_queries(a, task, &held);
    for (int64_t part = task->part; part < task->stop; part++) {
        const int64_t from = part * PART > held.begin ? part * PART : held.begin, stop = smaller((part + 1) * PART, held.end);
        attend_part(&work->source, &held, a->pages + a->rows[task->row][0], task->kv_head, from, stop, held.end);
        keep_part(a, &held, part == task->part);
    }
    put_results(work, task, &held);
}

/* One head's result from the parts of its row, in their order. */
static void finish(const void *of, int64_t place) {
    const Work *work = of;
    const Attend *a = work->source.a;
    const int64_t row = place / a->heads, head = place % a->heads, count = work->begins[row + 1] - work->begins[row];
    if (!count) return; /* its task went through all parts */
    float *sums = work->numbers + work->begins[row] * work->size + head * a->v_width;
    float *top = work->numbers + work->begins[row] * work->size + a->heads * a->v_width + head, *total = top + a->heads;
    for (int64_t i = 1; i < count; i++)
        merge_part(top, total, sums, top[i * work->size], total[i * work->size], sums + i * work->size, a->v_width);
    write_result(a, place, sums, *top, *total);
}

/* Rows that follow each other and are of one sequence, and the parts [part, stop) of keys that any of them sees. */
typedef struct {
    int64_t row, end, part, stop;
} Rows;

INLINE Rows rows_from(const Attend *a, int64_t row) {
    Rows rows = {row, row, INT64_MAX, 0};
    for (; rows.end < a->count && a->rows[rows.end][0] == a->rows[row][0]; rows.end++) {
        const int64_t parts = parts_of(a, rows.end), first = first_part(a, rows.end);
        if (!parts) continue;
        rows.part = smaller(rows.part, first);
        if (first + parts > rows.stop) rows.stop = first + parts;
    }
    rows.part = smaller(rows.part, rows.stop);
    return rows;
}
INLINE int is_few(const Rows *rows) { return rows->end - rows->row <= FEW_ROWS; }

/* Tasks of up to ``size`` queries; those over the same keys follow each other, and so do the KV heads of some tokens, whose
 * scales and minima share the processor's cache lines. */
static Task *list_tasks(const Attend *a, const Rows *rows, int64_t size, Task *next) {
    const int64_t queries = (rows->end - rows->row) * (a->heads / a->kv_heads), cuts = (queries + size - 1) / size;
    const int64_t step = is_few(rows) ? 1 : rows->stop - rows->part;
    int64_t part = rows->part;
    do {
        for (int64_t head = 0; head < a->kv_heads; head++)
            for (int64_t i = 0; i < cuts; i++)
                *next++ = (Task){rows->row, queries * i / cuts, queries * (i + 1) / cuts, head, part, part + step,
                                 is_few(rows)};
    } while ((part += step) < rows->stop);
    return next;
}

/* Tasks and results of parts, while the caller, who has a share of the tasks, works on these in its scratch. */
static _Thread_local Buffer results;
enum { MOST_KEPT = 16 << 20 }; /* bytes of it between calls: long texts of many chats take more, and longer to compute */

/* out [count, heads, v_width] = attention of q [count, heads, k_width] to each row's keys; zero for a row without any.
 * 1 where memory ran out. */
EXPORT int attend_rows(const Attend *a, int threads) {
    const int64_t group = a->heads / a->kv_heads, size = a->heads * (a->v_width + 2);
    int64_t work = 0, parts = 0, queries = 0, lists = 0;
    for (int64_t row = 0; row < a->count; row++)
        if (parts_of(a, row)) work += (a->rows[row][2] - a->rows[row][1]) * a->heads * a->k_width;
    threads = work < WORTH_A_THREAD ? 1 : threads;
    for (Rows rows = {0}; rows.end < a->count;) {
        rows = rows_from(a, rows.end);
        const int64_t times = is_few(&rows) && rows.stop > rows.part ? rows.stop - rows.part : 1;
        lists += times * a->kv_heads;
        queries += times * a->kv_heads * (rows.end - rows.row) * group;
        for (int64_t row = rows.row; is_few(&rows) && row < rows.end; row++)
            parts += parts_of(a, row) ? parts_of(a, row) : 1;
    }
    const int64_t wanted = queries / (2 * threads) + 1, least = wanted < LEAST_QUERIES ? LEAST_QUERIES : wanted;
    const int64_t most = threads < 2 || least > MOST_QUERIES ? MOST_QUERIES : least;
    /* cuts of a list are at most its queries / most + 1 */
    const int64_t listed = (queries / most + lists) * sizeof(Task), placed = (a->count + 1) * sizeof(int64_t);
    Task *tasks = room_of(&results, listed + placed + parts * size * sizeof(float));
    if (!tasks) return 1;
    int64_t *begins = (int64_t *)(tasks + queries / most + lists);
    Work all = {.source = {.a = a, .keys = keys_of(a, 1), .values = values_of(a, 1)}, .tasks = tasks,
                .numbers = (float *)(begins + a->count + 1), .begins = begins, .size = size};
    if (a->kind != PLAIN) {
        all.source.key_layout = layout_of(a->k_width, a->k_bits);
        all.source.value_layout = layout_of(a->v_width, a->v_bits);
    }
    Task *next = tasks;
    begins[0] = 0;
    for (Rows rows = {0}; rows.end < a->count;) {
        rows = rows_from(a, rows.end);
        for (int64_t row = rows.row; row < rows.end; row++) {
            const int64_t own = parts_of(a, row);
            begins[row + 1] = begins[row] + (is_few(&rows) ? own ? own : 1 : 0);
            float *numbers = all.numbers + begins[row] * size;
            if (own || !is_few(&rows)) continue;
            memset(numbers, 0, size * sizeof(float));
            for (int64_t head = 0; head < a->heads; head++) numbers[a->heads * a->v_width + head] = -INFINITY;
        }
        next = list_tasks(a, &rows, most, next);
    }
    share_out(attend_task, &all, next - tasks, threads);
    share_out(finish, &all, a->count * a->heads, parts * size < WORTH_A_THREAD ? 1 : threads);
    keep_small(&results, MOST_KEPT);
    return all.failed;
}

/* One head with its query over the first ``count`` keys of some pages, into its result. Nonzero where memory ran out. */
int attend_pages(const Attend *a, const int32_t *pages, int64_t count, int64_t kv_head, int64_t head) {
    const Source source = {.a = a, .keys = keys_of(a, 1), .values = values_of(a, 1)};
    Held held = hold(a, 1);
    if (!held.q) return 1;
    read_query(a, head, held.q);
    see_keys(held.lot, 0, 0, count, NULL);
    attend_part(&source, &held, pages, kv_head, 0, count, count);
    write_result(a, head, held.sums, held.lot->top[0], held.lot->total[0]);
    return 0;
}

/* rows [.., 3] of attend_rows, for ``seqs`` chains with the rows [row_start[s], row_start[s + 1]), the last of kv_len[s]
 * keys, whose tables of pages are ``stride`` numbers apart. ``window``: keys that a row sees, 0: all. */
EXPORT void chain_rows(const int32_t *row_start, const int32_t *kv_len, int64_t seqs, int64_t stride, int64_t window,
                       int64_t (*rows)[3], int threads) {
    (void)threads;
    for (int64_t s = 0; s < seqs; s++)
        for (int64_t row = row_start[s]; row < row_start[s + 1]; row++) {
            const int64_t stop = kv_len[s] - (row_start[s + 1] - 1 - row);
            rows[row][0] = s * stride;
            rows[row][1] = window && stop > window ? stop - window : 0;
            rows[row][2] = stop;
        }
}

/* The same of a step that has trees, whose rows see what ``ancestors`` says, a bit for each row of their sequence; -1 is a
 * chain. A row of a tree counts as the key at its depth. ``from`` and ``until`` are limits to the keys of each row, or
 * NULL; ``ahead``: a chained row sees up to the latter. ``trees`` are those of Attend. */
EXPORT void tree_rows(const int32_t *row_start, const int32_t *kv_len, int64_t seqs, int64_t stride, int64_t window,
                      const int64_t *ancestors, const int64_t *from, const int64_t *until, int ahead, int64_t (*rows)[3],
                      int64_t (*trees)[2], int threads) {
    (void)threads;
    for (int64_t s = 0; s < seqs; s++)
        for (int64_t begin = row_start[s], row = begin; row < row_start[s + 1]; row++) {
            const int64_t root = kv_len[s] - (row_start[s + 1] - begin), bits = ancestors[row], chain = bits == -1;
            const int64_t own = root + (chain ? row - begin : __builtin_popcountll((uint64_t)bits) - 1);
            int64_t first = window && own + 1 > window ? own + 1 - window : 0, stop = own + 1, seen = 0, last = 0;
            if (from && from[row] > first) first = from[row];
            if (until && (until[row] < stop || (ahead && chain))) stop = until[row];
            for (int64_t i = 0; !chain && i <= row - begin; i++) {
                const int64_t key = root + __builtin_popcountll((uint64_t)ancestors[begin + i]) - 1;
                if ((bits >> i & 1) && first <= key && key < stop) seen |= INT64_C(1) << i, last = i + 1;
            }
            rows[row][0] = s * stride;
            rows[row][1] = seen ? smaller(first, root) : first;
            rows[row][2] = chain ? stop : seen ? root + last : smaller(stop, root);
            trees[row][0] = root;
            trees[row][1] = seen ? seen : -1;
        }
}
