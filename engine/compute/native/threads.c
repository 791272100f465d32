/* See threads.h. OpenMP's regions wait until every thread has arrived: on a processor that others use too, one that has
 * lost its core to them holds up each product for as long as the system lets them run. Here threads begin with shares of
 * their own and then take what is left of the others', and nobody waits for a thread that has begun nothing.
 */
#include "threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

/* How long a thread looks out for work before it sleeps: as long as a step's other code takes between two products; and
 * for the end of others' pieces, which take a few microseconds unless one has lost its core. */
enum { MOST_THREADS = 64, WORKER_SPINS_NS = 200000, CALLER_SPINS_NS = 50000 };

/* Indices [first, last) of a share that nobody has taken yet, in the upper and the lower half of a number. Its thread
 * takes the first, and others the last. */
typedef struct {
    _Atomic uint64_t left;
    char apart[120];
} Share;

static struct {
    pthread_mutex_t turn; /* held by the thread whose loop it is */
    Piece piece;
    const void *of;
    _Alignas(128) Share shares[MOST_THREADS];
    _Atomic int threads;
    _Atomic int64_t pending;      /* indices that are not done */
    _Alignas(128) _Atomic uint32_t loops; /* how many there have been */
    pthread_mutex_t lock;         /* for going to sleep */
    pthread_cond_t begun, ended;
    _Atomic int asleep, awaited;  /* workers that sleep; whether the caller does */
    int workers;                  /* that were started */
} pool = {.turn = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .begun = PTHREAD_COND_INITIALIZER,
          .ended = PTHREAD_COND_INITIALIZER};

INLINE void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Take an index. What is to be done with it is read afterwards: a loop does not end before it is done. */
static int take(Share *share, int from_end, int64_t *index) {
    uint64_t left = atomic_load(&share->left);
    for (;;) {
        const uint64_t first = left >> 32, last = left & UINT32_MAX;
        if (first >= last) return 0;
        *index = (int64_t)(from_end ? last - 1 : first);
        if (atomic_compare_exchange_weak(&share->left, &left, from_end ? left - 1 : left + (UINT64_C(1) << 32))) return 1;
    }
}

static void work(int self) {
    const int threads = atomic_load(&pool.threads);
    for (int i = 0; i < threads && self < threads; i++)
        for (int64_t index; take(&pool.shares[(self + i) % threads], i > 0, &index);) {
            pool.piece(pool.of, index);
            if (atomic_fetch_sub(&pool.pending, 1) == 1 && atomic_load(&pool.awaited)) {
                pthread_mutex_lock(&pool.lock);
                pthread_cond_signal(&pool.ended);
                pthread_mutex_unlock(&pool.lock);
            }
        }
}

static void *look_out(void *number) {
    const int self = (int)(intptr_t)number;
    for (uint32_t seen = 0;;) {
        const int64_t begin = nanoseconds();
        for (int i = 1; atomic_load(&pool.loops) == seen; i++) {
            pause_briefly();
            if (i % 64 || nanoseconds() - begin < WORKER_SPINS_NS) continue;
            pthread_mutex_lock(&pool.lock);
            atomic_fetch_add(&pool.asleep, 1);
            while (atomic_load(&pool.loops) == seen) pthread_cond_wait(&pool.begun, &pool.lock);
            atomic_fetch_sub(&pool.asleep, 1);
            pthread_mutex_unlock(&pool.lock);
        }
        seen = atomic_load(&pool.loops);
        work(self);
    }
    return NULL;
}

#ifndef _WIN32
/* A process that was forked has none of its parent's threads, and begins with none. */
static void forget_workers(void) {
    pthread_mutex_init(&pool.turn, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.begun, NULL);
    pthread_cond_init(&pool.ended, NULL);
    pool.asleep = pool.awaited = pool.workers = 0;
    for (int i = 0; i < MOST_THREADS; i++) pool.shares[i].left = 0;
}
#endif

static void start_workers(int count) {
#ifndef _WIN32
    static int told = 0;
    if (!told++) pthread_atfork(NULL, NULL, forget_workers);
#endif
    for (; pool.workers < count; pool.workers++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, look_out, (void *)(intptr_t)(pool.workers + 1))) return; /* the others do its share */
        pthread_detach(thread);
    }
}

static void await_others(void) {
    const int64_t begin = nanoseconds();
    for (int i = 1; atomic_load(&pool.pending); i++) {
        pause_briefly();
        if (i % 64 || nanoseconds() - begin < CALLER_SPINS_NS) continue;
        pthread_mutex_lock(&pool.lock);
        atomic_store(&pool.awaited, 1);
        while (atomic_load(&pool.pending)) pthread_cond_wait(&pool.ended, &pool.lock);
        atomic_store(&pool.awaited, 0);
        pthread_mutex_unlock(&pool.lock);
    }
}

void share_out(Piece piece, const void *of, int64_t count, int threads) {
    threads = threads > MOST_THREADS ? MOST_THREADS : threads;
    threads = count < threads ? (int)count : threads;
    /* Where another thread's loop has the workers, this one is the caller's alone. */
    if (threads < 2 || count > UINT32_MAX || pthread_mutex_trylock(&pool.turn)) {
        for (int64_t i = 0; i < count; i++) piece(of, i);
        return;
    }
    start_workers(threads - 1);
    pool.piece = piece, pool.of = of;
    atomic_store(&pool.pending, count);
    atomic_store(&pool.threads, threads);
    for (int64_t t = 0; t < threads; t++)
        atomic_store(&pool.shares[t].left, (uint64_t)(count * t / threads) << 32 | (uint64_t)(count * (t + 1) / threads));
    atomic_fetch_add(&pool.loops, 1);
    if (atomic_load(&pool.asleep)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.begun);
        pthread_mutex_unlock(&pool.lock);
    }
    work(0);
    await_others();
    pthread_mutex_unlock(&pool.turn);
}
