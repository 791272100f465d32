/* Products, packing and unpacking with fixed pseudo-random numbers: a line for each case, with a hash of the result's bits,
 * which have to be the same on every processor. */
#include <stdio.h>

#include "ggml.h"
#include "products.h"

int lanes_matmul(const Lanes *w, const void *x, int bfloat16, void *out, int out_bfloat16, int64_t rows, int digits,
                 const uint8_t *refined, int threads);
void lanes_put_words(const Lanes *w, const uint32_t *words, int64_t stride, const int32_t *order, int bits, int flip,
                     int64_t start, int64_t count, int threads);
void lanes_put_ggml(const Lanes *w, int type, const uint8_t *data, int64_t row_bytes, int64_t start, int64_t count, int threads);
void lanes_write(const Lanes *w, const int64_t *features, int64_t count, void *out, int bfloat16, int threads);
int can_run(const char *set);

/* The last unit is one of a chunk that is not full, and the last block has lanes without a feature. */
enum { K = 512 + UNIT, N = 2 * BLOCK + 5, BLOCKS = 3, ROWS = 11, THREADS = 2 };

static uint32_t state = 1;

static uint32_t next(void) {
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}
/* Multiples of 2^-10 in [-4, 4). */
static float number(void) { return (float)((int)(next() % 8192) - 4096) / 1024; }
/* A float16 of 2^-8 .. 2^-5. */
static uint16_t half(void) { return (uint16_t)((next() % 3 + 7) << 10 | next() % 1024); }

static void *room(size_t bytes) { return aligned_alloc(64, bytes / 64 * 64 + 64); }
static void *random_bytes(size_t count) {
    uint8_t *bytes = room(count);
    for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)next();
    return bytes;
}
static uint16_t *random_halves(int64_t count) {
    uint16_t *halves = room((size_t)count * 2);
    for (int64_t i = 0; i < count; i++) halves[i] = half();
    return halves;
}

static uint64_t hash_of(const void *data, size_t bytes) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const uint8_t *)data)[i]) * 1099511628211u;
    return hash;
}

static void set_table(Lanes *w) {
    for (int i = 0; i < 16; i++) {
        w->values[i] = number();
        for (int t = 0; t < MOST_TABLES; t++) w->tables[t][i] = (int8_t)(next() % 255 - 127);
    }
    w->table_scale = 0.03125f, w->table_count = MOST_TABLES;
}

/* Some numbers of rows, of digits and both types of x and results, and the weights themselves. */
static void print_results(const char *what, const Lanes *w) {
    static float x[ROWS * K], out[ROWS * N], weights[N * K];
    static uint16_t short_x[ROWS * K];
    int64_t features[N];
    for (int i = 0; i < ROWS * K; i++) {
        uint32_t bits;
        x[i] = number();
        memcpy(&bits, x + i, 4);
        short_x[i] = (uint16_t)(bits >> 16);
    }
    for (int i = 0; i < N; i++) features[i] = i;
    for (int64_t rows = 1; rows <= ROWS; rows += rows < 4 ? 1 : ROWS - 4)
        for (int digits = 1; digits <= 3; digits++) {
            const size_t count = (size_t)(rows * N);
            if (lanes_matmul(w, x, 0, out, 0, rows, digits, NULL, THREADS)) exit(1);
            printf("%s rows %d digits %d: %016llx", what, (int)rows, digits, (unsigned long long)hash_of(out, count * 4));
            if (lanes_matmul(w, short_x, 1, out, 1, rows, digits, NULL, THREADS)) exit(1);
            printf(" %016llx\n", (unsigned long long)hash_of(out, count * 2));
        }
    lanes_write(w, features, N, weights, 0, THREADS);
    printf("%s weights: %016llx, sum %a\n", what, (unsigned long long)hash_of(weights, sizeof weights), (double)out[0]);
}

