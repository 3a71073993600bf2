/* The alignments as tables: the states of a cell, and the choices of each smooth maximum.

   Written by hand after shared/alignments.py; tests/test_parity.py holds the two together, by numbers. So are the steps of
   block_forward.h, block_backward.h, by_position.h and best_cells.h, which know the affine states themselves.

   A value is kept as a weight, exp(value / T): a smooth maximum is then a sum, an addition a product. A new
   alignment needs more than a table here: see docs/contributing.md.

   A cost is added, as the public functions' gaps are: a negative one is dear. */

#ifndef RECURRENCES_H
#define RECURRENCES_H

#include <type_traits>

namespace alignment {

enum class From { start, diagonal, left, up };           // which cell a choice comes from
// what it adds: the similarity, or a gap. turn: from a gap along the row into one along the column;
// turn_right: the reverse; the last two: gaps along the column, where these have costs of their own
enum class Cost { none, match, open, extend, turn, turn_right, open_down, extend_down };
enum class End { anywhere, later_match, last };          // where an alignment may end

/* Whether this library takes gaps by position, and which cost each of the two AlignmentCall.gaps is. */
#ifdef BY_POSITION
constexpr bool POSITIONS = true;
#else
constexpr bool POSITIONS = false;
#endif
constexpr Cost GAP_COSTS[] = {Cost::open, Cost::extend};

/* Whether gaps along the row and along the column have costs of their own, in this library. */
#ifdef BY_AXIS
constexpr bool AXES = true;
#else
constexpr bool AXES = false;
#endif
constexpr int ROWS = 0, COLS = 1;
constexpr int PARAMETERS_PER_GAP = AXES ? 2 : 1;  // the parameters of one gap
constexpr int gap_along(int axis) { return AXES ? axis : 0; }
constexpr Cost OPEN[] = {Cost::open, AXES ? Cost::open_down : Cost::open};
constexpr Cost EXTEND[] = {Cost::extend, AXES ? Cost::extend_down : Cost::extend};
constexpr Cost TURN[] = {Cost::turn_right, Cost::turn};
constexpr int COSTS = AXES ? 8 : 6;

struct Choice {
  From from;
  int state;  // of that cell
  Cost cost;
};

/* The choices of a state are ordered by when they are known: those from the diagonal first (ends are made of
   them), those from the left neighbour, which was computed one step before, last, so that as little as possible waits
   for it. */

/* h(i,j) = smax( h(i-1,j-1) + s, h(i,j-1) + gap, h(i-1,j) + gap, s ) */
template <End ends>
struct LocalLinear {
  static constexpr int states = 1;
  static constexpr int counts[] = {4};
  static constexpr Choice choices[][4] = {{{From::diagonal, 0, Cost::match},
                                           {From::start, 0, Cost::match},
                                           {From::up, 0, OPEN[COLS]},
                                           {From::left, 0, Cost::open}}};
  static constexpr Cost common[] = {Cost::none};  // term shared by all choices of a state
  static constexpr End end = ends;
  static constexpr bool local = true;
};

/* A ends in a match, R in a gap along the row, D in a gap along the column; turn_right
   costs what turn does (by axis, along the row), or is forbidden. A local
   alignment also starts in any cell. */
template <bool is_local>
struct Affine {
  static constexpr int states = 3;
  static constexpr int counts[] = {is_local ? 4 : 3, 3, 3};
  static constexpr Choice choices[][4] = {{{From::diagonal, 0, Cost::none},
                                           {From::diagonal, 1, Cost::none},
                                           {From::diagonal, 2, Cost::none},
                                           {From::start, 0, Cost::none}},
                                          {{From::left, 0, Cost::open},
                                           {From::left, 1, Cost::extend},
                                           {From::left, 2, Cost::turn_right}},
                                          {{From::up, 0, OPEN[COLS]},
                                           {From::up, 1, Cost::turn},
                                           {From::up, 2, EXTEND[COLS]}}};
  static constexpr Cost common[] = {Cost::match, Cost::none, Cost::none};
  static constexpr End end = is_local ? End::later_match : End::last;
  static constexpr bool local = is_local;
};
using LocalAffine = Affine<true>;
using GlobalAffine = Affine<false>;

/* h(i,j) = smax( h(i-1,j-1) + s, h(i,j-1) + gap, h(i-1,j) + gap ); outside the matrix h is the gaps from the corner */
struct GlobalLinear {
  static constexpr int states = 1;
  static constexpr int counts[] = {3};
  static constexpr Choice choices[][4] = {{{From::diagonal, 0, Cost::match},
                                           {From::up, 0, OPEN[COLS]},
                                           {From::left, 0, Cost::open}}};
  static constexpr Cost common[] = {Cost::none};
  static constexpr End end = End::last;
  static constexpr bool local = false;
};

/* h(i,j) = s + smax( h(i-1,j-1), h(i-1,j), h(i,j-1) ), s minus the cost of the cell; outside the matrix
   -infinity, but 0 before the first cell. Cuturi and Blondel 2017, arXiv:1703.01541 */
struct SoftDtw {
  static constexpr int states = 1;
  static constexpr int counts[] = {3};
  static constexpr Choice choices[][4] = {{{From::diagonal, 0, Cost::none},
                                           {From::up, 0, Cost::none},
                                           {From::left, 0, Cost::none}}};
  static constexpr Cost common[] = {Cost::match};
  static constexpr End end = End::last;
  static constexpr bool local = false;
};

/* Whether the matrix holds costs, and the score is the least: the recurrence is of minus both. */
template <class Kind>
constexpr bool IS_COST = std::is_same_v<Kind, SoftDtw>;

/* Whether there are kernels with block exponents: not for gaps by axis; a float's range is too small for costs of
   soft_dtw; their bounds are not proved for gaps by position of a global affine alignment. */
template <class Kind>
constexpr bool HAS_BLOCKS = !AXES && !(IS_COST<Kind> && (POSITIONS || sizeof(REAL) == 4)) &&
                            !(POSITIONS && std::is_same_v<Kind, GlobalAffine>);
/* Whether the weight of a gap differs from cell to cell: in soft_dtw it is that of the match. */
template <class Kind>
constexpr bool GAPS_VARY = POSITIONS || IS_COST<Kind>;

/* The state of a gap along the row, or column. */
template <class Kind>
constexpr int gap_state(int axis) {
  return Kind::states > 1 ? 1 + axis : 0;
}

/* How many gaps of a kind may be given by position. */
template <class Kind>
constexpr int GAPS = POSITIONS ? (Kind::states > 1 ? 2 : 1) : 0;

/* Number of choices of the first state that come from the diagonal: they are the first ones. */
template <class Kind>
constexpr int diagonal_choices() {
  int count = 0;
  for (int c = 0; c < Kind::counts[0]; ++c) count += Kind::choices[0][c].from == From::diagonal;
  return count;
}

/* The number of ways in which an alignment may end in a cell. */
template <class Kind>
constexpr int ends() {
  return Kind::end == End::later_match ? diagonal_choices<Kind>() : Kind::states;
}

/* Choices of all states before state k. */
template <class Kind>
constexpr int choices_before(int k) {
  int count = 0;
  for (int i = 0; i < k; ++i) count += Kind::counts[i];
  return count;
}

}  // namespace alignment

#endif
