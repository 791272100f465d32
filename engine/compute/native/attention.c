/* Attention of single rows over paged keys and values: decoding, and checking a few drafted tokens.
 *
 * Here are keys and values in bfloat16, and the tasks of all kinds: one is a row, up to 16 query heads that share a KV
 * head, and a part of its keys. A row's parts are merged in their order. Scores, weights and sums are float32.
 */
#include "attention.h"
#include "threads.h"

/* Products of keys and queries below which a second thread costs more than it gives. */
enum { WORTH_A_THREAD = 1 << 17 };

/* sums[h] += weights[h] times the values of a stretch, ``spans`` words of each at a time. ``ahead``: the next keys are
 * fetched meanwhile. */
INLINE void gather(const int heads, const Attend *a, const Stretch *s, int ahead, const float (*weights)[STRETCH],
                   float *sums) {
    enum { MOST = HELD / 2 };
    const int most = MOST / (heads == 3 ? 4 : heads), spans = most < 16 / LANES ? most : 16 / LANES;
    for (int64_t d = 0; d < a->v_width; d += 2 * LANES * spans) {
        Floats sum[MOST][2];
        UNROLL for (int h = 0; h < heads; h++)
            UNROLL for (int p = 0; p < spans; p++) {
                const float *at = sums + h * a->v_width + d + 2 * LANES * p;
                sum[h * spans + p][0] = floats_at(at), sum[h * spans + p][1] = floats_at(at + LANES);
            }
        for (int i = 0; i < s->now; i++) {
            if (ahead) __builtin_prefetch(s->next[i] + d);
            UNROLL for (int p = 0; p < spans; p++) {
                const Words value = pairs_at(s->values[i] + d + 2 * LANES * p);
                UNROLL for (int h = 0; h < heads; h++) {
                    sum[h * spans + p][0] += lower_numbers(value) * weights[h][i];
                    sum[h * spans + p][1] += upper_numbers(value) * weights[h][i];
                }
            }
        }
        UNROLL for (int h = 0; h < heads; h++)
            UNROLL for (int p = 0; p < spans; p++) {
                float *at = sums + h * a->v_width + d + 2 * LANES * p;
                put_floats(at, sum[h * spans + p][0]), put_floats(at + LANES, sum[h * spans + p][1]);
            }
    }
}

INLINE void attend_heads(const int heads, const Attend *a, const Part *part, int64_t h0, const Stretch *s) {
    float scores[HEADS_AT_ONCE][STRETCH], *sums = part->sums + h0 * a->v_width;
    const int ahead = h0 == 0; /* and for the other query heads they are there */
    score(heads, a, part->q + h0 * a->k_width, s, ahead && a->v != a->k, scores);
    for (int h = 0; h < heads; h++) {
        leave_out(part, s->first, s->now, scores[h]);
        weigh(scores[h], s->now, part->top + h0 + h, part->total + h0 + h, sums + h * a->v_width, a->v_width);
    }
    gather(heads, a, s, ahead, (const float(*)[STRETCH])scores, sums);
}

/* Query heads take turns at each stretch of keys, which stays in the processor's cache. */
void attend_plain(const Attend *a, const Part *part) {
    for (int64_t at = part->first, end; at < part->stop; at = end) {
        end = smaller((at / STRETCH + 1) * STRETCH, part->stop);
        Stretch s;
        s.now = (int)(end - at), s.first = at;
        for (int i = 0; i < s.now; i++) {
            const int64_t slot = slot_of(part, at + i), next = slot_of(part, smaller(end + i, part->last));
            s.keys[i] = (const uint16_t *)(a->k + slot * a->k_slot + part->kv_head * a->k_head);
            s.next[i] = (const uint16_t *)(a->k + next * a->k_slot + part->kv_head * a->k_head);
            s.values[i] = (const uint16_t *)(a->v + slot * a->v_slot + part->kv_head * a->v_head);
        }
        for (int i = s.now; i % 16; i++) s.keys[i] = s.keys[s.now - 1];
        for (int64_t h = 0; h < part->heads; h += heads_now(part->heads - h, HEADS_AT_ONCE))
            switch (heads_now(part->heads - h, HEADS_AT_ONCE)) {
            case 1: attend_heads(1, a, part, h, &s); break;
            case 2: attend_heads(2, a, part, h, &s); break;
            case 3: attend_heads(3, a, part, h, &s); break;
            case 4: attend_heads(4, a, part, h, &s); break;
            default: attend_heads(HEADS_AT_ONCE, a, part, h, &s);
            }
    }
}

/* What a task reads, and which of its row's parts that is. */
typedef struct {
    int64_t row, part, first, stop, kv_head, chunk;
} Task;

/* Where queries are, as Part has them, and results of parts: of each part the sums of all query heads, then their largest
 * scores, then their totals. */
typedef struct {
    const Attend *a;
    const float *q;
    float *numbers;
    const int64_t *begins; /* of each row: parts before its own */
    int64_t size;          /* floats of a part */
    const Task *tasks;
} Results;

static void read_query(const void *of, int64_t place) {
    const Results *r = of;
    read_queries(r->a, place, 1, (float *)r->q + place * r->a->k_width);
}