static void random_codes(int64_t kind, int64_t group, int64_t type, int offsets) {
    const int64_t groups = BLOCKS * (K / group) * BLOCK, outer = BLOCKS * 3 * BLOCK;
    Lanes w = {.in_features = K, .out_features = N, .group = group, .kind = kind, .scale_type = type, .factor = 1};
    char what[80];
    w.codes = random_bytes((size_t)(BLOCKS * BLOCK * K * code_bits(kind) / 8));
    w.high = random_bytes((size_t)(BLOCKS * BLOCK * K / 4));
    if (type == SCALES_F32) {
        float *scales = room((size_t)groups * 4);
        for (int64_t i = 0; i < groups; i++) scales[i] = number();
        w.scales = scales;
    } else if (type == SCALES_F16 || type == SCALES_BF16) {
        w.scales = random_halves(groups);
    } else {
        uint8_t *bytes = random_bytes((size_t)groups);
        for (int64_t i = 0; type == EXPONENTS && i < groups; i++) bytes[i] = bytes[i] % 16 + 120;
        w.scales = bytes;
    }
    if (type == SUPER || type == NIBBLES) w.supers = random_halves(outer);
    if (type == NIBBLES || (type == SUPER && offsets)) w.least = random_halves(outer);
    if (type == NESTED) {
        float *scales = room(4 * (N * K / group / 64 + 1)), *table = room(4 * 256);
        for (int i = 0; i < N * K / group / 64 + 1; i++) scales[i] = number();
        for (int i = 0; i < 256; i++) table[i] = number();
        w.nested_scales = scales, w.nested_table = table, w.nested_size = 64, w.nested_offset = 0.125f;
        w.factor = 0.0078125f;
    }
    if (offsets && type != NIBBLES) w.zeros = random_bytes((size_t)groups);
    set_table(&w);
    snprintf(what, sizeof what, "kind %d group %d scales %d offsets %d", (int)kind, (int)group, (int)type, offsets);
    print_results(what, &w);
}

/* Codes of so many bits as a file has them, put where they belong, from an odd feature on. */
static void packed_words(int64_t kind, int bits) {
    enum { START = 3 };
    const int64_t words = (K * bits + 31) / 32;
    Lanes w = {.in_features = K, .out_features = N, .group = K, .kind = kind, .scale_type = SCALES_F16, .factor = 1};
    int32_t order[K];
    char what[80];
    w.codes = memset(room(BLOCKS * BLOCK * K), 0, BLOCKS * BLOCK * K);
    w.high = memset(room(BLOCKS * BLOCK * K), 0, BLOCKS * BLOCK * K);
    w.scales = random_halves(BLOCKS * BLOCK);
    for (int i = 0; i < K; i++) order[i] = i * 5 % K; /* 5 does not divide K */
    lanes_put_words(&w, random_bytes((size_t)(words * (N - START) * 4)), N - START, order, bits, bits == 8 ? 128 : 0, START,
                    N - START, THREADS);
    snprintf(what, sizeof what, "words of %d bits", bits);
    print_results(what, &w);
}

/* Blocks that are held as they are. */
static void book_blocks(int type, int64_t group) {
    const int64_t in = K - UNIT, row = in / STEP * step_bytes(type), outer = BLOCKS * 2 * BLOCK;
    uint8_t *data = random_bytes((size_t)(row * N));
    Lanes w = {.in_features = in, .out_features = N, .group = group, .kind = TABLE4, .scale_type = BOOK, .factor = 0.125f};
    char what[80];
    w.codes = memset(room((size_t)(outer * book_words(type)) * 4), 0, (size_t)(outer * book_words(type)) * 4);
    w.supers = memset(room((size_t)outer * 2), 0, (size_t)outer * 2);
    w.book = random_bytes(2048 * 4), w.book_type = type;
    set_table(&w);
    for (int64_t i = 0; i < row * N; i++) data[i] &= 0xBB;
    lanes_put_ggml(&w, type, data, row, 0, N, THREADS);
    snprintf(what, sizeof what, "book of type %d", type);
    print_results(what, &w);
}

