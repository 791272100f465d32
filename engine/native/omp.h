/* What Kvasir takes of OpenMP's interface, in place of a compiler's own header, which clang often comes without. */
#pragma once
#if defined(__clang__) && defined(__linux__)
#define omp_get_thread_num kvasir_thread_number /* openmp.c */
#endif
int omp_get_thread_num(void);
