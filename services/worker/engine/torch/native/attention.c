/* Attention of single query tokens over the paged KV pool, without gathering the blocks first.
 *
 * One call computes one layer for some rows of a step. The pool is [blocks, layers, key/value, block size, kv heads, dim]
 * and every pointer to it already stands at the layer's keys (or values) of block 0. Compiled for the CPU at hand, so
 * plain loops are enough: the compiler makes vectors of them. Sums are kept in float32, whatever the pool holds.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_thread_num(void) { return 0; }
#endif

#define INLINE static inline __attribute__((always_inline))

typedef struct {
    int64_t rows;         /* query tokens */
    int64_t kv_heads;
    int64_t group;        /* query heads that share a KV head; at most MAX_GROUP */
    int64_t dim;          /* at most MAX_DIM */
    int64_t block_size;   /* tokens */
    int64_t block_stride; /* elements from a block's keys to the next block's */
    int64_t table_width;  /* blocks in a row of the table */
    int64_t scratch;      /* floats in a row of the scratch: at least the longest length */
    int64_t threads;      /* that may compute at once */
} Shape;

enum { MAX_GROUP = 16, MAX_DIM = 256 };

INLINE float from_float(float x) { return x; }
INLINE void to_float(float *to, float x) { *to = x; }

INLINE float from_bfloat(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

INLINE void to_bfloat(uint16_t *to, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    *to = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16); /* to the nearest, ties to even; x is finite */
}

/* scores[0..length) become weights that sum to 1. */
INLINE void softmax(float *scores, int64_t length)
{
    float most = scores[0], sum = 0;
    for (int64_t j = 1; j < length; j++)
        most = scores[j] > most ? scores[j] : most;
    for (int64_t j = 0; j < length; j++) {
        scores[j] = expf(scores[j] - most);
        sum += scores[j];
    }
    for (int64_t j = 0; j < length; j++)
        scores[j] /= sum;
}

/* One row and one KV head, for an element type T. `dim` and `group` are constants where the caller inlines it so. */
#define DEFINE(T, NAME, LOAD, STORE)                                                                                   \
    INLINE void NAME##_head(const T *query, const T *keys, const T *values, const int32_t *table, int64_t length,     \
                            T *out, const Shape *s, float scale, float *scratch, int64_t dim, int64_t group)           \
    {                                                                                                                  \
        const int64_t step = s->kv_heads * dim;                                                                        \
        float q[MAX_GROUP][MAX_DIM], sums[MAX_GROUP][MAX_DIM];                                                         \
        for (int64_t g = 0; g < group; g++)                                                                            \
            for (int64_t d = 0; d < dim; d++) {                                                                        \
                q[g][d] = LOAD(query[g * dim + d]) * scale;                                                            \
                sums[g][d] = 0;                                                                                        \
            }                                                                                                          \
        for (int64_t begin = 0; begin < length; begin += s->block_size) {                                              \
            const T *key = keys + table[begin / s->block_size] * s->block_stride;                                      \
            const int64_t end = begin + s->block_size < length ? begin + s->block_size : length;                       \
            for (int64_t j = begin; j < end; j++, key += step)                                                         \
                for (int64_t g = 0; g < group; g++) {                                                                  \
                    float dot = 0;                                                                                     \
                    for (int64_t d = 0; d < dim; d++)                                                                  \
                        dot += q[g][d] * LOAD(key[d]);                                                                 \
                    scratch[g * s->scratch + j] = dot;                                                                 \
                }                                                                                                      \
        }                                                                                                              \
        for (int64_t g = 0; g < group; g++)                                                                            \
            softmax(scratch + g * s->scratch, length);                                                                 \
        for (int64_t begin = 0; begin < length; begin += s->block_size) {                                              \
            const T *value = values + table[begin / s->block_size] * s->block_stride;                                  \
            const int64_t end = begin + s->block_size < length ? begin + s->block_size : length;                       \
            for (int64_t j = begin; j < end; j++, value += step)                                                       \
                for (int64_t g = 0; g < group; g++) {                                                                  \
                    const float weight = scratch[g * s->scratch + j];                                                  \
                    for (int64_t d = 0; d < dim; d++)                                                                  \
                        sums[g][d] += weight * LOAD(value[d]);                                                         \
                }                                                                                                      \
        }                                                                                                              \
        for (int64_t g = 0; g < group; g++)                                                                            \
            for (int64_t d = 0; d < dim; d++)                                                                          \
                STORE(&out[g * dim + d], sums[g][d]);                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    /* query, out [rows, kv heads * group, dim]; table [rows, table_width]; lengths [rows];                            \
       scratch [threads, group, scratch] */                                                                            \
    void NAME(const T *query, const T *keys, const T *values, const int32_t *table, const int32_t *lengths, T *out,    \
              const Shape *s, float scale, float *scratch)                                                             \
    {                                                                                                                  \
        _Pragma("omp parallel for collapse(2) schedule(static) num_threads(s->threads) if (s->threads > 1)")           \
        for (int64_t r = 0; r < s->rows; r++)                                                                          \
            for (int64_t h = 0; h < s->kv_heads; h++) {                                                                \
                const int64_t at = (r * s->kv_heads + h) * s->group * s->dim, head = h * s->dim;                       \
                const int32_t *row = table + r * s->table_width;                                                       \
                float *own = scratch + omp_get_thread_num() * s->group * s->scratch;                                   \
                if (s->dim == 64 && s->group == 3)                                                                     \
                    NAME##_head(query + at, keys + head, values + head, row, lengths[r], out + at, s, scale, own, 64,  \
                                3);                                                                                    \
                else if (s->dim == 64)                                                                                 \
                    NAME##_head(query + at, keys + head, values + head, row, lengths[r], out + at, s, scale, own, 64,  \
                                s->group);                                                                             \
                else if (s->dim == 128)                                                                                \
                    NAME##_head(query + at, keys + head, values + head, row, lengths[r], out + at, s, scale, own, 128, \
                                s->group);                                                                             \
                else                                                                                                   \
                    NAME##_head(query + at, keys + head, values + head, row, lengths[r], out + at, s, scale, own,      \
                                s->dim, s->group);                                                                     \
            }                                                                                                          \
    }

DEFINE(float, attend_float32, from_float, to_float)
DEFINE(uint16_t, attend_bfloat16, from_bfloat, to_bfloat)
