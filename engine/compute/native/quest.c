/* QUEST (engine/compute/attention/quest.py): each query head reads the pages that may hold its highest scores, and the last. */
#include "attention.h"
#include "threads.h"

/* Query heads that share each read of bounds. */
enum { HEADS_RANKED = 4, WIDEST_CHOOSING = 256 };

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

/* scores[h * ranked + page]: what no key of a page exceeds, as min(q, 0) and max(q, 0) times the page's bounds. */
INLINE void rank_pages(const int heads, const Quest *z, const int32_t *pages, int64_t kv_head, const float *q,
                       int64_t ranked, float *scores) {
    const int64_t width = z->attend.k_width;
    float signs[HEADS_RANKED * 2 * WIDEST_CHOOSING];
    Attend bounds = z->attend; /* of which each is a key, twice as wide */
    bounds.k_width = 2 * width;
    bounds.scale = 1;
    for (int h = 0; h < heads; h++)
        for (int64_t d = 0; d < width; d++) {
            const float x = q[h * width + d];
            signs[h * 2 * width + d] = x < 0 ? x : 0;
            signs[h * 2 * width + width + d] = x < 0 ? 0 : x;
        }
    for (int64_t first = 0; first < ranked; first += STRETCH) {
        Stretch s;
        float found[HEADS_RANKED][STRETCH];
        s.now = (int)smaller(ranked - first, STRETCH);
        for (int i = 0; i < s.now; i++)
            s.keys[i] = z->bounds + ((int64_t)pages[first + i] * bounds.kv_heads + kv_head) * bounds.k_width;
        for (int i = s.now; i % 16; i++) s.keys[i] = s.keys[s.now - 1];
        score(heads, &bounds, signs, &s, 0, found);
        for (int h = 0; h < heads; h++) memcpy(scores + h * ranked + first, found[h], s.now * sizeof(float));
    }
}

/* One head, with query ``q``, over the first ``count`` keys of some pages. */
static void attend_pages(const Attend *a, const int32_t *pages, int64_t count, int64_t kv_head, int64_t head,
                         const float *q) {
    float sums[WIDEST_CHOOSING] = {0}, top = -INFINITY, total = 0;
    const Part part = {
        .pages = pages,
        .stop = count,
        .last = count - 1,
        .kv_head = kv_head,
        .heads = 1,
        .q = q,
        .sums = sums,
        .top = &top,
        .total = &total,
    };
    attend_plain(a, &part);
    write_result(a, head, sums, total);
    a->lse[head] = top + logf(total);
}

/* Up to four heads of one KV head, ``head`` (counted over all rows) the first. Nonzero where memory ran out. */
static int quest_heads(const Quest *z, int64_t row, int64_t kv_head, int64_t head, int heads) {
    const Attend *a = &z->attend;
    const int32_t *pages = a->pages + a->rows[row][0];
    float q[HEADS_RANKED * WIDEST_CHOOSING];
    const int64_t chosen = a->rows[row][1], stop = a->rows[row][2], ranked = (stop - 1) / PAGE;
    uint64_t *heap = scratch(chosen * (sizeof(uint64_t) + sizeof(int32_t)) + heads * ranked * sizeof(float));
    if (!heap) return 1;
    read_queries(a, head, heads, q);
    float *scores = (float *)(heap + chosen);
    int32_t *read = (int32_t *)(scores + heads * ranked);
    if (1 < chosen && chosen <= ranked) switch (heads) {
        case 1: rank_pages(1, z, pages, kv_head, q, ranked, scores); break;
        case 2: rank_pages(2, z, pages, kv_head, q, ranked, scores); break;
        case 3: rank_pages(3, z, pages, kv_head, q, ranked, scores); break;
        default: rank_pages(4, z, pages, kv_head, q, ranked, scores);
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
        attend_pages(a, read, count * PAGE + stop - ranked * PAGE, kv_head, head + h, q + h * a->k_width);
    }
    return 0;
}

typedef struct {
    const Quest *quest;
    int64_t group, parts; /* query heads of a KV head, and the tasks that they make */
    int *failed;
} Ranking;

static void quest_task(const void *of, int64_t task) {
    const Ranking *r = of;
    const Attend *a = &r->quest->attend;
    const int64_t row = task % a->count, part = task / a->count % r->parts, kv_head = task / a->count / r->parts;
    const int64_t head = row * a->heads + kv_head * r->group + part * HEADS_RANKED;
    if (quest_heads(r->quest, row, kv_head, head, (int)smaller(r->group - part * HEADS_RANKED, HEADS_RANKED)))
        __atomic_store_n(r->failed, 1, __ATOMIC_RELAXED);
}

/* As attend_rows, for PLAIN keys and rows with chosen pages; lse is not NULL. Nonzero where memory ran out. */
EXPORT int quest_rows(const Quest *z, int threads) {
    const Attend *a = &z->attend;
    const int64_t group = a->heads / a->kv_heads, parts = (group + HEADS_RANKED - 1) / HEADS_RANKED;
    int failed = 0;
    const Ranking ranking = {z, group, parts, &failed};
    share_out(quest_task, &ranking, a->count * a->kv_heads * parts, threads);
    return failed;
}
