/* What the native code is and what it can do here. */
#include "native.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

/* What this processor can run: bit 0 the float32 product, bit 1 the bfloat16 one; bit 2 says that it is plain C. */
EXPORT int capabilities(void) {
#ifdef X86
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512bf16");
    return (avx2 ? 1 : 0) | (avx2 && avx512 ? 2 : 0);
#else
    return 1 | 4;
#endif
}

/* Ask for huge pages under [start, start + size), before it is first written: streaming weights is a tenth faster. */
EXPORT void prefer_huge_pages(void *start, int64_t size) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = 4096, first = ((uintptr_t)start + page - 1) / page * page;
    const uintptr_t last = ((uintptr_t)start + (uintptr_t)size) / page * page;
    if (last > first) madvise((void *)first, last - first, MADV_HUGEPAGE);
#else
    (void)start, (void)size;
#endif
}

/* The hash of the source it was built from, so that a stale build is noticed. */
EXPORT const char *source_hash(void) { return SOURCE_HASH; }
