/* The native kernels of the alignments: a plain C interface, independent of any framework.

   A library has one pass of one KIND, one form of gaps and one REAL, float or double: it takes seconds to build, and
   few users need more than three. Between calls idle threads are kept, and for each library up to 16 MiB of memory in
   every thread that took part; any number of threads may call at the same time. Matrices are row-major; what lies
   outside the lengths is never read as a number, and its derivatives are written as 0. A pair whose temperature is not
   positive and finite, that has a NaN as gap, or a similarity of NaN or +inf inside its lengths, gets NaN; one of
   -5e19 or less forbids the match (a cost is minus a similarity). On x86-64 and AArch64, whatever mode the calling
   thread is in, subnormal numbers count as 0, in results too; but a subnormal temperature counts as positive. */

#ifndef ALIGNMENT_H
#define ALIGNMENT_H

#include <stdint.h>

#ifndef REAL
#define REAL float
#endif

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* kind, and the differentiable parameters of a pair in the order in which `parameters` holds them */
enum {
  ALIGNMENT_LOCAL_ANY = 0,   /* smith_waterman, end "any": gap, temperature */
  ALIGNMENT_LOCAL_MATCH = 1, /* smith_waterman, end "match": gap, temperature */
  ALIGNMENT_AFFINE = 2,      /* smith_waterman_affine: gap_open, gap_extend, temperature */
  ALIGNMENT_GLOBAL = 3,      /* needleman_wunsch: gap, temperature */
  ALIGNMENT_FREE_GAP = 4,    /* free_gap: temperature; a library of ALIGNMENT_GLOBAL has it */
  ALIGNMENT_SOFT_DTW = 5,    /* soft_dtw: temperature. The matrix holds costs, minus similarities; scores are costs */
  ALIGNMENT_GLOBAL_AFFINE = 6, /* needleman_wunsch_affine: gap_open, gap_extend, temperature */
  ALIGNMENT_KINDS
};

#ifndef KIND
#define KIND -1 /* all kinds */
#endif

/* options of affine gaps */
enum { ALIGNMENT_RESTRICT_TURNS = 1, ALIGNMENT_PENALIZE_TURNS = 2 };

/* option of all kinds: refuse the call if a length is outside the matrix, instead of clamping it */
enum { ALIGNMENT_CHECK_LENGTHS = 4 };

/* options of a library built with BY_POSITION: `gap` or gap_open (the first), gap_extend (the second) are read from
   AlignmentCall.gaps, not from `parameters`; such a gap adds nothing along the border of a global alignment */
enum { ALIGNMENT_OPEN_BY_POSITION = 8, ALIGNMENT_EXTEND_BY_POSITION = 16 };

/* options of a library built with BY_AXIS. The first, which all its calls have: each gap is two parameters, the first for
   gaps along a row, the second for gaps along a column. The others, of global alignments: gaps at the ends cost
   nothing if along a row, or down a column */
enum { ALIGNMENT_BY_AXIS = 32, ALIGNMENT_FREE_ROWS = 64, ALIGNMENT_FREE_COLS = 128 };

/* layout: a vector holds different pairs (PAIRS), or rows of one pair (ROWS). CHOOSE: columns of one row where block
   exponents hold, else the faster of the two */
enum { ALIGNMENT_CHOOSE = 0, ALIGNMENT_PAIRS = 1, ALIGNMENT_ROWS = 2 };

enum { ALIGNMENT_OK = 0, ALIGNMENT_OUT_OF_MEMORY = 1, ALIGNMENT_BAD_CALL = 2, ALIGNMENT_BAD_LENGTHS = 3 };

/* A gap by position: what a step into each cell adds, in matrices like the similarity. It replaces the pair's parameter,
   which is then not read. */
typedef struct {
  const REAL *costs;   /* pairs `stride` elements apart */
  int64_t stride;
  const REAL *t_costs; /* the direction of alignment_tangents; NULL: 0 for them */
  int64_t t_stride;
  REAL *d_costs;       /* results of alignment_gradients, or their tangents, pairs x rows x cols; NULL: nobody needs them */
} AlignmentGap;

typedef struct {
  int32_t kind;
  int32_t options;
  int32_t threads; /* at most this many; at least 1 */
  int32_t layout;
  int64_t pairs, rows, cols;
  const REAL *similarity;   /* pairs x rows x cols, pairs `pair_stride` elements apart */
  int64_t pair_stride;
  const int32_t *lengths;   /* pairs x 2, clamped to the matrix or refused; NULL: the whole matrix */
  const REAL *parameters;   /* pairs x (number of parameters) */
  /* GOMP_parallel of the OpenMP library whose threads are to help, because the caller uses them for other work and they
     are awake; NULL: threads of our own */
  void (*openmp)(void (*function)(void *), void *argument, unsigned threads, unsigned flags);
  const AlignmentGap *gaps; /* two: open and extend; only those that the options name are read; NULL: none */
} AlignmentCall;

/* Writes the score of each pair. */
int32_t alignment_score(const AlignmentCall *call, REAL *scores);

/* The same, and the gradient of each score: d_similarity pairs x rows x cols. */
int32_t alignment_marginals(const AlignmentCall *call, REAL *scores, REAL *d_similarity);

/* The same, and the gradients with respect to the parameters: d_parameters like parameters. */
int32_t alignment_gradients(const AlignmentCall *call, REAL *scores, REAL *d_similarity, REAL *d_parameters);

/* The tangents of all results of alignment_gradients in the direction (t_similarity, t_parameters): t_scores is the
   product of gradient and direction, the others are the product of the (symmetric) Hessian and the direction.
   t_parameters NULL: the direction is 0 for them; t_scores and t_d_parameters NULL: nobody needs them. */
int32_t alignment_tangents(const AlignmentCall *call, const REAL *t_similarity, int64_t t_pair_stride,
                           const REAL *t_parameters, REAL *t_scores, REAL *t_d_similarity, REAL *t_d_parameters);

/* The best alignment of each pair, the limit of the smooth ones at temperature 0: scores as above, and in `matches`,
   pairs x rows x cols, 1 where it has a match, else 0. The temperature among the parameters is not looked at. Ties are
   broken from the end backwards: the first end, row by row; in each cell first a start, then the diagonal, the left,
   the cell above; of the states A, R and D the first. Without an alignment the score is 0, of a global pair -inf, of
   ALIGNMENT_SOFT_DTW inf (0 if a length is 0). Nothing matches then, nor where the score is NaN. While it works, a cell
   takes 2 bits, with an affine gap 6, or 7 without ALIGNMENT_RESTRICT_TURNS or with gaps that are free along rows;
   vectors of fewer than 8 lanes take as much as those of 8. */
int32_t alignment_best(const AlignmentCall *call, REAL *scores, uint8_t *matches);

/* How many pairs this library has computed with an exponent per cell in calls that could use block exponents (only
   with ALIGNMENT_CHOOSE): pairs that block exponents cannot hold, and pairs with few columns or no rows. */
int64_t alignment_exact_pairs(void);

/* The helper threads of this library; and make it use those of another library, before its first call. */
void *alignment_helpers(void);
void alignment_share_helpers(void *helpers);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
