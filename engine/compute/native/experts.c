/* A mixture of experts for a few rows (engine/compute/layers/moe.py): which experts each row asks, and their products,
 * without asking the host anything in between. A row's bits do not depend on the others. */
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
enum { MOST_ROWS = 64, WORTH_SHARING = 16384 };

typedef struct {
    const Lanes *const *gate_up, *const *down;          /* [experts], whose shapes are the same */
    const void *const *gate_up_bias, *const *down_bias; /* [experts], numbers in the type of x; NULL: none has any */
    const int32_t *gate_up_digits, *down_digits;        /* [experts]: of activations */
    const int64_t *chosen;                              /* [rows, choices], in a row all different */
    const float *shares;                                /* alike */
    const void *x, *shared;                             /* [rows, width]; what is added, or NULL */
    void *out;                                          /* alike */
    int64_t rows, choices, experts;
    float limit, alpha;                                 /* see gate */
    int32_t gating, bfloat16;
} Experts;

/* The rows that ask an expert: entries [first, first + rows) of those sorted by expert, and in their order within one. */
typedef struct {
    Matmul gate_up, down;
    int64_t first, rows, expert;
} Run;

typedef struct {
    const Experts *e;
    Run *runs;
    int64_t count, asked; /* entries, and experts that any asks */
    int64_t *entries;     /* [count]: row * choices + choice */
    int64_t *run_of;      /* [count] */
    int64_t *order;       /* [rows, choices]: a row's entries, in the order of experts */
    int64_t width, wide, inner; /* numbers of a row of x and of out, of gates and ups, and of what down takes */
    char *x, *opened, *gated, *results; /* [count, width], [count, wide], [count, inner], [count, width] */
} Mixture;

INLINE int64_t number_size(const Experts *e) { return e->bfloat16 ? 2 : 4; }

/* Row ``row`` of numbers [.., size] plus a bias, rounded in their type. */
INLINE void add_bias(const int bfloat16, void *numbers, int64_t row, int64_t size, const void *bias) {
    for (int64_t i = 0; i < size; i += LANES)
        put_numbers(numbers, row * size + i, numbers_at(numbers, row * size + i, bfloat16) + numbers_at(bias, i, bfloat16), bfloat16);
}
static void add_bias_of(const Experts *e, void *numbers, int64_t row, int64_t size, const void *const *biases, int64_t expert) {
    if (!biases) return;
    if (e->bfloat16) add_bias(1, numbers, row, size, biases[expert]);
    else add_bias(0, numbers, row, size, biases[expert]);
}

/* The row of an entry, quantised where its expert reads it. */
static void enter(const void *of, int64_t entry) {
    const Mixture *m = of;
    const Run *run = m->runs + m->run_of[entry];
    const int64_t bytes = m->width * number_size(m->e), row = m->entries[entry] / m->e->choices;
    memcpy(m->x + entry * bytes, (const char *)m->e->x + row * bytes, (size_t)bytes);
    for (int64_t i = 0; i < run->gate_up.pieces; i++) quantise_piece(&run->gate_up, (entry - run->first) * run->gate_up.pieces + i);
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
static void gate_entry(const void *of, int64_t entry) {
    const Mixture *m = of;
    const Experts *e = m->e;
    const Run *run = m->runs + m->run_of[entry];
    add_bias_of(e, m->opened, entry, m->wide, e->gate_up_bias, run->expert);
    if (e->gating != PLAIN_RELU2) gate_numbers(e->gating, e->bfloat16, m->opened, entry, m->inner, e->limit, e->alpha, m->gated);
    else if (e->bfloat16) square_row(1, m->opened, entry, m->inner, m->gated);
    else square_row(0, m->opened, entry, m->inner, m->gated);
    for (int64_t i = 0; i < run->down.pieces; i++) quantise_piece(&run->down, (entry - run->first) * run->down.pieces + i);
}

static void close_block(const void *of, int64_t i) {
    const Mixture *m = of;
    const int64_t blocks = m->runs->down.blocks;
    panel_product(&m->runs[i / blocks].down, i % blocks);
}

/* The results of a row's experts times their shares, added in float32 in the order of experts, and then what is shared. */
INLINE void add_up(const int bfloat16, const Mixture *m, int64_t row) {
    const Experts *e = m->e;
    const int64_t *mine = m->order + row * e->choices;
    for (int64_t i = 0; i < m->width; i += LANES) {
        Floats sum = {0};
        for (int64_t n = 0; n < e->choices; n++)
            sum += times(numbers_at(m->results, mine[n] * m->width + i, bfloat16), e->shares[m->entries[mine[n]]]);
        if (e->shared) sum += numbers_at(e->shared, row * m->width + i, bfloat16);
        put_numbers(e->out, row * m->width + i, sum, bfloat16);
    }
}

static void add_up_row(const void *of, int64_t row) {
    const Mixture *m = of;
    const Experts *e = m->e;
    for (int64_t n = 0; n < e->choices; n++) {
        const int64_t entry = m->order[row * e->choices + n];
        add_bias_of(e, m->results, entry, m->width, e->down_bias, m->runs[m->run_of[entry]].expert);
    }
    if (e->bfloat16) add_up(1, m, row);
    else add_up(0, m, row);
}

INLINE int64_t lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }
/* The next bytes of some memory, from a line of it on. */
INLINE void *cut(char **memory, int64_t bytes) {
    char *first = *memory;
    *memory += lines(bytes);
    return first;
}

