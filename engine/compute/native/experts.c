/* A mixture of experts (engine/compute/layers/moe.py): which experts each row asks, and their products, without asking the
 * host anything in between. A row's bits do not depend on the others, but where an expert's layer refines rows if many ask
 * it (Layers). */
#include "products.h"
#include "rows.h"
#include "threads.h"

/* ------------------------------------------------------------------ router */

/* What a share is: of a softmax over all experts, or over those chosen, or a sigmoid (ROUTINGS of library.py). */
enum { ALL, CHOSEN, SIGMOID };

typedef struct {
    const void *x;              /* [rows, size] */
    const float *weight, *bias; /* [experts, size]; [experts], NULL: none */
    float *scores;              /* [rows, experts]: made from x, or, where weight is NULL, given */
    const float *choice_bias;   /* [experts]: what takes part in the choice alone; NULL: nothing */
    const float *scales;        /* [experts]: factors of shares; NULL: none */
    int64_t *chosen;            /* [rows, choices], the best first and of equals the first */
    float *shares;              /* alike */
    int64_t rows, size, experts, choices, groups, groups_taken;
    float share_scale;
    int32_t routing, normalised, bfloat16;
} Router;

INLINE float dot_row(const int bfloat16, const void *x, int64_t first, const float *weight, int64_t size) {
    enum { SUMS = 4 };
    Floats sums[SUMS] = {{0}};
    int64_t i = 0;
    for (; i + SUMS * LANES <= size; i += SUMS * LANES)
        for (int s = 0; s < SUMS; s++)
            sums[s] += numbers_at(x, first + i + s * LANES, bfloat16) * floats_at(weight + i + s * LANES);
    for (; i < size; i += LANES) sums[0] += numbers_at(x, first + i, bfloat16) * floats_at(weight + i);
    return sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

static void score_expert(const void *of, int64_t expert) {
    const Router *r = of;
    const float *weight = r->weight + expert * r->size, bias = r->bias ? r->bias[expert] : 0;
    for (int64_t row = 0; row < r->rows; row++) {
        const float sum = r->bfloat16 ? dot_row(1, r->x, row * r->size, weight, r->size)
                                      : dot_row(0, r->x, row * r->size, weight, r->size);
        r->scores[row * r->experts + expert] = sum + bias;
    }
}

/* The places of the largest of values [count], the first of equals, the largest first. Those taken become NaN. */
INLINE void take_best(float *values, int64_t count, int64_t *places, int64_t taken) {
    for (int64_t n = 0; n < taken; n++) {
        int64_t best = -1;
        for (int64_t i = 0; i < count; i++)
            if (values[i] == values[i] && (best < 0 || values[i] > values[best])) best = i;
        for (int64_t i = 0; best < 0; i++) { /* nothing but NaN: any that is not taken, or an expert were asked twice */
            int free = 1;
            for (int64_t m = 0; m < n; m++) free &= places[m] != i;
            if (free) best = i;
        }
        values[best] = NAN;
        places[n] = best;
    }
}

/* Softmax of values [count], of which there is room for a multiple of 16. */
INLINE void soften(float *values, int64_t count) {
    float most = -INFINITY;
    for (int64_t i = 0; i < count; i++) most = values[i] > most ? values[i] : most;
    Floats sum = {0};
    for (int64_t i = count; i % LANES; i++) values[i] = -INFINITY;
    for (int64_t i = 0; i < count; i += LANES) {
        const Floats power = exponential(floats_at(values + i) - most);
        put_floats(values + i, power);
        sum += power;
    }
    const float all = sum_of_lanes(sum);
    for (int64_t i = 0; i < count; i += LANES) put_floats(values + i, floats_at(values + i) / all);
}

/* judged [experts] without those outside of the best groups: of the best expert, or with sigmoids the best two. */
INLINE void leave_groups_out(const Router *r, float *judged, float *of_groups, int64_t *places) {
    const int64_t size = r->experts / r->groups;
    for (int64_t g = 0; g < r->groups; g++) {
        const float *mine = judged + g * size;
        float first = -INFINITY, second = -INFINITY;
        for (int64_t i = 0; i < size; i++) {
            const int above = mine[i] > first;
            second = above ? first : mine[i] > second ? mine[i] : second;
            first = above ? mine[i] : first;
        }
        of_groups[g] = r->routing == SIGMOID ? first + second : first;
    }
    take_best(of_groups, r->groups, places, r->groups_taken); /* what it took is NaN now */
    for (int64_t g = 0; g < r->groups; g++)
        for (int64_t i = 0; of_groups[g] == of_groups[g] && i < size; i++) judged[g * size + i] = -INFINITY;
}

INLINE int64_t whole_lanes(int64_t count) { return (count + 15) / 16 * 16; }

INLINE void choose_of_row(const Router *r, int64_t row, float *work, int64_t *places) {
    const int64_t room = whole_lanes(r->experts), k = r->choices;
    float *values = work, *judged = work + room, *shares = judged + room, *of_groups = shares + whole_lanes(k);
    int64_t *chosen = r->chosen + row * k;
    memcpy(values, r->scores + row * r->experts, (size_t)r->experts * sizeof *values);
    if (r->routing == ALL) soften(values, r->experts);
    if (r->routing == SIGMOID)
        for (int64_t i = 0; i < r->experts; i += LANES) put_floats(values + i, sigmoid(floats_at(values + i)));
    for (int64_t i = 0; i < r->experts; i++) judged[i] = r->choice_bias ? values[i] + r->choice_bias[i] : values[i];
    if (r->groups_taken < r->groups) leave_groups_out(r, judged, of_groups, places);
    take_best(judged, r->experts, chosen, k);
    for (int64_t n = 0; n < k; n++) shares[n] = values[chosen[n]];
    if (r->routing == CHOSEN) soften(shares, k);
    if (r->routing != CHOSEN && r->normalised) {
        float sum = 0;
        for (int64_t n = 0; n < k; n++) sum += shares[n];
        for (int64_t n = 0; n < k; n++) shares[n] /= sum;
    }
    for (int64_t n = 0; n < k; n++)
        r->shares[row * k + n] = shares[n] * (r->scales ? r->scales[chosen[n]] : 1) * r->share_scale;
}

/* The experts of rows, and their shares. size is a multiple of 16. 1 where memory ran out. */
EXPORT int route(const Router *r, int threads) {
    const int64_t floats = 2 * whole_lanes(r->experts) + whole_lanes(r->choices) + whole_lanes(r->groups);
    float *work = scratch((size_t)floats * sizeof(float) + (size_t)r->groups * sizeof(int64_t));
    if (!work) return 1;
    if (r->weight) share_out(score_expert, r, r->experts, product_threads(r->rows * r->experts * r->size, threads));
    memset(work, 0, (size_t)floats * sizeof(float));
    for (int64_t row = 0; row < r->rows; row++) choose_of_row(r, row, work, (int64_t *)(work + floats));
    return 0;
}

/* ------------------------------------------------------------------ products */

enum { PLAIN_RELU2 = CLAMPED + 1 }; /* relu(x)^2 of an expert without gates */
/* Numbers of rows from which on several threads copy and gate them; and bytes for the rows that are computed at a time. */
enum { WORTH_SHARING = 16384, MOST_BYTES = 16 << 20 };

/* A layer of each expert: [experts] of all that follows, or NULL, where none has it. */
typedef struct {
    const Lanes *const *weights;      /* whose shapes are the same */
    const void *const *biases;        /* numbers in the type of x */
    const int32_t *digits;            /* of activations */
    const uint8_t *const *refined;    /* not NULL: of rows of an expert that more than ``few`` ask there is one digit, and
                                         this is refined as lanes_matmul says */
    const int32_t *const *orders;     /* place i of a row belongs to its number order[i]; NULL for a layer: to its own */
} Layers;

typedef struct {
    Layers gate_up, down;
    const int64_t *chosen;              /* [rows, choices], in a row all different */
    const float *shares;                /* alike */
    const void *x, *shared;             /* [rows, width]; what is added, or NULL */
    void *out;                          /* alike */
    float *sums;                        /* alike: lets some experts be computed at a time, which takes less memory; or NULL */
    int64_t rows, choices, experts, few;
    float limit, alpha;                 /* see gate */
    int32_t gating, bfloat16;
} Experts;

/* Rows that ask an expert: places [first, first + rows) of a batch. */
typedef struct {
    Matmul gate_up, down;
    int64_t first, rows, expert;
} Run;

/* Entries, which are a row's choices, are sorted by expert, and in the order of rows within one. A batch is those from
 * ``first`` up to ``stop``, and their place in it is what they are counted by. */
typedef struct {
    const Experts *e;
    int64_t count, first, stop;
    int64_t *entries;     /* [count]: row * choices + choice */
    int64_t *order;       /* [rows, choices]: a row's entries, in the order of experts */
    int64_t *added;       /* [rows]: how many of these were added up */
    int64_t *ends;        /* [experts]: behind an expert's entries */
    Run *runs;
    int64_t asked;        /* runs of the batch */
    int64_t *run_of;      /* [stop - first] */
    int64_t width, wide, inner; /* numbers of a row of x and of out, of gates and ups, and of what down takes */
    char *x, *opened, *gated, *results; /* [stop - first] rows of width, wide, inner and width */
} Mixture;

INLINE int64_t number_size(const Experts *e) { return e->bfloat16 ? 2 : 4; }
INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Row ``row`` of numbers [.., size] plus a bias, rounded in their type. */
INLINE void add_bias(const int bfloat16, void *numbers, int64_t row, int64_t size, const void *bias) {
    for (int64_t i = 0; i < size; i += LANES)
        put_numbers(numbers, row * size + i, numbers_at(numbers, row * size + i, bfloat16) + numbers_at(bias, i, bfloat16), bfloat16);
}
static void add_bias_of(const Experts *e, const Layers *l, void *numbers, int64_t row, int64_t size, int64_t expert) {
    if (!l->biases) return;
    if (e->bfloat16) add_bias(1, numbers, row, size, l->biases[expert]);
    else add_bias(0, numbers, row, size, l->biases[expert]);
}

INLINE const int32_t *order_of(const Layers *l, int64_t expert) { return l->orders ? l->orders[expert] : NULL; }
/* out [size] = the numbers of a row in the order in which a layer takes them. */
static void put_in_order(const Experts *e, const void *row, const int32_t *order, int64_t size, void *out) {
    if (e->bfloat16)
        for (int64_t i = 0; i < size; i++) ((uint16_t *)out)[i] = ((const uint16_t *)row)[order[i]];
    else
        for (int64_t i = 0; i < size; i++) ((float *)out)[i] = ((const float *)row)[order[i]];
}

/* The row of an entry, quantised where its expert reads it. */
static void enter(const void *of, int64_t place) {
    const Mixture *m = of;
    const Run *run = m->runs + m->run_of[place];
    const int64_t bytes = m->width * number_size(m->e), row = m->entries[m->first + place] / m->e->choices;
    const int32_t *order = order_of(&m->e->gate_up, run->expert);
    const char *from = (const char *)m->e->x + row * bytes;
    if (order) put_in_order(m->e, from, order, m->width, m->x + place * bytes);
    else memcpy(m->x + place * bytes, from, (size_t)bytes);
    for (int64_t i = 0; i < run->gate_up.pieces; i++) quantise_piece(&run->gate_up, (place - run->first) * run->gate_up.pieces + i);
}

static void open_block(const void *of, int64_t i) {
    const Mixture *m = of;
    const int64_t blocks = m->runs->gate_up.blocks;
    panel_product(&m->runs[i / blocks].gate_up, i % blocks);
}

INLINE void square_row(const int bfloat16, const void *x, int64_t row, int64_t size, void *out) {
    const Floats zero = {0};
    for (int64_t i = row * size; i < (row + 1) * size; i += LANES) {
        const Floats value = numbers_at(x, i, bfloat16), above = chosen(value < zero, zero, value);
        put_numbers(out, i, above * above, bfloat16);
    }
}

/* What lies between an entry's products. */
static void gate_entry(const void *of, int64_t place) {
    const Mixture *m = of;
    const Experts *e = m->e;
    const Run *run = m->runs + m->run_of[place];
    add_bias_of(e, &e->gate_up, m->opened, place, m->wide, run->expert);
    if (e->gating != PLAIN_RELU2) gate_numbers(e->gating, e->bfloat16, m->opened, place, m->inner, e->limit, e->alpha, m->gated);
    else if (e->bfloat16) square_row(1, m->opened, place, m->inner, m->gated);
    else square_row(0, m->opened, place, m->inner, m->gated);
    const int32_t *order = order_of(&e->down, run->expert);
    if (order) { /* what was opened is of no use any more */
        const int64_t bytes = m->inner * number_size(e);
        char *row = m->opened + place * m->wide * number_size(e);
        memcpy(row, m->gated + place * bytes, (size_t)bytes);
        put_in_order(e, row, order, m->inner, m->gated + place * bytes);
    }
    for (int64_t i = 0; i < run->down.pieces; i++) quantise_piece(&run->down, (place - run->first) * run->down.pieces + i);
}

static void close_block(const void *of, int64_t i) {
    const Mixture *m = of;
    const int64_t blocks = m->runs->down.blocks;
    panel_product(&m->runs[i / blocks].down, i % blocks);
}

/* The results of a row's experts times their shares, added in float32 in the order of experts, and then what is shared: its
 * entries [begin, end) are those of the batch, which may be all. */
INLINE void add_up(const int bfloat16, const int all, const Mixture *m, int64_t row, int64_t begin, int64_t end) {
    const Experts *e = m->e;
    const int64_t *mine = m->order + row * e->choices;
    for (int64_t i = 0; i < m->width; i += LANES) {
        Floats sum = {0};
        if (!all && begin) sum = floats_at(e->sums + row * m->width + i);
        for (int64_t n = begin; n < end; n++)
            sum += times(numbers_at(m->results, (mine[n] - m->first) * m->width + i, bfloat16), e->shares[m->entries[mine[n]]]);
        if (!all && end < e->choices) {
            put_floats(e->sums + row * m->width + i, sum);
            continue;
        }
        if (e->shared) sum += numbers_at(e->shared, row * m->width + i, bfloat16);
        put_numbers(e->out, row * m->width + i, sum, bfloat16);
    }
}

static void add_up_row(const void *of, int64_t row) {
    const Mixture *m = of;
    const Experts *e = m->e;
    const int64_t *mine = m->order + row * e->choices, begin = m->added[row];
    int64_t end = begin;
    for (; end < e->choices && mine[end] < m->stop; end++) {
        const int64_t place = mine[end] - m->first;
        add_bias_of(e, &e->down, m->results, place, m->width, m->runs[m->run_of[place]].expert);
    }
    if (begin == end) return;
    m->added[row] = end;
    const int all = end - begin == e->choices;
    if (e->bfloat16 && all) add_up(1, 1, m, row, begin, end);
    else if (e->bfloat16) add_up(1, 0, m, row, begin, end);
    else if (all) add_up(0, 1, m, row, begin, end);
    else add_up(0, 0, m, row, begin, end);
}

INLINE int64_t lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }
/* The next bytes of some memory, from a line of it on. */
INLINE void *cut(char **memory, int64_t bytes) {
    char *first = *memory;
    *memory += lines(bytes);
    return first;
}