static void attend_task(const void *of, int64_t index) {
    const Results *r = of;
    const Attend *a = r->a;
    const Task *task = r->tasks + index;
    const int64_t group = a->heads / a->kv_heads, head = task->kv_head * group + task->chunk * HEADS_A_TASK;
    float *numbers = r->numbers + (r->begins[task->row] + task->part) * r->size, *tops = numbers + a->heads * a->v_width;
    const Part part = {
        .pages = a->pages + a->rows[task->row][0],
        .first = task->first,
        .stop = task->stop,
        .last = a->rows[task->row][2] - 1,
        .kv_head = task->kv_head,
        .heads = smaller(group - task->chunk * HEADS_A_TASK, HEADS_A_TASK),
        .q = r->q + (task->row * a->heads + head) * a->k_width,
        .sums = numbers + head * a->v_width,
        .top = tops + head,
        .total = tops + a->heads + head,
        .tree = a->trees ? a->trees[task->row] : NULL,
    };
    for (int64_t h = 0; h < part.heads; h++) part.top[h] = -INFINITY, part.total[h] = 0;
    memset(part.sums, 0, part.heads * a->v_width * sizeof(float));
    if (a->kind == PLAIN)
        attend_plain(a, &part);
    else
        attend_packed(a, &part);
}

INLINE int64_t parts_of(const Attend *a, int64_t row) {
    const int64_t first = a->rows[row][1], stop = a->rows[row][2];
    return stop > first ? (stop - 1) / PART - first / PART + 1 : 0;
}

/* One head's result from the parts of its row, in their order. */
static void finish(const void *of, int64_t place) {
    const Results *r = of;
    const Attend *a = r->a;
    const int64_t row = place / a->heads, head = place % a->heads, count = parts_of(a, row);
    const float *sums = r->numbers + r->begins[row] * r->size + head * a->v_width;
    const float *top = r->numbers + r->begins[row] * r->size + a->heads * a->v_width + head, *total = top + a->heads;
    float most = -INFINITY, all = 0, result[WIDEST_KEY] = {0};
    for (int64_t i = 0; i < count; i++) {
        const float x = top[i * r->size];
        if (x > most || x != x) most = x;
    }
    for (int64_t i = 0; i < count; i++) {
        const float x = top[i * r->size], weight = x == most ? 1 : exponential(every_float(x - most))[0];
        all += weight * total[i * r->size];
        for (int64_t d = 0; d < a->v_width; d += LANES)
            put_floats(result + d, floats_at(result + d) + floats_at(sums + i * r->size + d) * weight);
    }
    write_result(a, place, result, count ? all : 1);
    if (a->lse) a->lse[place] = count ? most + logf(all) : -INFINITY;
}

/* The tasks of rows [row, end), which are of one sequence: those over the same keys follow each other, and so do the KV
 * heads of some tokens, whose scales and minima share the processor's cache lines. */
static Task *list_tasks(const Attend *a, int64_t row, int64_t end, Task *next) {
    const int64_t chunks = (a->heads / a->kv_heads + HEADS_A_TASK - 1) / HEADS_A_TASK;
    int64_t begin = INT64_MAX, stop = 0;
    for (int64_t i = row; i < end; i++) {
        if (!parts_of(a, i)) continue;
        begin = smaller(begin, a->rows[i][1] / PART);
        if (a->rows[i][2] > stop) stop = a->rows[i][2];
    }
    for (int64_t p = begin; p * PART < stop; p++)
        for (int64_t j = 0; j < a->kv_heads * chunks; j++)
            for (int64_t i = row; i < end; i++) {
                const int64_t from = p * PART > a->rows[i][1] ? p * PART : a->rows[i][1];
                const int64_t to = smaller((p + 1) * PART, a->rows[i][2]);
                if (from < to) *next++ = (Task){i, p - a->rows[i][1] / PART, from, to, j / chunks, j % chunks};
            }
    return next;
}

/* out [count, heads, v_width] = attention of q [count, heads, k_width] to each row's keys; zero for a row without any.
 * 1 where memory ran out. */
EXPORT int attend_rows(const Attend *a, int threads) {
    int64_t work = 0, parts = 0;
    for (int64_t row = 0; row < a->count; row++) {
        parts += parts_of(a, row);
        if (parts_of(a, row)) work += (a->rows[row][2] - a->rows[row][1]) * a->heads * a->k_width;
    }
    const int64_t size = a->heads * (a->v_width + 2), rows = a->count * a->heads, queries = rows * a->k_width;
    const int64_t count = parts * a->kv_heads * ((a->heads / a->kv_heads + HEADS_A_TASK - 1) / HEADS_A_TASK);
    Task *tasks = scratch(count * sizeof(Task) + a->count * sizeof(int64_t) + (queries + parts * size) * sizeof(float));
    if (!tasks) return 1;
    int64_t *begins = (int64_t *)(tasks + count);
    for (int64_t row = 0, at = 0; row < a->count; at += parts_of(a, row++)) begins[row] = at;
    Task *next = tasks;
    for (int64_t row = 0, end; row < a->count; row = end) {
        for (end = row + 1; end < a->count && a->rows[end][0] == a->rows[row][0];) end++;
        next = list_tasks(a, row, end, next);
    }
    float *q = (float *)(begins + a->count);
    const Results r = {a, q, q + queries, begins, size, tasks};
    threads = work < WORTH_A_THREAD ? 1 : threads;
    share_out(read_query, &r, rows, queries < WORTH_A_THREAD ? 1 : threads);
    share_out(attend_task, &r, next - tasks, threads);
    share_out(finish, &r, rows, parts * size < WORTH_A_THREAD ? 1 : threads);
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
