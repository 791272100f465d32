/* ggml's blocks, as GGUF files hold them (see engine/compute/layers/linear/ggml_blocks.py for the types), taken 256 weights at a
 * time: one block of a K-quant, or eight of 32 weights. */
#pragma once
#include "native.h"

enum { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14 };
enum { IQ2_XXS = 16, IQ2_XS = 17, IQ3_XXS = 18, IQ1_S = 19, IQ4_NL = 20, IQ3_S = 21, IQ2_S = 22, IQ4_XS = 23, IQ1_M = 29 };
enum { TQ1_0 = 34, TQ2_0 = 35, MXFP4 = 39 };
enum { STEP = 256, RUNS = STEP / 16, MOST_BOOK_WORDS = 27 };

/* 256 weights: codes as in the file (of Q8_0 signed), and what they mean for each group of 16 or 32: float16 halves and
 * shifts, or bytes (scales, signed but for Q2_K, and minima) that multiply super and least. Minima of TQ2_0 are zero-points. */
typedef struct {
    uint8_t codes[STEP];
    uint16_t halves[RUNS], shifts[RUNS];
    uint8_t scales[RUNS], minima[RUNS];
    uint16_t super, least;
} Step;

/* Bytes of 256 weights. */
int64_t step_bytes(int64_t type);

/* Words of 256 weights of a type whose blocks lie in lanes as they are (books.h); 0: it is none. */
int64_t book_words(int64_t type);

/* Those at ``p``, and their float16. */
void read_book(int64_t type, const uint8_t *p, uint32_t *words, uint16_t *super);

/* The weights at ``p``: 256, or fewer whole blocks of 32. */
void read_step(int64_t type, const uint8_t *p, int64_t count, Step *out);
