/* Solves pairs: their constants, the passes over their matrices, their results. */

#ifndef SOLVE_H
#define SOLVE_H

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "batching.h"
#include "sweep.h"

namespace alignment {

inline Size size_of(const AlignmentCall &call, int64_t pair) {
  if (!call.lengths) return {call.rows, call.cols};
  auto inside = [](int64_t n, int64_t most) { return std::min(std::max<int64_t>(n, 0), most); };
  return {inside(call.lengths[2 * pair], call.rows), inside(call.lengths[2 * pair + 1], call.cols)};
}

constexpr double LOG2_E = 1.4426950408889634074, LN_2 = 0.69314718055994530942;

// The inputs and results of a call. Results that a pass does not compute are null.
struct Job {
  const AlignmentCall &call;
  const Real *t_similarity;
  int64_t t_pair_stride;
  const Real *t_parameters;
  Real *scores, *d_similarity, *d_parameters;
};

struct Parameters {
  double open[2], extend[2], temperature;  // of gaps along the row, and along the column
};

// Gaps and temperatures are clamped; invalid ones stay invalid.
inline double clamped(double gap) { return gap < LOWEST ? LOWEST : gap > LARGEST_GAP ? LARGEST_GAP : gap; }

inline double clamped_temperature(double t) {
  return t > 0 && t <= __DBL_MAX__ ? std::min(std::max(t, COLDEST), HOTTEST) : t;
}

inline bool has_gap(int kind) { return kind != ALIGNMENT_FREE_GAP && kind != ALIGNMENT_SOFT_DTW; }
inline bool is_affine(int kind) { return kind == ALIGNMENT_AFFINE || kind == ALIGNMENT_GLOBAL_AFFINE; }
inline bool is_global(int kind) { return kind >= ALIGNMENT_GLOBAL; }

inline int parameter_count(int kind) { return 1 + PARAMETERS_PER_GAP * (is_affine(kind) ? 2 : has_gap(kind)); }

// Whether end gaps along an axis cost nothing.
inline bool is_free(const AlignmentCall &call, int axis) { return AXES && (call.options & (ALIGNMENT_FREE_ROWS << axis)); }

// Whether a gap is by position. gap: 0 for open, 1 for extend.
inline bool is_by_position(const AlignmentCall &call, int gap) {
  return POSITIONS && (call.options & (ALIGNMENT_OPEN_BY_POSITION << gap));
}

// A gap by position is 0 here.
inline Parameters parameters_of(const AlignmentCall &call, const Real *values, int64_t pair) {
  const int count = parameter_count(call.kind);
  const Real *of_pair = values + pair * count;
  Parameters p{};
  p.temperature = of_pair[count - 1];
  for (int axis = 0; axis < 2 && has_gap(call.kind); ++axis) {
    if (!is_by_position(call, 0)) p.open[axis] = of_pair[gap_along(axis)];
    p.extend[axis] = p.open[axis];
    if (is_affine(call.kind)) p.extend[axis] = is_by_position(call, 1) ? 0 : of_pair[PARAMETERS_PER_GAP + gap_along(axis)];
  }
  return p;
}

// By its bits: to arithmetic a subnormal number is 0 here, and a temperature of 0 is not valid.
inline bool is_positive_subnormal(Real x) {
  Int bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits > 0 && bits < Int(1) << FRACTION_BITS;
}

inline Parameters clamped_parameters_of(const AlignmentCall &call, int64_t pair) {
  Parameters p = parameters_of(call, call.parameters, pair);
  const int count = parameter_count(call.kind);
  const bool coldest = is_positive_subnormal(call.parameters[pair * count + count - 1]);
  for (double *gap : {&p.open[0], &p.open[1], &p.extend[0], &p.extend[1]}) *gap = clamped(*gap);
  p.temperature = coldest ? COLDEST : clamped_temperature(p.temperature);
  return p;
}

// Derivatives of gaps that are one parameter for both axes have been added up in the first.
inline void put_parameters(int kind, Real *values, int64_t pair, const Parameters &p) {
  const int count = parameter_count(kind);
  Real *of_pair = values + pair * count;
  of_pair[count - 1] = Real(p.temperature);
  for (int axis = 0; axis < PARAMETERS_PER_GAP && has_gap(kind); ++axis) {
    of_pair[axis] = Real(p.open[axis]);
    if (is_affine(kind)) of_pair[PARAMETERS_PER_GAP + axis] = Real(p.extend[axis]);
  }
}

inline double bits_of(double amount, double temperature) {
  return std::min(std::max(amount * (LOG2_E / temperature), -double(LARGEST_EXPONENT)), double(LARGEST_EXPONENT));
}

inline void set_cost(Value &value, int lane, double amount, double t_amount, Pass pass, double temperature, double t_ratio) {
  double bits = bits_of(amount, temperature);
  double whole = std::nearbyint(bits), part = bits - whole;
  double m = std::exp2(part);
  if (m < 1) m *= 2, whole -= 1, part += 1;
  value.m[lane] = Real(m);
  value.e[lane] = Real(whole);
  value.x[lane] = pass == Pass::tangents ? Real(t_amount / temperature - (amount / temperature) * t_ratio) : Real(part);
}

inline bool is_valid(const Parameters &p) {
  const double gaps = p.open[0] + p.open[1] + p.extend[0] + p.extend[1];  // clamped, so NaN only if one is
  return p.temperature > 0 && p.temperature <= double(__DBL_MAX__) && gaps == gaps;
}

// One lane of the kernels' constants.
inline void set_lane(Lanes &lanes, int lane, const Job &job, int64_t pair, Pass pass) {
  const AlignmentCall &call = job.call;
  Parameters p = clamped_parameters_of(call, pair), t{};
  if (job.t_parameters) t = parameters_of(call, job.t_parameters, pair);
  Size size = size_of(call, pair);
  if (!is_valid(p)) p = {{}, {}, 1};  // its results become NaN

  lanes.rows[lane] = Int(size.rows);
  lanes.cols[lane] = Int(size.cols);
  lanes.similarity[lane] = call.similarity + pair * call.pair_stride;
  lanes.t_similarity[lane] = job.t_similarity ? job.t_similarity + pair * job.t_pair_stride : nullptr;
  lanes.d_similarity[lane] = job.d_similarity ? job.d_similarity + pair * call.rows * call.cols : nullptr;

  double scale = LOG2_E / p.temperature, ratio = t.temperature / p.temperature;
  lanes.scale_high[lane] = Real(scale);
  lanes.scale_low[lane] = Real(scale - double(Real(scale)));
  lanes.inverse_t[lane] = Real(1 / p.temperature);
  lanes.t_ratio[lane] = Real(ratio);

  const bool turn_is_open = call.options & ALIGNMENT_PENALIZE_TURNS;
  auto set = [&](Cost cost, double amount, double t_amount) {
    set_cost(lanes.costs[int(cost)], lane, amount, t_amount, pass, p.temperature, ratio);
  };
  for (int axis = 0; axis < PARAMETERS_PER_GAP; ++axis) {
    set(OPEN[axis], p.open[axis], t.open[axis]);
    set(EXTEND[axis], p.extend[axis], t.extend[axis]);
    lanes.gap_tangent[axis][lane] = Real(t.extend[axis] / p.temperature - (p.extend[axis] / p.temperature) * ratio);
    double bits = bits_of(p.extend[axis], p.temperature);
    lanes.gap_whole[axis][lane] = Real(std::nearbyint(bits));
    lanes.gap_part[axis][lane] = Real(bits - std::nearbyint(bits));
  }
  for (int axis = 0; axis < 2; ++axis) {
    set(TURN[axis], (turn_is_open ? p.open : p.extend)[axis], (turn_is_open ? t.open : t.extend)[axis]);
    lanes.is_free[axis] = is_free(call, axis);
  }

  if constexpr (POSITIONS) {
    for (int g = 0; g < 2; ++g) {
      LaneGap &gap_of_lane = lanes.gaps[g];
      gap_of_lane.by_position = is_by_position(call, g);
      if (!gap_of_lane.by_position) continue;
      const AlignmentGap &gap = call.gaps[g];
      gap_of_lane.costs[lane] = gap.costs + pair * gap.stride;
      gap_of_lane.t_costs[lane] = gap.t_costs ? gap.t_costs + pair * gap.t_stride : nullptr;
      gap_of_lane.d_costs[lane] = gap.d_costs ? gap.d_costs + pair * call.rows * call.cols : nullptr;
    }
    lanes.turn[0] = turn_is_open ? Cost::open : Cost::extend;
    lanes.turn[1] = call.options & ALIGNMENT_RESTRICT_TURNS ? Cost::none : lanes.turn[0];
  }
}

// exp(score / T) = m * 2^e of a finished lane (or of all lanes of a pair), before it is rounded to Total or PairTotal.
struct ScoreWeight {
  double m, e, tangent;
  bool exists;
  double log2() const { return std::log2(m) + e; }
  double log() const { return log2() * LN_2; }
};

inline ScoreWeight score_weight_of(double m, double e, double mt, double temperature) {
  // an alignment with a forbidden match scores less than any without
  ScoreWeight score_weight{m, e, mt / m, m > 0 && e > -double(LARGEST_EXPONENT) / 2};
  // one that needs a forbidden gap is none either
  score_weight.exists = score_weight.exists && temperature * score_weight.log() > double(FORBIDDEN);
  return score_weight.exists ? score_weight : ScoreWeight{1, 0, 0, false};
}

inline void set_total(Total &total, int lane, const ScoreWeight &score_weight) {
  // m as a fraction, unless the exponent is too large for a float to hold exactly: then both stay as they are
  double shift = std::floor(std::log2(score_weight.m)), e = score_weight.e + shift, m = score_weight.m * std::exp2(-shift);
  if (double(Real(e)) - score_weight.e != shift) e = score_weight.e, m = score_weight.m;
  total.inverse_m[lane] = Real(1 / m);
  // without an alignment -NOTHING, which makes the shares of all its ends 0
  total.e[lane] = score_weight.exists ? Real(e) : -NOTHING;
  total.log2_m[lane] = Real(std::log2(m));
  total.tangent[lane] = Real(score_weight.tangent);
  total.tangent_rest[lane] = Real(score_weight.tangent - double(Real(score_weight.tangent)));
}

/* Writes zeros outside the lengths and, if value_inside is not 0, value_inside inside them. */
inline void fill_rest(Real *matrix, const Size &size, int64_t rows, int64_t cols, Real value_inside) {
  for (int64_t i = 0; i < rows; ++i) {
    int64_t kept = i < size.rows ? size.cols : 0;
    if (value_inside != 0) std::fill(matrix + i * cols, matrix + i * cols + kept, value_inside);
    std::fill(matrix + i * cols + kept, matrix + (i + 1) * cols, Real(0));
  }
}

// Sums over the cells of a pair.
struct Summed {
  double cost[COSTS], cost_tangent[COSTS], entropy;
};

// How many gap positions cost `open`, and how many `extend`: turns cost what the call's options say.
inline Parameters gaps_of(const AlignmentCall &call, const double (&cost)[COSTS]) {
  Parameters gaps{};
  for (int axis = 0; axis < PARAMETERS_PER_GAP; ++axis) {
    gaps.open[axis] = cost[int(OPEN[axis])], gaps.extend[axis] = cost[int(EXTEND[axis])];
  }
  for (int axis = 0; axis < 2; ++axis) {
    const double turns = cost[int(TURN[axis])];
    (call.options & ALIGNMENT_PENALIZE_TURNS ? gaps.open : gaps.extend)[gap_along(axis)] += turns;
  }
  return gaps;
}

// The cost of these gaps; 0 for none, even times an infinite tangent.
inline double cost_of(const Parameters &gaps, const Parameters &p) {
  double sum = 0;
  for (int axis = 0; axis < PARAMETERS_PER_GAP; ++axis) {
    if (gaps.open[axis] != 0) sum += gaps.open[axis] * p.open[axis];
    if (gaps.extend[axis] != 0) sum += gaps.extend[axis] * p.extend[axis];
  }
  return sum;
}

// The gaps of a global pair without a cell, of which one side is empty.
inline Parameters only_gaps(const AlignmentCall &call, const Size &size) {
  Parameters gaps{};
  for (int axis = 0; axis < 2 && is_global(call.kind) && has_gap(call.kind); ++axis) {
    const double count = double(axis == ROWS ? size.cols : size.rows);
    if (count == 0 || is_free(call, axis)) continue;
    const int at = gap_along(axis);
    gaps.open[at] = is_affine(call.kind) ? 1 : count, gaps.extend[at] = is_affine(call.kind) ? count - 1 : 0;
  }
  return gaps;
}

inline void finish_pair(const Job &job, Pass pass, int64_t pair, ScoreWeight score_weight, bool bad, const Summed &sums) {
  const AlignmentCall &call = job.call;
  Parameters p = clamped_parameters_of(call, pair), t{};
  if (job.t_parameters) t = parameters_of(call, job.t_parameters, pair);
  Size size = size_of(call, pair);
  const bool is_cost = call.kind == ALIGNMENT_SOFT_DTW, global = is_global(call.kind);
  const bool tangents = pass == Pass::tangents;
  bool invalid = bad || !is_valid(p);
  double score = 0, t_score = 0;
  Parameters d{};

  if (size.rows == 0 || size.cols == 0) {  // no cell: a global alignment is all gaps
    const Parameters gaps = only_gaps(call, size);
    score = cost_of(gaps, p);
    if (score > double(FORBIDDEN)) {
      t_score = cost_of(gaps, t);
      if (!tangents) d = gaps;
    } else {
      score = -std::numeric_limits<double>::infinity();
    }
    invalid = !is_valid(p);
  } else if (score_weight.exists) {
    double value = score_weight.log();
    score = p.temperature * value;
    t_score = p.temperature * score_weight.tangent + t.temperature * value;
    d = gaps_of(call, tangents ? sums.cost_tangent : sums.cost);
    if (tangents) {  // of value - P s / T - N gap / T (P: marginals, N: gaps): the tangents of all but P and N cancel
      d.temperature = -(sums.entropy + cost_of(d, p) / p.temperature);
    } else {
      d.temperature = LN_2 * sums.entropy;
    }
  } else if (global) {
    score = -std::numeric_limits<double>::infinity();
  }
  if (is_cost) score = 0 - score, t_score = 0 - t_score, d.temperature = 0 - d.temperature;
  const double nan = std::nan("");
  if (invalid) score = t_score = nan, d = {{nan, nan}, {nan, nan}, nan};
  if (is_by_position(call, 0)) d.open[0] = 0;
  if (is_by_position(call, 1)) d.extend[0] = 0;
  if (job.scores) job.scores[pair] = Real(tangents ? t_score : score);
  if (job.d_parameters) put_parameters(call.kind, job.d_parameters, pair, d);
  auto finish_matrix = [&](Real *matrices) {
    if (!matrices) return;
    fill_rest(matrices + pair * call.rows * call.cols, size, call.rows, call.cols, invalid ? Real(nan) : Real(0));
  };
  finish_matrix(job.d_similarity);
  if constexpr (POSITIONS) {
    for (int g = 0; g < 2; ++g) {
      if (is_by_position(call, g) && (pass == Pass::gradients || tangents)) finish_matrix(call.gaps[g].d_costs);
    }
  }
}

// A carried row of fractions and exponents with the fractions' logarithms: `count` states.
inline void with_logarithms(const Vec *from, Vec *to, Int count) {
  for (Int k = 0; k < count; ++k) to[3 * k] = from[2 * k], to[3 * k + 1] = from[2 * k + 1], to[3 * k + 2] = log2_of(from[2 * k]);
}

inline void with_logarithms(const Real *from, Real *to, Int count) {
  for (Int k0 = 0; k0 < count; k0 += LANES) {
    Vec m = splat(1);
    const int some = int(std::min<Int>(LANES, count - k0));
    for (int k = 0; k < some; ++k) m[k] = from[2 * (k0 + k)];
    const Vec x = log2_of(m);
    for (int k = 0; k < some; ++k) {
      to[3 * (k0 + k)] = from[2 * (k0 + k)], to[3 * (k0 + k) + 1] = from[2 * (k0 + k) + 1], to[3 * (k0 + k) + 2] = x[k];
    }
  }
}

// Most vectors of records in a block of PairsSideBySide (which has at least 4 rows), to fit a cache level.
constexpr Int BLOCK_VECTORS = 6144;
// Maximum number of vectors that are staged once for both passes.
constexpr size_t STAGED_VECTORS = 32768;

// Solves the pairs of one task: pairs side by side, or one pair with its rows side by side.
template <class Kind, Pass pass, class L>
void solve(const Job &job, const int64_t *pairs, int pair_count) {
  constexpr bool recording = pass != Pass::score;
  constexpr Pass first_pass = pass == Pass::tangents ? Pass::tangents : Pass::score;
  constexpr int width = Kind::states * NUMBERS<pass>, first_width = Kind::states * NUMBERS<first_pass>;
  constexpr bool tangents = pass == Pass::tangents;
  using Cell = typename L::Cell;
  constexpr size_t cells_per_vector = sizeof(Vec) / sizeof(Cell);
  auto vectors = [](size_t cells) { return (cells + cells_per_vector - 1) / cells_per_vector; };

  Lanes lanes{};
  Int rows = 0, cols = 0;
  for (int l = 0; l < LANES; ++l) {
    int64_t pair = pairs[L::rows_in_lanes ? 0 : std::min(l, pair_count - 1)];
    set_lane(lanes, l, job, pair, pass);
    if (!L::rows_in_lanes && l >= pair_count) lanes.rows[l] = lanes.cols[l] = 0;
    if (lanes.cols[l] == 0) lanes.rows[l] = 0;
    if (lanes.rows[l] > 0) cols = std::max(cols, lanes.cols[l]);
    rows = std::max(rows, lanes.rows[l]);
  }
  if (is_affine(job.call.kind) && (job.call.options & ALIGNMENT_RESTRICT_TURNS)) {
    lanes.costs[int(Cost::turn_right)] = nothing();
  }

  // Sums over the cells of row i of a pair are kept in slot i % LANES, which in RowsSideBySide is the row's lane, and
  // the slots are added up in one order: so both layouts give the same result to the last bit.
  constexpr int slots = L::rows_in_lanes ? 1 : LANES;
  ScoreWeight score_weight[LANES] = {};
  bool bad[LANES] = {};
  SweepSums gathered[slots] = {};
  if (rows > 0) {
    const Int steps = L::steps(cols);
    constexpr int record = Record<Kind, pass>::size;
    Int sweeps = 1;  // of a block
    if (recording && !L::rows_in_lanes) sweeps = std::min<Int>(std::max<Int>(BLOCK_VECTORS / (steps * record), 4), rows);
    const Int block_rows = sweeps * L::rows, blocks = (rows + block_rows - 1) / block_rows;
    const size_t row_cells = size_t(cols + 1) * width, first_cells = size_t(cols + 1) * first_width;
    const size_t sweep_vectors = size_t(steps) * sweeps;
    // vectors staged for the first pass are kept for the second if they are few
    const size_t all_vectors = size_t(steps) * sweeps * blocks * STAGED<Kind>;
    const bool staged_once = recording && all_vectors * (tangents ? 2 : 1) <= STAGED_VECTORS;
    const size_t staged_vectors = staged_once ? all_vectors : sweep_vectors * STAGED<Kind>;

    Buffer row_memory(vectors(row_cells));
    Buffer kept_memory(recording ? vectors(first_cells) * blocks : 0);
    Buffer staged_memory(staged_vectors), t_staged_memory(tangents ? staged_vectors : 0);
    Cell *row = reinterpret_cast<Cell *>(row_memory.data());
    Vec *staged = staged_memory.data(), *t_staged = t_staged_memory.data();
    auto kept = [&](Int block) { return reinterpret_cast<Cell *>(kept_memory.data() + vectors(first_cells) * block); };

    Buffer end_entropy_memory(sweeps);
    Vec *end_entropy = end_entropy_memory.data();
    Mask bad_lanes{};
    auto offset_of = [&](Int i, int l) {
      return (i + (L::rows_in_lanes ? l : 0)) * job.call.cols - (L::rows_in_lanes ? l : 0);
    };
    const int64_t size = job.call.rows * job.call.cols;
    auto stage_matrix = [&](const Real *const (&matrix)[LANES], Int i, const Extent &where, Vec *to, auto clean) {
      const Real *from[LANES];
      for (int l = 0; l < LANES; ++l) from[l] = matrix[l] + offset_of(i, l);
      gather<STAGED<Kind>>(matrix, size, from, where, steps, to, clean);
    };
    auto stage = [&](Int i, const Extent &where, Vec *to, Vec *t_to) {
      auto as_it_is = [](Vec t) { return t; };
      auto as_similarity = [](Vec s) { return IS_COST<Kind> ? -s : s; };
      stage_matrix(lanes.similarity, i, where, to, [&](Vec s) { return clean(as_similarity(s), bad_lanes); });
      if constexpr (tangents) stage_matrix(lanes.t_similarity, i, where, t_to, as_similarity);
      for (int g = 0; g < GAPS<Kind>; ++g) {
        const LaneGap &gap = lanes.gaps[g];
        if (!gap.by_position) continue;
        stage_matrix(gap.costs, i, where, to + 1 + g, [&](Vec cost) { return clean_gap(cost, bad_lanes); });
        if constexpr (tangents) {
          if (gap.t_costs[0]) {
            stage_matrix(gap.t_costs, i, where, t_to + 1 + g, as_it_is);
          } else {
            for (Int t = 0; t < steps; ++t) t_to[t * STAGED<Kind> + 1 + g] = splat(0);
          }
        }
      }
    };
    auto write_matrix = [&](const Vec *from, Real *const (&matrix)[LANES], Int i, const Extent &where) {
      Real *to[LANES];
      for (int l = 0; l < LANES; ++l) to[l] = matrix[l] + offset_of(i, l);
      scatter<STAGED<Kind>>(from, matrix, size, to, where, steps);
    };

    // forwards: the score, and the checkpoints
    for (Int c = -1; c < cols; ++c) {
      States<Kind> states = border<Kind, first_pass>(lanes, splat(Real(c + 1)), ROWS);
      Cell *to = place<Kind, first_pass>(row, c);
      for (int k = 0; k < Kind::states; ++k) {
        const Vec numbers[] = {states.of[k].m, states.of[k].e, states.of[k].x};
        for (int n = 0; n < NUMBERS<first_pass>; ++n) {
          if constexpr (L::rows_in_lanes) {
            to[k * NUMBERS<first_pass> + n] = numbers[n][0];
          } else {
            to[k * NUMBERS<first_pass> + n] = numbers[n];
          }
        }
      }
    }
    Ending ending[slots];
    std::fill(ending, ending + slots, Ending{splat(0), splat(NOTHING), splat(0), splat(0), splat(NOTHING), splat(0)});
    for (Int i = 0; i < rows; i += L::rows) {
      if (recording && i % block_rows == 0) std::copy(row, row + first_cells, kept(i / block_rows));
      const size_t offset = staged_once ? size_t(i) / L::rows * steps * STAGED<Kind> : 0, t_offset = tangents ? offset : 0;
      Extent where = extent<Kind, L::rows_in_lanes>(lanes, i);
      stage(i, where, staged + offset, t_staged + t_offset);
      forward_sweep<Kind, first_pass, false, L>(lanes, i, cols, where, staged + offset, t_staged + t_offset, row,
                                                nullptr, nullptr, ending[i % slots], end_entropy[0]);
    }
    Total total;
    for (int p = 0; p < (L::rows_in_lanes ? 1 : LANES); ++p) {
      double m = 0, e = double(NOTHING), mt = 0;
      for (int s = 0; s < LANES; ++s) e = std::max(e, double(L::rows_in_lanes ? ending[0].e[s] : ending[s % slots].e[p]));
      for (int s = 0; s < LANES; ++s) {
        const Ending &part = ending[s % slots];
        const int lane = L::rows_in_lanes ? s : p;
        double scale = std::exp2(double(part.e[lane]) - e);
        m += double(part.m[lane]) * scale;
        mt += (double(part.mt[lane]) + double(part.origin[lane]) * double(part.m[lane])) * scale;
        if (L::rows_in_lanes || s == p) bad[p] = bad[p] || bad_lanes[s];
      }
      const int64_t pair = pairs[std::min(p, pair_count - 1)];  // there may be fewer than lanes
      score_weight[p] = score_weight_of(m, e, mt, clamped_parameters_of(job.call, pair).temperature);
      for (int l = 0; l < LANES; ++l) {
        if (L::rows_in_lanes || l == p) set_total(total, l, score_weight[p]);
      }
    }

    if constexpr (recording) {
      constexpr int flow_width = Kind::states * (tangents ? 2 : 1);
      Buffer below_memory(vectors(size_t(cols + 1) * flow_width)), record_memory(sweep_vectors * record);
      Cell *below = reinterpret_cast<Cell *>(below_memory.data());
      std::fill(below, below + size_t(cols + 1) * flow_width, Cell{});
      for (Int block = blocks - 1; block >= 0; --block) {
        const Int first = block * block_rows, last = std::min(first + block_rows, rows);
        const Cell *from = kept(block);
        if constexpr (pass != Pass::gradients) {
          std::copy(from, from + row_cells, row);
        } else {
          with_logarithms(from, row, (cols + 1) * Kind::states);
        }
        auto place_of = [&](Int i) { return size_t(i - first) / L::rows; };
        auto staged_at = [&](Int i) { return (staged_once ? size_t(i) / L::rows : place_of(i)) * steps * STAGED<Kind>; };
        for (Int i = first; i < last; i += L::rows) {
          Vec *own = staged + staged_at(i), *t_own = t_staged + (tangents ? staged_at(i) : 0);
          Extent where = extent<Kind, L::rows_in_lanes>(lanes, i);
          if (!staged_once) stage(i, where, own, t_own);
          Ending unused{};
          forward_sweep<Kind, pass, true, L>(lanes, i, cols, where, own, t_own, row,
                                            record_memory.data() + place_of(i) * steps * record, &total, unused,
                                            end_entropy[place_of(i)]);
        }
        for (Int i = first + (last - first - 1) / L::rows * L::rows; i >= first; i -= L::rows) {
          Vec *own = staged + staged_at(i), *t_own = t_staged + (tangents ? staged_at(i) : 0);
          Extent where = extent<Kind, L::rows_in_lanes>(lanes, i);
          backward_sweep<Kind, pass, L>(i, cols, where, record_memory.data() + place_of(i) * steps * record, own,
                                        t_own, lanes, below, end_entropy[place_of(i)], gathered[i % slots]);
          const Vec *results = tangents ? t_own : own;
          write_matrix(results, lanes.d_similarity, i, where);
          if constexpr (pass != Pass::marginals) {
            for (int g = 0; g < GAPS<Kind>; ++g) {
              const LaneGap &gap = lanes.gaps[g];
              if (gap.by_position && gap.d_costs[0]) write_matrix(results + 1 + g, gap.d_costs, i, where);
            }
          }
        }
      }
      // the gradient that reached the row outside: gaps along it
      if (!Kind::local && !IS_COST<Kind> && !lanes.is_free[ROWS]) {
        for (Int c = 0; c < cols; ++c) {
          const Cell *flow = below + (int64_t(c) + 1) * flow_width + gap_state<Kind>(ROWS) * (tangents ? 2 : 1);
          auto add = [&](Cost cost, double gaps) {
            for (int l = 0; l < (L::rows_in_lanes ? 1 : LANES); ++l) {
              gathered[0].cost[int(cost)][l] += double(as_vector(flow[0])[l]) * gaps;
              if (tangents) gathered[0].cost_tangent[int(cost)][l] += double(as_vector(flow[1])[l]) * gaps;
            }
          };
          add(OPEN[ROWS], Kind::states > 1 ? 1 : double(c + 1));
          if (Kind::states > 1) add(EXTEND[ROWS], double(c));
        }
      }
    }
  }

  for (int p = 0; p < pair_count; ++p) {
    Summed sums{};
    for (int s = 0; s < LANES; ++s) {
      const SweepSums &part = gathered[s % slots];
      const int lane = L::rows_in_lanes ? s : p;
      for (int c = 0; c < COSTS; ++c) {
        sums.cost[c] += part.cost[c][lane];
        sums.cost_tangent[c] += part.cost_tangent[c][lane];
      }
      sums.entropy += part.entropy[lane];
    }
    finish_pair(job, pass, pairs[p], score_weight[p], bad[p], sums);
  }
}

}  // namespace alignment

#endif
