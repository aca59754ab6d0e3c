/* Linear layers for a few rows, in float32: out = x * weight^T + bias.
 *
 * With few rows a layer costs what reading its weights costs, so they are read once, in the order in which they lie.
 * They lie in panels: [panels, in, LANES], a panel for each LANES outputs, the last one filled up with zeros. A tile of
 * rows meets a whole panel: each of its sums has a register of its own and takes its terms in the order of `in`. So a
 * row's result does not depend on the rows beside it, bit for bit.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* Rows in a tile: as many as there are registers for. */
#ifdef __AVX512F__
enum { ROWS = 16 };
#else
enum { ROWS = 4 };
#endif

/* A core that waits for memory asks for so many bytes in advance. On Sapphire Rapids the hardware's own prefetch alone
 * takes 1.5 times as long (16 rows). */
enum { AHEAD = 4096 };

typedef struct {
    int64_t rows;    /* of x and out */
    int64_t in;      /* columns of x */
    int64_t out;     /* columns of out */
    int64_t threads; /* that may compute at once */
} Shape;

/* x [in, count] meets one panel, `real` of its rows and `left` of the panel's columns are wanted. `count` is a constant
 * where the caller inlines it so. */
INLINE void tile(const float *x, const float *panel, const float *bias, float *out, const Shape *s, int64_t left,
                 int64_t count, int64_t real)
{
    lanes sums[ROWS], first = {0};
    if (bias)
        memcpy(&first, bias, left * sizeof(float));
    for (int64_t r = 0; r < count; r++)
        sums[r] = first;
    for (int64_t k = 0; k < s->in; k++) {
        lanes weight;
        __builtin_prefetch((const char *)(panel + k * LANES) + AHEAD);
        memcpy(&weight, panel + k * LANES, sizeof weight);
        for (int64_t r = 0; r < count; r++)
            sums[r] += weight * x[k * count + r];
    }
    if (left == LANES)
        for (int64_t r = 0; r < real; r++)
            memcpy(out + r * s->out, &sums[r], sizeof sums[r]);
    else
        for (int64_t r = 0; r < real; r++)
            memcpy(out + r * s->out, &sums[r], left * sizeof(float));
}

/* The same for a number of rows that is known only now: it is filled up to the next tile that the compiler made. */
static void meet(const float *x, const float *panel, const float *bias, float *out, const Shape *s, int64_t left,
                 int64_t count, int64_t real)
{
    if (count == 1)
        tile(x, panel, bias, out, s, left, 1, 1);
    else if (count == 2)
        tile(x, panel, bias, out, s, left, 2, real);
    else if (count == 4)
        tile(x, panel, bias, out, s, left, 4, real);
#ifdef __AVX512F__
    else if (count == 8)
        tile(x, panel, bias, out, s, left, 8, real);
    else
        tile(x, panel, bias, out, s, left, 16, real);
#endif
}

/* x [real, in] to [in, count]: the rows side by side, since in x they may lie a power of two apart, which caches dislike.
 * Piece by piece, so that a piece stays in the nearest cache. */
static void transpose(const float *x, float *to, int64_t in, int64_t count, int64_t real)
{
    enum { PIECE = 32 };
    for (int64_t begin = 0; begin < in; begin += PIECE) {
        const int64_t end = begin + PIECE < in ? begin + PIECE : in;
        for (int64_t r = 0; r < real; r++)
            for (int64_t k = begin; k < end; k++)
                to[k * count + r] = x[r * in + k];
        for (int64_t r = real; r < count; r++)
            for (int64_t k = begin; k < end; k++)
                to[k * count + r] = 0;
    }
}

/* weight [out, in] to panels [panels, in, LANES]: a panel is LANES rows side by side. */
void linear_panels(const float *weight, float *panels, const Shape *s)
{
#pragma omp parallel for schedule(static) num_threads(s->threads) if (s->threads > 1)
    for (int64_t o = 0; o < s->out; o += LANES)
        transpose(weight + o * s->in, panels + o * s->in, s->in, LANES, s->out - o < LANES ? s->out - o : LANES);
}

/* x [rows, in]; weight [panels, in, LANES]; bias [out] or NULL; out [rows, out]; scratch [in, ROWS]. */
void linear_float32(const float *x, const float *weight, const float *bias, float *out, const Shape *s, float *scratch)
{
    for (int64_t begin = 0; begin < s->rows; begin += ROWS) {
        const int64_t real = s->rows - begin < ROWS ? s->rows - begin : ROWS;
        const int64_t count = real <= 2 ? real : real <= 4 ? 4 : real <= 8 ? 8 : 16;
        transpose(x + begin * s->in, scratch, s->in, count, real);
        float *to = out + begin * s->out;
#pragma omp parallel for schedule(static) num_threads(s->threads) if (s->threads > 1)
        for (int64_t o = 0; o < s->out; o += LANES) {
            const int64_t left = s->out - o < LANES ? s->out - o : LANES;
            meet(scratch, weight + o * s->in, bias ? bias + o : NULL, to + o, s, left, count, real);
        }
    }
}
