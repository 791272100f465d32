/* A causal convolution of each channel over the last tokens of a sequence (engine/compute/layers/recurrent/convolution.py),
 * row by row: a row's bits do not depend on how rows are batched. */
#include "rows.h"
#include "runs.h"
#include "threads.h"

enum { MOST_TAPS = 64, AT_ONCE = 256 }; /* channels that a thread takes */

typedef struct {
    const void *inputs;      /* [rows, channels], ``stride`` numbers apart */
    const float *taps;       /* [kernel, channels] */
    const float *bias;       /* [channels]; NULL: none */
    void *tails;             /* [slots, kernel - 1, channels] */
    float *out;              /* [rows, channels] */
    const int64_t *runs;     /* [n, FIELDS] */
    const int64_t *begins;   /* [sequences + 1]: its first run */
    const int32_t *parents;  /* [rows] the row that each goes on from, -1: its run's source; NULL: the row before */
    int64_t sequences, kernel, channels, stride;
    int32_t bfloat16;        /* inputs and tails; else they are float32 */
    int32_t silu;            /* of the sums */
} Convolution;

/* What a row sees of channels from ``first`` on, the newest first: rows of its run, then of the source's tail. */
INLINE void path_of(const Convolution *c, const int64_t *run, int64_t row, int64_t first, const char **seen, int64_t bytes) {
    int64_t at = row, count = 0;
    while (count < c->kernel && at >= run[FIRST]) {
        seen[count++] = (const char *)c->inputs + (at * c->stride + first) * bytes;
        at = !c->parents ? at - 1 : c->parents[at] < 0 ? -1 : c->parents[at];
    }
    const char *tail = (const char *)c->tails + ((run[SOURCE] * (c->kernel - 1) + c->kernel - 2) * c->channels + first) * bytes;
    for (; count < c->kernel; tail -= c->channels * bytes) seen[count++] = tail;
}

/* Products are rounded before they are added, in the order of tokens. */
INLINE void sum_row(const int bfloat16, const Convolution *c, const char *const *seen, int64_t row, int64_t first, int64_t size) {
    for (int64_t i = 0; i < size; i += LANES) {
        Floats sum = {0};
        for (int64_t tap = 0; tap < c->kernel; tap++) {
            Floats product = numbers_at(seen[c->kernel - 1 - tap], i, bfloat16) * floats_at(c->taps + tap * c->channels + first + i);
            IN_ORDER(product);
            sum = tap ? sum + product : product;
        }
        if (c->bias) sum += floats_at(c->bias + first + i);
        put_floats(c->out + row * c->channels + first + i, c->silu ? sum * sigmoid(sum) : sum);
    }
}

/* (Where the target is the source, what moves on within it does so in order.) */
INLINE void leave_tail(const Convolution *c, const int64_t *run, int64_t first, int64_t size, int64_t bytes) {
    const int64_t kept = c->kernel - 1, rows = run[STOP] - run[FIRST];
    for (int64_t i = 0; i < kept; i++) {
        const int64_t at = rows - kept + i; /* of the run's rows; before them is the tail */
        const char *from = at >= 0 ? (const char *)c->inputs + ((run[FIRST] + at) * c->stride + first) * bytes
                                   : (const char *)c->tails + ((run[SOURCE] * kept + kept + at) * c->channels + first) * bytes;
        char *to = (char *)c->tails + ((run[TARGET] * kept + i) * c->channels + first) * bytes;
        if (to != from) memcpy(to, from, (size_t)(size * bytes));
    }
}

/* Some channels of a sequence. */
static void some_channels(const void *of, int64_t unit) {
    const Convolution *c = of;
    const int64_t pieces = (c->channels + AT_ONCE - 1) / AT_ONCE, first = unit % pieces * AT_ONCE, bytes = c->bfloat16 ? 2 : 4;
    const int64_t left = c->channels - first, size = left < AT_ONCE ? left : AT_ONCE, *begins = c->begins + unit / pieces;
    const char *seen[MOST_TAPS];
    for (const int64_t *run = c->runs + begins[0] * FIELDS; run < c->runs + begins[1] * FIELDS; run += FIELDS) {
        for (int64_t row = run[FIRST]; row < run[STOP]; row++) {
            path_of(c, run, row, first, seen, bytes);
            if (c->bfloat16) sum_row(1, c, seen, row, first, size);
            else sum_row(0, c, seen, row, first, size);
        }
        if (run[TARGET]) leave_tail(c, run, first, size, bytes);
    }
}

/* channels is a multiple of 16, and kernel at most MOST_TAPS. */
EXPORT void convolve_runs(const Convolution *c, int threads) {
    const int64_t rows = c->runs[(c->begins[c->sequences] - 1) * FIELDS + STOP];
    share_out(some_channels, c, c->sequences * ((c->channels + AT_ONCE - 1) / AT_ONCE),
              product_threads(rows * c->channels * c->kernel, threads));
}
