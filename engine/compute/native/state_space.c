/* What state space models do to their matrices (engine/compute/layers/recurrent/state_space.py), row by row: a row's bits do not depend on
 * how rows are batched. */
#include "runs.h"
#include "simd.h"
#include "threads.h"

typedef struct {
    const float *queries, *keys; /* [rows, groups, state] */
    const float *values;         /* [rows, heads, width] */
    const float *decays;         /* [rows, heads], in log space */
    float *out;                  /* [rows, heads, width] */
    float *matrices;             /* [slots, heads, state, width] */
    const int64_t *runs;         /* [n, FIELDS] */
    const int64_t *begins;       /* [sequences + 1]: its first run */
    const int32_t *parents;      /* [rows] the row that each goes on from, -1: its run's source; NULL: the row before */
    int64_t sequences, heads, groups, state, width;
} Space;

/* after = before moved on by one row; read [width] = what the query reads from it. */
INLINE void move_on(const Space *s, const float *before, float *after, const float *q, const float *k, const float *v,
                    float decay, float *read) {
    enum { WIDE = 4 };
    for (int64_t j = 0; j < s->width; j += WIDE * LANES) {
        const int64_t vectors = s->width - j < WIDE * LANES ? (s->width - j) / LANES : WIDE;
        Floats value[WIDE], sum[WIDE] = {{0}};
        for (int64_t n = 0; n < vectors; n++) value[n] = floats_at(v + j + n * LANES);
        for (int64_t i = 0; i < s->state; i++)
            for (int64_t n = 0; n < vectors; n++) {
                const int64_t at = i * s->width + j + n * LANES;
                const Floats moved = floats_at(before + at) * decay + value[n] * k[i];
                put_floats(after + at, moved);
                sum[n] += moved * q[i];
            }
        for (int64_t n = 0; n < vectors; n++) put_floats(read + j + n * LANES, sum[n]);
    }
}

/* One head over the rows of a sequence. */
static void one_head(const Space *s, const int64_t *first, const int64_t *stop, int64_t head, float *states) {
    const int64_t size = s->state * s->width, group = head / (s->heads / s->groups);
    for (const int64_t *run = first; run < stop; run += FIELDS) {
        const float *source = s->matrices + (run[SOURCE] * s->heads + head) * size, *last = source;
        float *target = s->matrices + (run[TARGET] * s->heads + head) * size;
        for (int64_t row = run[FIRST]; row < run[STOP]; row++) {
            /* A row of a tree leaves a state of its own. */
            const int64_t parent = s->parents ? s->parents[row] : 0, place = s->parents ? row - run[FIRST] : 0;
            const float *before = !s->parents ? last : parent < 0 ? source : states + (parent - run[FIRST]) * size;
            float *after = run[TARGET] && row == run[STOP] - 1 ? target : states + place * size;
            const int64_t shared = (row * s->groups + group) * s->state, own = row * s->heads + head;
            move_on(s, before, after, s->queries + shared, s->keys + shared, s->values + own * s->width,
                    expf(s->decays[own]), s->out + own * s->width);
            last = after;
        }
    }
}

typedef struct {
    const Space *space;
    int *failed;
} Task;

static void head_of(const void *of, int64_t unit) {
    const Task *task = of;
    const Space *s = task->space;
    const int64_t *begins = s->begins + unit / s->heads;
    const int64_t *first = s->runs + begins[0] * FIELDS, *stop = s->runs + begins[1] * FIELDS;
    int64_t kept = 1;
    for (const int64_t *run = first; s->parents && run < stop; run += FIELDS)
        kept = run[STOP] - run[FIRST] > kept ? run[STOP] - run[FIRST] : kept;
    float *states = scratch((size_t)(kept * s->state * s->width) * sizeof(float));
    if (states) one_head(s, first, stop, unit % s->heads, states);
    else *task->failed = 1;
}

/* width is a multiple of 16. 1 where memory ran out; what was written then is of no use. */
EXPORT int state_space(const void *space, int threads) {
    const Space *s = space;
    int failed = 0;
    const Task task = {s, &failed};
    const int64_t rows = s->runs[(s->begins[s->sequences] - 1) * FIELDS + STOP];
    share_out(head_of, &task, s->sequences * s->heads, product_threads(rows * s->heads * s->state * s->width, threads));
    return failed;
}