/* Entries sorted by expert. */
static void sort_entries(Mixture *m) {
    const Experts *e = m->e;
    memset(m->ends, 0, (size_t)e->experts * sizeof *m->ends);
    memset(m->added, 0, (size_t)e->rows * sizeof *m->added);
    for (int64_t i = 0; i < m->count; i++) m->ends[e->chosen[i]]++;
    for (int64_t expert = 0, first = 0; expert < e->experts; expert++) {
        const int64_t rows = m->ends[expert];
        m->ends[expert] = first;
        first += rows;
    }
    for (int64_t i = 0; i < m->count; i++) m->entries[m->ends[e->chosen[i]]++] = i;
    for (int64_t entry = 0; entry < m->count; entry++) {
        const int64_t row = m->entries[entry] / e->choices;
        m->order[row * e->choices + m->added[row]++] = entry;
    }
    memset(m->added, 0, (size_t)e->rows * sizeof *m->added);
}

/* Whether so many rows ask an expert that its layers refine them. */
INLINE int refines(const Experts *e, const Layers *l, int64_t asked) { return l->refined && asked > e->few; }
INLINE int digits_of(const Experts *e, const Layers *l, int64_t expert, int64_t asked) {
    return refines(e, l, asked) ? 1 : l->digits[expert];
}
static Matmul product_of(const Experts *e, const Layers *l, const Run *run, int64_t asked, const char *x, char *out, char **memory) {
    const Lanes *w = l->weights[run->expert];
    const int digits = digits_of(e, l, run->expert, asked);
    const uint8_t *refined = refines(e, l, asked) ? l->refined[run->expert] : NULL;
    const int64_t each = number_size(e);
    return matmul_of(w, x + run->first * w->in_features * each, e->bfloat16, out + run->first * w->out_features * each, e->bfloat16,
                     run->rows, digits, refined, cut(memory, matmul_bytes(w, run->rows, digits, refined)));
}

