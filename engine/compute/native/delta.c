/* The gated delta rule (engine/compute/layers/recurrent/delta_rule.py), row by row: a row's bits do not depend on how rows are batched. */
#include "runs.h"
#include "simd.h"
#include "threads.h"

#include <stdatomic.h>

typedef struct {
    const void *mixed, *gates; /* [rows, channels + value_heads * value], [rows, value_heads + decays] */
    void *out;                 /* [rows, value_heads * value] */
    const float *convolution;  /* [kernel, channels] */
    const float *decay, *bias; /* [value_heads], [decays] */
    const float *norm;         /* [value] */
    void *tails;               /* [slots, kernel - 1, channels] */
    float *matrices;           /* [slots, value_heads, key, value] */
    const int64_t *runs;       /* [n, FIELDS] */
    const int64_t *begins;     /* [sequences + 1]: its first run */
    const int32_t *parents;    /* [rows] the row that each goes on from, -1: its run's source; NULL: the row before */
    int64_t sequences, key_heads, value_heads, key, value, kernel, channels;
    float eps, unit_eps; /* of the norm, and of the squares of queries and keys */
    float share_scale;
    int32_t bfloat16;    /* mixed, gates, out and tails; else they are float32 */
    int32_t tiled;       /* value head i shares key head i % key_heads, and not i / (value_heads / key_heads) */
    int32_t channel_decays; /* decays are value_heads * key, and gates sigmoids; else value_heads, and SiLUs */
} Delta;

/* The nth of the value heads that share a key head. */
INLINE int64_t sharing(const Delta *d, int64_t group, int64_t n) {
    return d->tiled ? n * d->key_heads + group : group * (d->value_heads / d->key_heads) + n;
}

