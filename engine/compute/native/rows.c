/* What lies between products, row by row. */
#include "rows.h"
#include "threads.h"

enum { WIDEST_HEAD = 1024 };

/* x += scale * added for a row, in the type of x. */
INLINE void add_row(const int bfloat16, void *x, const void *added, float scale, int64_t first, int64_t size) {
    for (int64_t i = first; i < first + size; i += LANES) {
        const Floats before = numbers_at(x, i, bfloat16);
        Floats more = numbers_at(added, i, bfloat16);
        if (scale != 1) { /* the product is rounded like the sum; x has its place meanwhile */
            put_numbers(x, i, times(more, scale), bfloat16);
            more = numbers_at(x, i, bfloat16);
        }
        put_numbers(x, i, before + more, bfloat16);
    }
}

INLINE void norm_row(const int bfloat16, const void *x, const void *weight, int64_t factor, const int bfloat16_weight,
                     float eps, void *out, int64_t first, int64_t size) {
    Floats squares = {0};
    for (int64_t i = first; i < first + size; i += LANES) {
        const Floats value = numbers_at(x, i, bfloat16);
        squares += value * value;
    }
    const float inverse = 1 / sqrtf(sum_of_lanes(squares) / (float)size + eps);
    for (int64_t i = 0; i < size; i += LANES) {
        const Floats value = numbers_at(x, first + i, bfloat16) * inverse;
        put_numbers(out, first + i, value * numbers_at(weight, factor + i, bfloat16_weight), bfloat16);
    }
}

typedef struct {
    void *x, *out;
    const void *added, *weight;
    float scale, eps;
    int bfloat16, bfloat16_weight;
    int64_t size, weights;
} Norm;

static void norm_one(const void *of, int64_t row) {
    const Norm *n = of;
    const int64_t first = row * n->size, factor = row % n->weights * n->size;
    if (n->bfloat16) {
        if (n->added) add_row(1, n->x, n->added, n->scale, first, n->size);
        norm_row(1, n->x, n->weight, factor, n->bfloat16_weight, n->eps, n->out, first, n->size);
    } else {
        if (n->added) add_row(0, n->x, n->added, n->scale, first, n->size);
        norm_row(0, n->x, n->weight, factor, n->bfloat16_weight, n->eps, n->out, first, n->size);
    }
}

/* out [rows, size] = the root mean square norm of x [rows, size], to which scale * added is added before, unless that is
 * NULL. x, added and out are bfloat16 or float32, and weight [weights, size] is either: rows take turns with its rows.
 * size is a multiple of 16. */
EXPORT void norm(void *x, const void *added, float scale, int bfloat16, const void *weight, int bfloat16_weight, float eps,
                 void *out, int64_t rows, int64_t size, int64_t weights, int threads) {
    const Norm all = {x, out, added, weight, scale, eps, bfloat16, bfloat16_weight, size, weights};
    share_out(norm_one, &all, rows, product_threads(rows * size, threads));
}

INLINE Floats gated(const int kind, Floats gate, Floats up, float limit, float alpha) {
    if (kind == SILU) return gate * sigmoid(gate) * up;
    /* 0.5 (1 + tanh(y)) is the sigmoid of 2 y (Hendrycks and Gimpel 2016). */
    if (kind == GELU_TANH) return gate * sigmoid((gate + gate * gate * gate * 0.044715f) * 1.5957691216f) * up;
    const Floats most = every_float(limit), least = every_float(-limit);
    gate = chosen(gate > most, most, gate);
    up = chosen(up > most, most, chosen(up < least, least, up));
    return gate * sigmoid(gate * alpha) * (up + 1);
}

INLINE void gate_row(const int kind, const int bfloat16, const void *x, int64_t row, int64_t size, float limit, float alpha,
                     void *out) {
    for (int64_t i = 0, at = 2 * row * size; i < size; i += LANES, at += LANES) {
        const Floats gate = numbers_at(x, at, bfloat16), up = numbers_at(x, at + size, bfloat16);
        put_numbers(out, row * size + i, gated(kind, gate, up, limit, alpha), bfloat16);
    }
}

