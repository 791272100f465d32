/* Loops on threads.h: every index is done once, by the time a loop returns, whoever calls. Built with a sanitizer. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "threads.h"

enum { LOOPS = 3000, MOST = 97, CALLERS = 3 };

typedef struct {
    int *done;
    const int *wanted;
    int64_t slow; /* an index whose thread sleeps, as one that has lost its core does */
} Loop;

static void piece(const void *of, int64_t index) {
    const Loop *loop = of;
    if (index == loop->slow) nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    loop->done[index] += loop->wanted[index];
}

static void *call(void *first) {
    for (uintptr_t i = (uintptr_t)first; i < (uintptr_t)first + LOOPS; i++) {
        int done[MOST] = {0}, wanted[MOST];
        const int64_t count = (int64_t)(i * 31 % (MOST + 1));
        const int threads = (int)(i % 6);
        for (int64_t n = 0; n < count; n++) wanted[n] = (int)(i + (uintptr_t)n);
        const Loop loop = {done, wanted, i % 100 ? -1 : count / 2};
        share_out(piece, &loop, count, threads);
        for (int64_t n = 0; n < MOST; n++)
            if (done[n] != (n < count ? wanted[n] : 0)) {
                fprintf(stderr, "loop %d of %d on %d threads: index %d\n", (int)i, (int)count, threads, (int)n);
                exit(1);
            }
        if (i % 500 == 0) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); /* until its threads sleep */
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t callers[CALLERS];
    (void)argv;
    for (uintptr_t i = 0; i < CALLERS; i++)
        if (pthread_create(callers + i, NULL, call, (void *)(i * LOOPS))) return 2;
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    if (argc > 1) { /* a process that was forked has none of the threads; sanitizers know no such */
        const pid_t child = fork();
        int status = 0;
        if (!child) {
            call(NULL);
            _exit(0);
        }
        if (waitpid(child, &status, 0) != child || status) return 3;
    }
    puts("done");
    return 0;
}
