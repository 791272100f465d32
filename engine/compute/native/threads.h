/* The threads that native code's loops are shared by. */
#pragma once
#include "native.h"

/* What a loop does for one of its indices; ``of`` is what it needs to know. */
typedef void (*Piece)(const void *of, int64_t index);

/* Run a piece for every index below count, on up to ``threads`` threads, the caller among them; all are done when it
 * returns. Pieces may run in any order. */
void share_out(Piece piece, const void *of, int64_t count, int threads);