/* The most bytes for a row's quantised activations. */
INLINE int64_t quantised_row(const Layers *l, int64_t expert) {
    const Lanes *w = l->weights[expert];
    const int64_t few = lines(matmul_bytes(w, 1, l->digits[expert], NULL));
    return l->refined ? larger(few, lines(matmul_bytes(w, 1, 1, l->refined[expert]))) : few;
}
/* The most bytes that an entry of an expert takes in a batch. */
INLINE int64_t entry_bytes(const Mixture *m, int64_t expert) {
    const int64_t numbers = 2 * m->width + m->wide + m->inner, kept = sizeof(Run) + sizeof *m->run_of;
    return numbers * number_size(m->e) + kept + quantised_row(&m->e->gate_up, expert) + quantised_row(&m->e->down, expert);
}
/* What a batch's tables of rows take more, as each begins in a line of its own. */
enum { TABLES = 6 * 64 };

/* The batch from m->first on, of as many entries as ``room`` bytes of memory hold. */
static void fill_batch(Mixture *m, char *memory, int64_t room) {
    const Experts *e = m->e;
    const int64_t first = m->first, each = number_size(e);
    int64_t start = 0, stop = first;
    while (m->ends[start] <= first) start++;
    for (int64_t expert = start, left = room; stop < m->count; expert++) {
        const int64_t asked = m->ends[expert] - stop;
        if (!asked) continue;
        const int64_t bytes = entry_bytes(m, expert), now = smaller(asked, left / bytes);
        stop += now, left -= now * bytes;
        if (now < asked) break;
    }
    const int64_t count = stop - first;
    m->stop = stop, m->asked = 0;
    m->runs = cut(&memory, count * (int64_t)sizeof *m->runs), m->run_of = cut(&memory, count * 8);
    m->x = cut(&memory, count * m->width * each), m->results = cut(&memory, count * m->width * each);
    m->opened = cut(&memory, count * m->wide * each), m->gated = cut(&memory, count * m->inner * each);
    for (int64_t expert = start, at = first; at < stop; expert++) {
        const int64_t asked = m->ends[expert] - (expert ? m->ends[expert - 1] : 0);
        if (!asked) continue;
        const int64_t most = smaller(panel_rows(digits_of(e, &e->gate_up, expert, asked)), panel_rows(digits_of(e, &e->down, expert, asked)));
        for (const int64_t end = smaller(m->ends[expert], stop); at < end;) {
            Run *run = m->runs + m->asked;
            *run = (Run){.first = at - first, .rows = smaller(end - at, most), .expert = expert};
            run->gate_up = product_of(e, &e->gate_up, run, asked, m->x, m->opened, &memory);
            run->down = product_of(e, &e->down, run, asked, m->gated, m->results, &memory);
            for (int64_t i = 0; i < run->rows; i++) m->run_of[run->first + i] = m->asked;
            m->asked++, at += run->rows;
        }
    }
}

