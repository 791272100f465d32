/* What state space models do behind their convolution (engine/compute/layers/recurrent/state_space.py), row by row: a row's
 * bits do not depend on how rows are batched. */
#include "rows.h"
#include "runs.h"
#include "threads.h"

#include <stdatomic.h>

typedef struct {
    const float *seen;           /* [rows, heads * width + 2 * groups * state]: values, keys and queries */
    const void *steps;           /* [rows, heads], ``stride`` numbers apart */
    const float *bias, *decay, *skip; /* [heads]: added to steps; of a step, in log space; the share of values in results */
    float *out;                  /* [rows, heads, width] */
    float *matrices;             /* [slots, heads, state, width] */
    const int64_t *runs;         /* [n, FIELDS] */
    const int64_t *begins;       /* [sequences + 1]: its first run */
    const int32_t *parents;      /* [rows] the row that each goes on from, -1: its run's source; NULL: the row before */
    int64_t sequences, heads, groups, state, width, stride;
    float least, most; /* limits of steps */
    int32_t bfloat16;  /* steps; else they are float32 */
} Space;

/* A head's step in a row. */
INLINE float step_of(const Space *s, int64_t row, int64_t head) {
    const int64_t at = row * s->stride + head;
    float raw = s->bfloat16 ? 0 : ((const float *)s->steps)[at];
    if (s->bfloat16) {
        const uint32_t bits = (uint32_t)((const uint16_t *)s->steps)[at] << 16;
        memcpy(&raw, &bits, 4);
    }
    raw += s->bias[head];
    const float step = raw > 20 ? raw : log1pf(expf(raw)), above = step < s->least ? s->least : step;
    return above > s->most ? s->most : above;
}

/* after = before moved on by one row; read [width] = what the query reads from it, and a share of the values. */
INLINE void move_on(const Space *s, const float *before, float *after, const float *q, const float *k, const float *v,
                    float step, float decay, float skip, float *read) {
    enum { WIDE = 4 };
    for (int64_t j = 0; j < s->width; j += WIDE * LANES) {
        const int64_t vectors = s->width - j < WIDE * LANES ? (s->width - j) / LANES : WIDE;
        Floats value[WIDE], sum[WIDE] = {{0}};
        for (int64_t n = 0; n < vectors; n++) value[n] = floats_at(v + j + n * LANES) * step;
        for (int64_t i = 0; i < s->state; i++)
            for (int64_t n = 0; n < vectors; n++) {
                const int64_t at = i * s->width + j + n * LANES;
                const Floats moved = floats_at(before + at) * decay + value[n] * k[i];
                put_floats(after + at, moved);
                sum[n] += moved * q[i];
            }
        for (int64_t n = 0; n < vectors; n++) put_floats(read + j + n * LANES, sum[n] + floats_at(v + j + n * LANES) * skip);
    }
}

/* One head over the rows of a sequence. */
static void one_head(const Space *s, const int64_t *first, const int64_t *stop, int64_t head, float *states) {
    const int64_t size = s->state * s->width, inner = s->heads * s->width, group = head / (s->heads / s->groups);
    for (const int64_t *run = first; run < stop; run += FIELDS) {
        const float *source = s->matrices + (run[SOURCE] * s->heads + head) * size, *last = source;
        float *target = s->matrices + (run[TARGET] * s->heads + head) * size;
        for (int64_t row = run[FIRST]; row < run[STOP]; row++) {
            /* A row of a tree leaves a state of its own. */
            const int64_t parent = s->parents ? s->parents[row] : 0, place = s->parents ? row - run[FIRST] : 0;
            const float *before = !s->parents ? last : parent < 0 ? source : states + (parent - run[FIRST]) * size;
            float *after = run[TARGET] && row == run[STOP] - 1 ? target : states + place * size;
            const float *values = s->seen + row * (inner + 2 * s->groups * s->state), *keys = values + inner + group * s->state;
            const float step = step_of(s, row, head);
            move_on(s, before, after, keys + s->groups * s->state, keys, values + head * s->width, step,
                    expf(step * s->decay[head]), s->skip[head], s->out + row * inner + head * s->width);
            last = after;
        }
    }
}

/* What is read, gated and then normalised for each group. */
typedef struct {
    const float *read;   /* [rows, groups, size] */
    const void *gate;    /* alike; rows are ``stride`` numbers apart */
    const float *weight; /* [groups, size] */
    void *out;           /* like read, in the type of gate */
    int64_t groups, size, stride;
    float eps;
    int32_t bfloat16;    /* gate and out; else they are float32 */
} GatedNorm;

typedef struct {
    const Space *space;
    const GatedNorm *norm;
    _Atomic int *failed;
} Task;

static void head_of(const void *of, int64_t unit) {
    const Task *task = of;
    const Space *s = task->space;
    const int64_t *begins = s->begins + unit / s->heads;
    const int64_t *first = s->runs + begins[0] * FIELDS, *stop = s->runs + begins[1] * FIELDS;
    if (first == stop) return;
    int64_t kept = 1;
    for (const int64_t *run = first; s->parents && run < stop; run += FIELDS)
        kept = run[STOP] - run[FIRST] > kept ? run[STOP] - run[FIRST] : kept;
    float *states = scratch((size_t)(kept * s->state * s->width) * sizeof(float));
    if (states) one_head(s, first, stop, unit % s->heads, states);
    else atomic_store(task->failed, 1);
}

/* width is a multiple of 16. 1 where memory ran out; what was written then is of no use. */
EXPORT int state_space(const void *space, int threads) {
    const Space *s = space;
    _Atomic int failed = 0;
    const Task task = {.space = s, .failed = &failed};
    const int64_t rows = s->runs[(s->begins[s->sequences] - 1) * FIELDS + STOP];
    share_out(head_of, &task, s->sequences * s->heads, product_threads(rows * s->heads * s->state * s->width, threads));
    return failed;
}

INLINE void norm_group(const int bfloat16, const GatedNorm *n, int64_t row, int64_t group, float *gated) {
    const int64_t at = (row * n->groups + group) * n->size, gates = row * n->stride + group * n->size;
    Floats squares = {0};
    for (int64_t i = 0; i < n->size; i += LANES) {
        const Floats gate = numbers_at(n->gate, gates + i, bfloat16), value = floats_at(n->read + at + i) * (gate * sigmoid(gate));
        put_floats(gated + i, value);
        squares += value * value;
    }
    const float inverse = 1 / sqrtf(sum_of_lanes(squares) / (float)n->size + n->eps);
    for (int64_t i = 0; i < n->size; i += LANES)
        put_numbers(n->out, at + i, floats_at(gated + i) * inverse * floats_at(n->weight + group * n->size + i), bfloat16);
}

static void norm_row_of(const void *of, int64_t unit) {
    const Task *task = of;
    const GatedNorm *n = task->norm;
    float *gated = scratch((size_t)n->size * sizeof(float));
    if (!gated) atomic_store(task->failed, 1);
    else if (n->bfloat16) norm_group(1, n, unit / n->groups, unit % n->groups, gated);
    else norm_group(0, n, unit / n->groups, unit % n->groups, gated);
}

/* size is a multiple of 16. 1 where memory ran out. */
EXPORT int gated_norm(const GatedNorm *n, int64_t rows, int threads) {
    _Atomic int failed = 0;
    const Task task = {.norm = n, .failed = &failed};
    share_out(norm_row_of, &task, rows * n->groups, product_threads(rows * n->groups * n->size, threads));
    return failed;
}