typedef struct {
    const void *x;
    void *out;
    int64_t size;
    float limit, alpha;
    int kind, bfloat16;
} Gate;

void gate_numbers(int kind, int bfloat16, const void *x, int64_t row, int64_t size, float limit, float alpha, void *out) {
    switch (2 * kind + bfloat16) {
#define GATE(KIND)                                                                                                     \
    case 2 * KIND: gate_row(KIND, 0, x, row, size, limit, alpha, out); break;                                          \
    case 2 * KIND + 1: gate_row(KIND, 1, x, row, size, limit, alpha, out); break;
        GATE(SILU) GATE(GELU_TANH) GATE(CLAMPED)
    }
}

static void gate_one(const void *of, int64_t row) {
    const Gate *g = of;
    gate_numbers(g->kind, g->bfloat16, g->x, row, g->size, g->limit, g->alpha, g->out);
}

/* out [rows, size] from x [rows, 2 size], gates before what they let through; both bfloat16 or both float32. limit and
 * alpha are CLAMPED's. size is a multiple of 16. */
EXPORT void gate(const void *x, int bfloat16, int kind, float limit, float alpha, void *out, int64_t rows, int64_t size,
                 int threads) {
    const Gate all = {x, out, size, limit, alpha, kind, bfloat16};
    share_out(gate_one, &all, rows, product_threads(rows * size, threads));
}

/* A head of x turned by cos and sin [2 half], whose first half is negated: each product and their sum are rounded. */
INLINE void turn_head(const int bfloat16, const void *x, int64_t at, const void *cosines, const void *sines, int64_t angle,
                      void *out, int64_t to, int64_t half) {
    for (int64_t i = 0; i < 2 * half; i += LANES) {
        const Floats value = numbers_at(x, at + i, bfloat16), other = numbers_at(x, at + (i < half ? i + half : i - half), bfloat16);
        Floats own = value * numbers_at(cosines, angle + i, bfloat16), turned = other * numbers_at(sines, angle + i, bfloat16);
        IN_ORDER(own);
        IN_ORDER(turned);
        put_numbers(out, to + i, own + turned, bfloat16);
    }
}

typedef struct {
    const void *x, *cosines, *sines;
    void *out;
    int64_t stride, angles, heads, width, half;
    int bfloat16;
} Rotation;

static void rotate_row(const void *of, int64_t row) {
    const Rotation *r = of;
    const int64_t size = r->bfloat16 ? 2 : 4, turned = 2 * r->half;
    for (int64_t head = 0; head < r->heads; head++) {
        const int64_t at = row * r->stride + head * r->width, to = (row * r->heads + head) * r->width;
        if (r->bfloat16) turn_head(1, r->x, at, r->cosines, r->sines, row * r->angles, r->out, to, r->half);
        else turn_head(0, r->x, at, r->cosines, r->sines, row * r->angles, r->out, to, r->half);
        memcpy((char *)r->out + (to + turned) * size, (const char *)r->x + (at + turned) * size, (size_t)((r->width - turned) * size));
    }
}

/* out [rows, heads, width] = x, whose rows are ``stride`` numbers apart, the first 2 half numbers of every head rotated
 * by cosines and sines [2 half], which stand ``angles`` numbers apart. All are bfloat16 or all float32; half is a multiple
 * of 16. */
EXPORT void rotate(const void *x, int64_t stride, int bfloat16, const void *cosines, const void *sines, int64_t angles,
                   void *out, int64_t rows, int64_t heads, int64_t width, int64_t half, int threads) {
    const Rotation all = {x, cosines, sines, out, stride, angles, heads, width, half, bfloat16};
    share_out(rotate_row, &all, rows, product_threads(rows * heads * width, threads));
}

