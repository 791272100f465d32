/* QUEST (engine/compute/attention/quest.py): each query head reads the pages that may hold its highest scores, and the last. */
#include "attention.h"
#include "threads.h"

#include <stdatomic.h>

/* Query heads that share each read of bounds. */
enum { HEADS_RANKED = 4, WIDEST_CHOOSING = 256, STRETCH = 128 };

typedef struct {
    Attend attend;          /* its rows: where a row's pages begin, how many of them each head reads, its keys' stop */
    const uint16_t *bounds; /* [pages, kv_heads, 2 * width]: of each channel the least key of a page, then the greatest */
} Quest;

/* The order of scores, and among equals of pages from the last to the first. */
INLINE uint64_t rank_of(float score, int64_t page) {
    uint32_t bits;
    score += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &score, 4);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (UINT32_MAX - (uint32_t)page);
}

/* The least of the ``wanted`` highest ranks: of a heap of so many, the root. */
static uint64_t least_of_best(const float *scores, int64_t pages, uint64_t *heap, int64_t wanted) {
    for (int64_t page = 0; page < pages; page++) {
        const uint64_t rank = rank_of(scores[page], page);
        int64_t at;
        if (page < wanted) { /* up from the end */
            for (at = page; at && heap[(at - 1) / 2] > rank; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
        } else if (rank > heap[0]) { /* down from the root, whose rank is dropped */
            int64_t child;
            for (at = 0; (child = 2 * at + 1) < wanted; at = child) {
                if (child + 1 < wanted && heap[child + 1] < heap[child]) child++;
                if (heap[child] >= rank) break;
                heap[at] = heap[child];
            }
        } else
            continue;
        heap[at] = rank;
    }
    return heap[0];
}

/* scores[h * stride + i]: the product of each of ``heads`` (a constant after inlining) queries with ``now`` rows in bfloat16;
 * rows[] goes on to a multiple of 16. */
INLINE void score(const int heads, const float *q, int64_t width, const uint16_t *const *rows, int now, float *scores,
                  int64_t stride) {
    const int lot = HELD / (heads == 3 ? 4 : heads);
    for (int i = 0; i < now; i += lot) {
        Floats sum[HELD];
        UNROLL for (int j = 0; j < HELD; j++) sum[j] = (Floats){0};
        for (int64_t d = 0; d < width; d += LANES)
            UNROLL for (int j = 0; j < lot; j++) {
                const Floats row = bfloat16_at(rows[i + j] + d);
                UNROLL for (int h = 0; h < heads; h++) sum[h * lot + j] += row * floats_at(q + h * width + d);
            }
        float all[HELD];
        for (int j = 0; j < HELD; j += LANES) put_floats(all + j, sums_of(sum + j));
        for (int h = 0; h < heads; h++)
            for (int j = 0; j < lot && i + j < now; j++) scores[h * stride + i + j] = all[h * lot + j];
    }
}

/* scores[h * ranked + page]: what no key of a page exceeds, as min(q, 0) and max(q, 0) times the page's bounds. */
INLINE void rank_pages(const int heads, const Quest *z, const int32_t *pages, int64_t kv_head, int64_t head, int64_t ranked,
                       float *scores) {
    const Attend *a = &z->attend;
    const int64_t width = a->k_width;
    float signs[HEADS_RANKED * 2 * WIDEST_CHOOSING];
    for (int64_t h = 0; h < heads; h++)
        for (int64_t d = 0; d < width; d += LANES) {
            const void *q = query_at(a, head + h);
            const Floats x = a->wide ? floats_at((const float *)q + d) : bfloat16_at((const uint16_t *)q + d);
            put_floats(signs + h * 2 * width + d, chosen(x < 0, x, (Floats){0}));
            put_floats(signs + h * 2 * width + width + d, chosen(x < 0, (Floats){0}, x));
        }
    for (int64_t first = 0; first < ranked; first += STRETCH) {
        const uint16_t *bounds[STRETCH];
        const int now = (int)smaller(ranked - first, STRETCH);
        for (int i = 0; i < now; i++) bounds[i] = z->bounds + ((int64_t)pages[first + i] * a->kv_heads + kv_head) * 2 * width;
        for (int i = now; i % 16; i++) bounds[i] = bounds[now - 1];
        score(heads, signs, 2 * width, bounds, now, scores + first, ranked);
    }
}

/* Up to four heads of one KV head, ``head`` (counted over all rows) the first. Nonzero where memory ran out. */
static int quest_heads(const Quest *z, int64_t row, int64_t kv_head, int64_t head, int heads) {
    const Attend *a = &z->attend;
    const int32_t *pages = a->pages + a->rows[row][0];
    const int64_t chosen = a->rows[row][1], stop = a->rows[row][2], ranked = (stop - 1) / PAGE;
    uint64_t *heap = scratch(chosen * (sizeof(uint64_t) + sizeof(int32_t)) + heads * ranked * sizeof(float));
    if (!heap) return 1;
    float *scores = (float *)(heap + chosen);
    int32_t *read = (int32_t *)(scores + heads * ranked);
    if (1 < chosen && chosen <= ranked) switch (heads) {
        case 1: rank_pages(1, z, pages, kv_head, head, ranked, scores); break;
        case 2: rank_pages(2, z, pages, kv_head, head, ranked, scores); break;
        case 3: rank_pages(3, z, pages, kv_head, head, ranked, scores); break;
        default: rank_pages(4, z, pages, kv_head, head, ranked, scores);
        }
    for (int h = 0; h < heads; h++) {
        int64_t count = 0;
        if (chosen > ranked) {
            for (; count < ranked; count++) read[count] = pages[count];
        } else if (chosen > 1) {
            const uint64_t least = least_of_best(scores + h * ranked, ranked, heap, chosen - 1);
            for (int64_t page = 0; page < ranked; page++)
                if (rank_of(scores[h * ranked + page], page) >= least) read[count++] = pages[page];
        }
        read[count] = pages[ranked];
        if (attend_pages(a, read, count * PAGE + stop - ranked * PAGE, kv_head, head + h)) return 1;
    }
    return 0;
}

typedef struct {
    const Quest *quest;
    int64_t group, parts; /* query heads of a KV head, and the tasks that they make */
    _Atomic int *failed;
} Ranking;

static void quest_task(const void *of, int64_t task) {
    const Ranking *r = of;
    const Attend *a = &r->quest->attend;
    const int64_t row = task % a->count, part = task / a->count % r->parts, kv_head = task / a->count / r->parts;
    const int64_t head = row * a->heads + kv_head * r->group + part * HEADS_RANKED;
    if (quest_heads(r->quest, row, kv_head, head, (int)smaller(r->group - part * HEADS_RANKED, HEADS_RANKED)))
        atomic_store(r->failed, 1);
}

/* As attend_rows, for PLAIN keys and rows with chosen pages. Nonzero where memory ran out. */
EXPORT int quest_rows(const Quest *z, int threads) {
    const Attend *a = &z->attend;
    const int64_t group = a->heads / a->kv_heads, parts = (group + HEADS_RANKED - 1) / HEADS_RANKED;
    _Atomic int failed = 0;
    const Ranking ranking = {z, group, parts, &failed};
    share_out(quest_task, &ranking, a->count * a->kv_heads * parts, threads);
    return failed;
}
