/* What the native code is, and which instructions this processor has. */
#include "native.h"

#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
#include <windows.h>
#endif

#if defined(__x86_64__)
#include <cpuid.h>
/* Read from the processor, as what zig has for __builtin_cpu_supports knows no processor. */
static int has_x86(const char *set) {
    enum { FMA = 1u << 12, OSXSAVE = 1u << 27, F16C = 1u << 29 };                         /* leaf 1, ecx */
    enum { AVX2 = 1u << 5, F = 1u << 16, DQ = 1u << 17, BW = 1u << 30, VNNI = 1u << 11 }; /* leaf 7, ebx, and ecx */
    const unsigned vl = 1u << 31, avx_vnni = 1u << 4, bf16 = 1u << 5;                     /* leaf 7, ebx; its second part, eax */
    unsigned first, a, b, c, d, low, high, more = 0;
    if (!__get_cpuid(1, &a, &b, &first, &d) || ~first & (FMA | OSXSAVE | F16C)) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & AVX2)) return 0;
    if (a) __cpuid_count(7, 1, more, low, high, d);
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); /* the registers that the system saves */
    if (~low & 0x06) return 0;
    if (!strcmp(set, "avx2")) return 1;
    if (!strcmp(set, "avxvnni")) return (more & avx_vnni) != 0;
    if (~low & 0xE6 || ~b & (F | DQ | BW | vl) || !(c & VNNI)) return 0;
    return !strcmp(set, "avx512vnni") || (!strcmp(set, "avx512bf16") && more & bf16);
}
#endif

#if defined(__aarch64__) && defined(__APPLE__)
static int has(const char *name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value;
}
#endif

/* Whether this processor, and the system that saves its registers, can run what is compiled for the set of that name
 * (instructions.py); asked of the library that every processor runs. */
EXPORT int can_run(const char *set) {
    if (!strcmp(set, "portable")) return 1;
#if defined(__x86_64__)
    return has_x86(set);
#elif defined(__aarch64__)
    const int i8mm = !strcmp(set, "i8mm");
    if (!i8mm && strcmp(set, "dotprod")) return 0;
#if defined(__linux__)
    return (getauxval(AT_HWCAP) >> 20 & 1) && (!i8mm || (getauxval(AT_HWCAP2) >> 13 & 1)); /* ASIMDDP, I8MM */
#elif defined(__APPLE__)
    return has("hw.optional.arm.FEAT_DotProd") && (!i8mm || has("hw.optional.arm.FEAT_I8MM"));
#elif defined(_WIN32)
    return IsProcessorFeaturePresent(43) && !i8mm; /* PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE */
#endif
#endif
    return 0;
}

/* The hash of the source it was built from, so that a stale build is noticed. */
EXPORT const char *source_hash(void) { return SOURCE_HASH; }