/* Rows of a step's keys or values: their places in an arena, bytes between them, and bytes of each. */
typedef struct {
    const char *from;
    char *arena;
    int64_t stride, size;
} Stored;

typedef struct {
    Stored k, v;
    const int64_t *slots;
} Storing;

static void store_row(const void *of, int64_t row) {
    const Storing *s = of;
    memcpy(s->k.arena + s->slots[row] * s->k.size, s->k.from + row * s->k.stride, (size_t)s->k.size);
    memcpy(s->v.arena + s->slots[row] * s->v.size, s->v.from + row * s->v.stride, (size_t)s->v.size);
}

/* Rows of keys and of values to the slots of their arenas, as they are; strides and sizes are in bytes. */
EXPORT void store_rows(const void *k, int64_t k_stride, int64_t k_size, void *k_arena, const void *v, int64_t v_stride,
                       int64_t v_size, void *v_arena, const int64_t *slots, int64_t rows, int threads) {
    const Storing all = {{k, k_arena, k_stride, k_size}, {v, v_arena, v_stride, v_size}, slots};
    share_out(store_row, &all, rows, product_threads(rows * (k_size + v_size), threads));
}

/* Sums, and then differences, of a vector's numbers that are so far apart. */
INLINE Floats mixed(Floats x, const int apart) {
    Floats other, sign;
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) other[i] = x[i ^ apart], sign[i] = i & apart ? -1 : 1;
    return x * sign + other;
}

/* A head multiplied by the orthonormal Walsh-Hadamard matrix, ``size`` numbers at a time: sums and differences of numbers
 * 1, 2, 4 ... apart. size is a multiple of LANES. */
INLINE void mix_head(const int bfloat16, const void *x, int64_t at, void *out, int64_t to, int64_t width, int64_t size) {
    float held[WIDEST_HEAD];
    const float scale = 1 / sqrtf((float)size);
    for (int64_t i = 0; i < width; i += LANES) {
        Floats values = numbers_at(x, at + i, bfloat16) * scale;
        values = mixed(values, 1), values = mixed(values, 2);
        if (LANES > 4) values = mixed(values, 4);
        if (LANES > 8) values = mixed(values, 8);
        put_floats(held + i, values);
    }
    for (int64_t apart = LANES; apart < size; apart *= 2)
        for (int64_t first = 0; first < width; first += 2 * apart)
            for (int64_t i = first; i < first + apart; i += LANES) {
                const Floats one = floats_at(held + i), other = floats_at(held + i + apart);
                put_floats(held + i, one + other), put_floats(held + i + apart, one - other);
            }
    for (int64_t i = 0; i < width; i += LANES) put_numbers(out, to + i, floats_at(held + i), bfloat16);
}

typedef struct {
    const void *x;
    void *out;
    int64_t stride, heads, width, size;
    int bfloat16;
} Mixing;

static void mix_row(const void *of, int64_t row) {
    const Mixing *m = of;
    for (int64_t head = 0; head < m->heads; head++) {
        const int64_t at = row * m->stride + head * m->width, to = (row * m->heads + head) * m->width;
        if (m->bfloat16) mix_head(1, m->x, at, m->out, to, m->width, m->size);
        else mix_head(0, m->x, at, m->out, to, m->width, m->size);
    }
}

/* out [rows, heads, width] = x, whose rows are ``stride`` numbers apart, each ``size`` numbers of a head mixed. Both are
 * bfloat16 or both float32; size is a power of two from 16 on that divides width, up to WIDEST_HEAD. */
EXPORT void hadamard(const void *x, int64_t stride, int bfloat16, void *out, int64_t rows, int64_t heads, int64_t width,
                     int64_t size, int threads) {
    const Mixing all = {x, out, stride, heads, width, size, bfloat16};
    share_out(mix_row, &all, rows, product_threads(rows * heads * width, threads));
}
