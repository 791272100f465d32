/* clang's OpenMP on the runtime that torch has loaded, which is gcc's: the calls that clang makes of a runtime of its own,
 * in terms of the other one's. So threads are shared with torch, and nothing but a compiler is needed.
 *
 * Names of the runtime are weak. Where it is not loaded, as when the library is only asked what can run, one thread does
 * all.
 */
#include "native.h"
#if defined(__clang__) && defined(__linux__) && defined(_OPENMP)
#include <stdarg.h>
#include <stdbool.h>

#define WEAK __attribute__((weak))
#undef omp_get_thread_num
WEAK int omp_get_thread_num(void);
WEAK int omp_get_num_threads(void);
WEAK void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);
WEAK void GOMP_barrier(void);
WEAK bool GOMP_loop_dynamic_start(long first, long stop, long step, long chunk, long *from, long *to);
WEAK bool GOMP_loop_dynamic_next(long *from, long *to);
WEAK void GOMP_loop_end_nowait(void);

int kvasir_thread_number(void) { return omp_get_thread_num ? omp_get_thread_num() : 0; }

/* A parallel region's code and the addresses of the variables that it shares. Code takes no more than it knows of. */
enum { MOST = 24 };
#define EIGHT(a) a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
#define POINTERS void *, void *, void *, void *, void *, void *, void *, void *
typedef struct {
    void (*code)(int32_t *thread, int32_t *bound, POINTERS, POINTERS, POINTERS);
    void *shared[MOST];
} Region;

static _Thread_local int32_t threads_wanted; /* by the next region that this thread begins; 0: as many as there are */

static void run(void *data) {
    const Region *region = data;
    int32_t thread = kvasir_thread_number(), bound = 0;
    region->code(&thread, &bound, EIGHT(region->shared), EIGHT((region->shared + 8)), EIGHT((region->shared + 16)));
}

void __kmpc_fork_call(void *where, int32_t count, void *code, ...) {
    Region region = {.code = code};
    const int32_t threads = threads_wanted;
    va_list rest;
    (void)where, threads_wanted = 0;
    if (count > MOST) abort();
    va_start(rest, code);
    for (int32_t i = 0; i < count; i++) region.shared[i] = va_arg(rest, void *);
    va_end(rest);
    if (GOMP_parallel) GOMP_parallel(run, &region, (unsigned)threads, 0);
    else run(&region);
}

void __kmpc_push_num_threads(void *where, int32_t thread, int32_t threads) {
    (void)where, (void)thread, threads_wanted = threads;
}
int32_t __kmpc_global_thread_num(void *where) {
    (void)where;
    return kvasir_thread_number();
}
void __kmpc_barrier(void *where, int32_t thread) {
    (void)where, (void)thread;
    if (GOMP_barrier) GOMP_barrier();
}

/* schedule(static), counting up by one: each thread takes a run of [*first, *last]. */
void __kmpc_for_static_init_8(void *where, int32_t thread, int32_t schedule, int32_t *is_last, int64_t *first, int64_t *last,
                              int64_t *stride, int64_t step, int64_t chunk) {
    const int64_t threads = omp_get_num_threads ? omp_get_num_threads() : 1, count = *last - *first + 1;
    const int64_t share = count / threads, more = count % threads, number = kvasir_thread_number();
    (void)where, (void)thread, (void)schedule, (void)step, (void)chunk;
    *first += share * number + (number < more ? number : more);
    *last = *first + share + (number < more) - 1;
    *stride = count, *is_last = number == threads - 1;
}
void __kmpc_for_static_init_8u(void *where, int32_t thread, int32_t schedule, int32_t *is_last, int64_t *first, int64_t *last,
                               int64_t *stride, int64_t step, int64_t chunk)
    __attribute__((alias("__kmpc_for_static_init_8")));
void __kmpc_for_static_fini(void *where, int32_t thread) { (void)where, (void)thread; }

/* schedule(dynamic): what this thread's loop goes over, and whether it has taken anything yet. */
static _Thread_local struct { int64_t first, last, step, chunk; bool begun; } loop;

void __kmpc_dispatch_init_8(void *where, int32_t thread, int32_t schedule, int64_t first, int64_t last, int64_t step,
                            int64_t chunk) {
    (void)where, (void)thread, (void)schedule;
    loop.first = first, loop.last = last, loop.step = step, loop.chunk = chunk, loop.begun = false;
}
int __kmpc_dispatch_next_8(void *where, int32_t thread, int32_t *is_last, int64_t *first, int64_t *last, int64_t *step) {
    long from = loop.first, to = loop.last + 1;
    const bool began = loop.begun;
    bool more = !began && from < to;
    (void)where, (void)thread;
    loop.begun = true;
    if (GOMP_parallel) more = began ? GOMP_loop_dynamic_next(&from, &to)
                                    : GOMP_loop_dynamic_start(from, to, loop.step, loop.chunk, &from, &to);
    if (!more && GOMP_parallel) GOMP_loop_end_nowait();
    *first = from, *last = to - 1, *step = loop.step, *is_last = *last == loop.last;
    return more;
}
void __kmpc_dispatch_deinit(void *where, int32_t thread) { (void)where, (void)thread; }

/* Every thread adds its part of a reduction by an atomic operation. */
int32_t __kmpc_reduce_nowait(void *where, int32_t thread, int32_t count, size_t size, void *data, void *code, void *lock) {
    (void)where, (void)thread, (void)count, (void)size, (void)data, (void)code, (void)lock;
    return 2;
}
void __kmpc_end_reduce_nowait(void *where, int32_t thread, void *lock) { (void)where, (void)thread, (void)lock; }
#endif
