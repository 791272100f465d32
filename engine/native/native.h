/* What all native code shares. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
#define INLINE static inline __attribute__((always_inline))

/* Functions are compiled for the processors they need; capabilities() says which of them may be called. */
#if defined(__x86_64__)
#include <immintrin.h>
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,f16c,fma,avx2")))
#define AVX2 __attribute__((target("avx2,fma,f16c")))
#else
#define AVX2
#endif