INLINE float number_at(const void *p, int64_t i, int bfloat16) {
    if (!bfloat16) return ((const float *)p)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
INLINE Floats vector_at(const void *p, int64_t i, int bfloat16) {
    return bfloat16 ? bfloat16_at((const uint16_t *)p + i) : floats_at((const float *)p + i);
}

/* What a row's convolution sees, the newest first: rows of mixed, then of the source's tail. */
INLINE void path_of(const Delta *d, const int64_t *run, int64_t row, const char **seen, int64_t bytes) {
    const int64_t width = d->channels + d->value_heads * d->value;
    int64_t at = row, count = 0;
    while (count < d->kernel && at >= run[FIRST]) {
        seen[count++] = (const char *)d->mixed + at * width * bytes;
        at = !d->parents ? at - 1 : d->parents[at] < 0 ? -1 : d->parents[at];
    }
    const char *tail = (const char *)d->tails + (run[SOURCE] * (d->kernel - 1) + d->kernel - 2) * d->channels * bytes;
    while (count < d->kernel) {
        seen[count++] = tail;
        tail -= d->channels * bytes;
    }
}

/* out [size] = SiLU of the convolution at channels from ``first`` on. */
INLINE void convolve(const int bfloat16, const Delta *d, const char *const *seen, int64_t first, int64_t size, float *out) {
    for (int64_t i = 0; i < size; i += LANES) {
        Floats sum = {0};
        for (int64_t tap = 0; tap < d->kernel; tap++)
            sum += vector_at(seen[d->kernel - 1 - tap], first + i, bfloat16) *
                   floats_at(d->convolution + tap * d->channels + first + i);
        put_floats(out + i, sum * sigmoid(sum));
    }
}

INLINE void to_length(float *x, int64_t size, float eps, float length) {
    Floats squares = {0};
    for (int64_t i = 0; i < size; i += LANES) squares += floats_at(x + i) * floats_at(x + i);
    const float factor = length / sqrtf(sum_of_lanes(squares) + eps);
    for (int64_t i = 0; i < size; i += LANES) put_floats(x + i, floats_at(x + i) * factor);
}

/* after = before moved on by one row, by the decays [key]; read [value] = what the query reads from it. */
INLINE void move_on(const Delta *d, const float *before, float *after, const float *q, const float *k, const float *v,
                    const float *decays, float share, float *read) {
    enum { WIDE = 4 };
    for (int64_t j = 0; j < d->value; j += WIDE * LANES) {
        const int64_t vectors = d->value - j < WIDE * LANES ? (d->value - j) / LANES : WIDE;
        Floats said[WIDE] = {{0}}, sum[WIDE] = {{0}};
        for (int64_t i = 0; i < d->key; i++)
            for (int64_t n = 0; n < vectors; n++) said[n] += floats_at(before + i * d->value + j + n * LANES) * (decays[i] * k[i]);
        for (int64_t n = 0; n < vectors; n++) said[n] = (floats_at(v + j + n * LANES) - said[n]) * share;
        for (int64_t i = 0; i < d->key; i++)
            for (int64_t n = 0; n < vectors; n++) {
                const int64_t at = i * d->value + j + n * LANES;
                const Floats moved = floats_at(before + at) * decays[i] + said[n] * k[i];
                put_floats(after + at, moved);
                sum[n] += moved * q[i];
            }
        for (int64_t n = 0; n < vectors; n++) put_floats(read + j + n * LANES, sum[n]);
    }
}

/* out = the norm of what was read, times the SiLU (or sigmoid) of its gate. */
INLINE void put_gated(const int bfloat16, const Delta *d, const float *read, int64_t row, int64_t head) {
    const int64_t values = d->value_heads * d->value, gate = row * (d->channels + values) + d->channels + head * d->value;
    Floats squares = {0};
    for (int64_t i = 0; i < d->value; i += LANES) squares += floats_at(read + i) * floats_at(read + i);
    const float inverse = 1 / sqrtf(sum_of_lanes(squares) / (float)d->value + d->eps);
    for (int64_t i = 0; i < d->value; i += LANES) {
        const Floats z = vector_at(d->mixed, gate + i, bfloat16);
        const Floats by = d->channel_decays ? sigmoid(z) : z * sigmoid(z);
        const Floats result = floats_at(read + i) * inverse * floats_at(d->norm + i) * by;
        const int64_t to = row * values + head * d->value + i;
        if (bfloat16) put_bfloat16((uint16_t *)d->out + to, result);
        else put_floats((float *)d->out + to, result);
    }
}

INLINE void leave_tail(const Delta *d, const int64_t *run, int64_t first, int64_t size, int64_t bytes) {
    const int64_t kept = d->kernel - 1, rows = run[STOP] - run[FIRST], width = d->channels + d->value_heads * d->value;
    for (int64_t i = 0; i < kept; i++) {
        const int64_t at = rows - kept + i; /* of the run's rows; before them is the tail */
        const char *from = at >= 0 ? (const char *)d->mixed + ((run[FIRST] + at) * width + first) * bytes
                                   : (const char *)d->tails + ((run[SOURCE] * kept + kept + at) * d->channels + first) * bytes;
        memcpy((char *)d->tails + ((run[TARGET] * kept + i) * d->channels + first) * bytes, from, (size_t)(size * bytes));
    }
}

/* decays [key] of a value head in a row. */
INLINE void decays_of(const int bfloat16, const Delta *d, int64_t row, int64_t head, float *decays) {
    const int64_t each = d->channel_decays ? d->key : 1, width = d->value_heads * (1 + each);
    for (int64_t i = 0; i < d->key; i++) {
        if (i < each) {
            const float a = number_at(d->gates, row * width + d->value_heads + head * each + i, bfloat16) + d->bias[head * each + i];
            decays[i] = expf(d->decay[head] * (a > 20 ? a : log1pf(expf(a))));
        } else {
            decays[i] = decays[0];
        }
    }
}

/* One value head over the rows of a sequence, whose queries, keys and values are convolved: [rows, width] each. */
INLINE void one_head(const int bfloat16, const Delta *d, const int64_t *first, const int64_t *stop, int64_t head,
                     const float *q, const float *k, const float *v, int64_t width, float *work) {
    const int64_t size = d->key * d->value, begin = first[FIRST];
    float *read = work, *decays = work + d->value, *states = decays + d->key;
    const int64_t gates = d->value_heads * (d->channel_decays ? 1 + d->key : 2);
    for (const int64_t *run = first; run < stop; run += FIELDS) {
        const float *source = d->matrices + (run[SOURCE] * d->value_heads + head) * size, *last = source;
        float *target = d->matrices + (run[TARGET] * d->value_heads + head) * size;
        for (int64_t row = run[FIRST]; row < run[STOP]; row++) {
            /* A row of a tree leaves a state of its own. */
            const int64_t parent = d->parents ? d->parents[row] : 0, place = d->parents ? row - run[FIRST] : 0;
            const float *before = !d->parents ? last : parent < 0 ? source : states + (parent - run[FIRST]) * size;
            float *after = run[TARGET] && row == run[STOP] - 1 ? target : states + place * size;
            const float share = d->share_scale / (1 + expf(-number_at(d->gates, row * gates + head, bfloat16)));
            decays_of(bfloat16, d, row, head, decays);
            const int64_t at = (row - begin) * width;
            move_on(d, before, after, q + at, k + at, v + at, decays, share, read);
            put_gated(bfloat16, d, read, row, head);
            last = after;
        }
    }
}

INLINE void one_group(const int bfloat16, const Delta *d, int64_t unit, float *work) {
    const int64_t group = unit % d->key_heads, each = d->value_heads / d->key_heads, bytes = bfloat16 ? 2 : 4;
    const int64_t *first = d->runs + d->begins[unit / d->key_heads] * FIELDS;
    const int64_t *stop = d->runs + d->begins[unit / d->key_heads + 1] * FIELDS;
    const int64_t begin = first[FIRST], rows = stop[STOP - FIELDS] - begin, width = 2 * d->key + each * d->value;
    const int64_t at_q = group * d->key, at_k = (d->key_heads + group) * d->key;
    const int64_t values = 2 * d->key_heads * d->key;
    const char *seen[64];
    for (const int64_t *run = first; run < stop; run += FIELDS) {
        for (int64_t row = run[FIRST]; row < run[STOP]; row++) {
            float *q = work + (row - begin) * width, *k = q + d->key;
            path_of(d, run, row, seen, bytes);
            convolve(bfloat16, d, seen, at_q, d->key, q);
            convolve(bfloat16, d, seen, at_k, d->key, k);
            for (int64_t n = 0; n < each; n++)
                convolve(bfloat16, d, seen, values + sharing(d, group, n) * d->value, d->value, k + d->key + n * d->value);
            to_length(q, d->key, d->unit_eps, 1 / sqrtf((float)d->key));
            to_length(k, d->key, d->unit_eps, 1);
        }
        if (!run[TARGET]) continue;
        leave_tail(d, run, at_q, d->key, bytes);
        leave_tail(d, run, at_k, d->key, bytes);
        for (int64_t n = 0; n < each; n++) leave_tail(d, run, values + sharing(d, group, n) * d->value, d->value, bytes);
    }
    for (int64_t n = 0; n < each; n++) {
        const float *v = work + 2 * d->key + n * d->value;
        one_head(bfloat16, d, first, stop, sharing(d, group, n), work, work + d->key, v, width, work + rows * width);
    }
}

/* Floats that a sequence's key head is worked on with. */
static int64_t work_of(const Delta *d, const int64_t *first, const int64_t *stop) {
    int64_t tree = 1;
    for (const int64_t *run = first; d->parents && run < stop; run += FIELDS)
        tree = run[STOP] - run[FIRST] > tree ? run[STOP] - run[FIRST] : tree;
    const int64_t rows = stop[STOP - FIELDS] - first[FIRST], each = d->value_heads / d->key_heads;
    return rows * (2 * d->key + each * d->value) + d->value + d->key + tree * d->key * d->value;
}

typedef struct {
    const Delta *delta;
    _Atomic int *failed;
} Task;

static void group_of(const void *of, int64_t unit) {
    const Task *task = of;
    const Delta *d = task->delta;
    const int64_t *begins = d->begins + unit / d->key_heads;
    if (begins[0] == begins[1]) return;
    float *work = scratch((size_t)work_of(d, d->runs + begins[0] * FIELDS, d->runs + begins[1] * FIELDS) * sizeof(float));
    if (!work) {
        atomic_store(task->failed, 1);
        return;
    }
    if (d->bfloat16) one_group(1, d, unit, work);
    else one_group(0, d, unit, work);
}

/* Everything between a layer's projections. key and value are multiples of 16, kernel is at most 64. 1 where memory ran
 * out; what was written then is of no use. */
EXPORT int delta_rule(const void *delta, int threads) {
    const Delta *d = delta;
    _Atomic int failed = 0;
    const Task task = {d, &failed};
    const int64_t rows = d->runs[(d->begins[d->sequences] - 1) * FIELDS + STOP];
    share_out(group_of, &task, d->sequences * d->key_heads,
              product_threads(rows * d->value_heads * d->key * d->value, threads));
    return failed;
}