static void ggml_blocks(int type, int64_t kind, int64_t group, int64_t scale_type, int zeros, int shifts) {
    /* of K-quants whole blocks alone */
    const int64_t in = type >= Q2_K && type != IQ4_NL && type != MXFP4 ? K - UNIT : K, groups = BLOCKS * in / group * BLOCK;
    const int64_t step = step_bytes(type), row = in / STEP * step + in % STEP / 32 * (step / 8), outer = BLOCKS * 3 * BLOCK;
    uint8_t *data = random_bytes((size_t)(row * N));
    Lanes w = {.in_features = in, .out_features = N, .group = group, .kind = kind, .scale_type = scale_type, .factor = 1};
    char what[80];
    w.codes = memset(room(BLOCKS * BLOCK * K), 0, BLOCKS * BLOCK * K);
    w.high = memset(room(BLOCKS * BLOCK * K), 0, BLOCKS * BLOCK * K);
    w.scales = memset(room((size_t)groups * 2), 0, (size_t)groups * 2);
    w.zeros = zeros ? memset(room((size_t)groups), 0, (size_t)groups) : NULL;
    w.shifts = shifts ? memset(room((size_t)groups * 2), 0, (size_t)groups * 2) : NULL;
    if (scale_type == SUPER || scale_type == NIBBLES) w.supers = memset(room((size_t)outer * 2), 0, (size_t)outer * 2);
    if (scale_type == NIBBLES || zeros) w.least = memset(room((size_t)outer * 2), 0, (size_t)outer * 2);
    set_table(&w);
    for (int64_t i = 0; i < row * N; i++) /* no exponent of a float16 or a power of two that would be infinite */
        data[i] &= 0xBB;
    lanes_put_ggml(&w, type, data, row, 0, N, THREADS);
    snprintf(what, sizeof what, "ggml type %d", type);
    print_results(what, &w);
}

int main(int count, char **names) {
    for (int i = 1; i < count; i++)
        if (!can_run(names[i])) return 2;
    for (int64_t kind = UNSIGNED2; kind <= TABLE4; kind++)
        for (int64_t group = 16; group <= 32; group += 16)
            for (int64_t type = SCALES_F32; type <= NIBBLES; type++)
                for (int offsets = 0; offsets < 2; offsets++)
                    if (kind != UNSIGNED5 || group == 32) random_codes(kind, group, type, offsets);
    packed_words(UNSIGNED2, 2), packed_words(UNSIGNED3, 3), packed_words(UNSIGNED4, 4), packed_words(UNSIGNED5, 5);
    packed_words(UNSIGNED6, 6), packed_words(SIGNED8, 8);
    ggml_blocks(Q4_0, UNSIGNED4, 32, SCALES_F16, 0, 0), ggml_blocks(Q4_1, UNSIGNED4, 32, SCALES_F16, 0, 1);
    ggml_blocks(Q5_0, UNSIGNED5, 32, SCALES_F16, 0, 0), ggml_blocks(Q5_1, UNSIGNED5, 32, SCALES_F16, 0, 1);
    ggml_blocks(Q8_0, SIGNED8, 32, SCALES_F16, 0, 0), ggml_blocks(Q2_K, UNSIGNED2, 16, NIBBLES, 0, 0);
    ggml_blocks(Q3_K, UNSIGNED3, 16, SUPER, 0, 0), ggml_blocks(Q4_K, UNSIGNED4, 32, SUPER, 1, 0);
    ggml_blocks(Q5_K, UNSIGNED5, 32, SUPER, 1, 0), ggml_blocks(Q6_K, UNSIGNED6, 16, SUPER, 0, 0);
    ggml_blocks(IQ4_NL, TABLE4, 32, SCALES_F16, 0, 0), ggml_blocks(IQ4_XS, TABLE4, 32, SUPER, 0, 0);
    ggml_blocks(MXFP4, TABLE4, 32, EXPONENTS, 0, 0), ggml_blocks(TQ2_0, UNSIGNED2, 256, SCALES_F16, 1, 0);
    book_blocks(IQ2_XXS, 32), book_blocks(IQ2_XS, 16), book_blocks(IQ2_S, 16), book_blocks(IQ3_XXS, 32);
    book_blocks(IQ3_S, 32), book_blocks(IQ1_S, 32), book_blocks(IQ1_M, 16), book_blocks(TQ1_0, 256);
    return 0;
}