static void compute_batch(Mixture *m, int threads) {
    const int64_t count = m->stop - m->first;
    threads = product_threads(m->asked * m->width * m->wide, threads);
    const int few = count * m->width < WORTH_SHARING ? 1 : threads;
    share_out(enter, m, count, few);
    share_out(open_block, m, m->asked * m->runs->gate_up.blocks, threads);
    share_out(gate_entry, m, count, few);
    share_out(close_block, m, m->asked * m->runs->down.blocks, threads);
    share_out(add_up_row, m, m->e->rows, few);
}

/* out = the sum of what the experts of each row give, and what is shared: widths are multiples of 16. 1 where memory ran
 * out. */
EXPORT int experts(const Experts *e, int threads) {
    const Lanes *up = *e->gate_up.weights, *down = *e->down.weights;
    Mixture m = {.e = e, .count = e->rows * e->choices, .width = up->in_features, .wide = up->out_features, .inner = down->in_features};
    int64_t room = 0, largest = 0;
    for (int64_t i = 0; i < m.count; i++) {
        const int64_t bytes = entry_bytes(&m, e->chosen[i]);
        room += bytes, largest = larger(largest, bytes);
    }
    if (e->sums) room = larger(smaller(room, MOST_BYTES), largest);
    const int64_t tables = 2 * lines(m.count * 8) + lines(e->rows * 8) + lines(e->experts * 8);
    char *memory = scratch((size_t)(tables + room + TABLES));
    if (!memory) return 1;
    m.entries = cut(&memory, m.count * 8), m.order = cut(&memory, m.count * 8);
    m.added = cut(&memory, e->rows * 8), m.ends = cut(&memory, e->experts * 8);
    sort_entries(&m);
    for (; m.first < m.count; m.first = m.stop) {
        fill_batch(&m, memory, room);
        compute_batch(&m, threads);
    }
    return 0;
}