/* Entries sorted by expert, and the runs of them. */
static void sort_entries(Mixture *m, int64_t *ends) {
    const Experts *e = m->e;
    memset(ends, 0, (size_t)(e->experts + 1) * sizeof *ends);
    for (int64_t i = 0; i < m->count; i++) ends[e->chosen[i] + 1]++;
    for (int64_t expert = 0; expert < e->experts; expert++) {
        const int64_t first = ends[expert], rows = ends[expert + 1];
        ends[expert + 1] += first;
        if (rows) m->runs[m->asked++] = (Run){.first = first, .rows = rows, .expert = expert};
    }
    for (int64_t i = 0; i < m->count; i++) m->entries[ends[e->chosen[i]]++] = i;
    for (int64_t run = 0; run < m->asked; run++)
        for (int64_t i = 0; i < m->runs[run].rows; i++) m->run_of[m->runs[run].first + i] = run;
    int64_t filled[MOST_ROWS] = {0};
    for (int64_t entry = 0; entry < m->count; entry++) {
        const int64_t row = m->entries[entry] / e->choices;
        m->order[row * e->choices + filled[row]++] = entry;
    }
}

/* out = the sum of what the experts of each row give, and what is shared: at most MOST_ROWS, widths that 16 divides. 1 where
 * memory ran out. */
EXPORT int experts(const Experts *e, int threads) {
    const Lanes *up = e->gate_up[0], *down = e->down[0];
    Mixture m = {.e = e, .count = e->rows * e->choices, .width = up->in_features, .wide = up->out_features, .inner = down->in_features};
    const int64_t count = m.count, each = number_size(e);
    int64_t quantised = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t expert = e->chosen[i];
        quantised += lines(matmul_bytes(e->gate_up[expert], 1, e->gate_up_digits[expert], NULL)) +
                     lines(matmul_bytes(e->down[expert], 1, e->down_digits[expert], NULL));
    }
    const int64_t tables = lines(count * (int64_t)sizeof *m.runs) + 3 * lines(count * 8) + lines((e->experts + 1) * 8);
    const int64_t numbers = 2 * lines(count * m.width * each) + lines(count * m.wide * each) + lines(count * m.inner * each);
    char *memory = scratch((size_t)(tables + numbers + quantised));
    if (!memory) return 1;
    m.runs = cut(&memory, count * (int64_t)sizeof *m.runs);
    m.entries = cut(&memory, count * 8), m.run_of = cut(&memory, count * 8), m.order = cut(&memory, count * 8);
    sort_entries(&m, cut(&memory, (e->experts + 1) * 8));
    m.x = cut(&memory, count * m.width * each), m.results = cut(&memory, count * m.width * each);
    m.opened = cut(&memory, count * m.wide * each), m.gated = cut(&memory, count * m.inner * each);
    for (Run *run = m.runs; run < m.runs + m.asked; run++) {
        const Lanes *a = e->gate_up[run->expert], *b = e->down[run->expert];
        const int a_digits = e->gate_up_digits[run->expert], b_digits = e->down_digits[run->expert];
        const int64_t at = run->first * each;
        run->gate_up = matmul_of(a, m.x + at * m.width, e->bfloat16, m.opened + at * m.wide, e->bfloat16, run->rows, a_digits, NULL,
                                 cut(&memory, matmul_bytes(a, run->rows, a_digits, NULL)));
        run->down = matmul_of(b, m.gated + at * m.inner, e->bfloat16, m.results + at * m.width, e->bfloat16, run->rows, b_digits, NULL,
                              cut(&memory, matmul_bytes(b, run->rows, b_digits, NULL)));
    }
    threads = product_threads(m.asked * m.width * m.wide, threads);
    const int few = count * m.width < WORTH_SHARING ? 1 : threads;
    share_out(enter, &m, count, few);
    share_out(open_block, &m, m.asked * m.runs->gate_up.blocks, threads);
    share_out(gate_entry, &m, count, few);
    share_out(close_block, &m, m.asked * m.runs->down.blocks, threads);
    share_out(add_up_row, &m, e->rows, few);
    return 0;
}
