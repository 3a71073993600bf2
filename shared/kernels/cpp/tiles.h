/* Solves a pair with block exponents, if its numbers allow that.

   A pair is cut into strips of columns, and in the backward sweep also into blocks of rows: the forward sweep keeps the row
   above each block, from which the backward sweep computes the block again, with all that it needs of its cells. A pair
   that is one tile is computed once. */

#ifndef TILES_H
#define TILES_H

#include <memory>

#include "block_backward.h"
#include "block_forward.h"
#include "by_position.h"
#include "solve.h"

namespace alignment {

/* A tile is at most so high that what it keeps stays in the level-2 cache. */
constexpr Int KEPT_VECTORS = (512 << 10) / VECTOR_BYTES;

/* Rounding error of the marginals' tangents, relative to an origin; and the largest error that is accepted, relative to
   the largest tangent. */
constexpr double ROUNDING_OF_ORIGIN = IS_FLOAT ? 6e-8 : 1e-16, MOST_OF_TANGENTS = IS_FLOAT ? 1e-5 : 2e-14;

/* Used by `finish`. ERROR_OF_WEIGHTS: relative error of the expected log weight of an alignment. ERROR_OF_GAPS: what is
   added to it, times the fraction of steps that are gaps, as rounding errors accumulate along an alignment and differ
   between matches and gaps. LARGEST_CORRECTION: a larger common relative error is not corrected. LEAST_STEPS: nor is
   that of a local alignment with fewer expected steps. MOST_OF_GRADIENT: the largest relative error that is accepted. */
constexpr double ERROR_OF_WEIGHTS = IS_FLOAT ? 1e-7 : 4e-16, ERROR_OF_GAPS = IS_FLOAT ? 3e-6 : 6e-15;
constexpr double LARGEST_CORRECTION = IS_FLOAT ? 1e-5 : 2e-14, LEAST_STEPS = 64;
constexpr double MOST_OF_GRADIENT = IS_FLOAT ? 1e-4 : 1e-11;

/* Memory that is kept from use to use: of a thread, or of a pair that threads share. */
class Scratch {
 public:
  /* Whatever was taken before is given back. */
  void begin(size_t bytes) {
    if (bytes > size_) {
      memory_.reset(), size_ = 0;
      memory_.reset(static_cast<char *>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
      if (!memory_) throw std::bad_alloc();
      size_ = bytes;
    }
    used_ = 0;
  }
  template <class T>
  T *take(size_t count) {
    T *taken = reinterpret_cast<T *>(memory_.get() + used_);
    used_ += bytes_of<T>(count);
    return taken;
  }
  template <class T>
  static size_t bytes_of(size_t count) {
    return (count * sizeof(T) + VECTOR_BYTES - 1) / VECTOR_BYTES * VECTOR_BYTES;
  }
  /* Frees the memory if it is more than a thread should keep. */
  void end() {
    if (size_ > (size_t(8) << 20)) memory_.reset(), size_ = 0;
  }

 private:
  struct Free {
    void operator()(char *memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  size_t size_ = 0, used_ = 0;
};

/* False if block exponents cannot hold the pair's costs. */
template <class Kind>
bool set_weights(PairWeights<Kind> &weights, const Job &job, const Parameters &p) {
  const double bits_per_unit = LOG2_E / p.temperature;
  weights.match = MatchWeight(bits_per_unit);
  const bool turn_is_open = job.call.options & ALIGNMENT_PENALIZE_TURNS;
  double bits[COSTS] = {};
  bool held = true;
  auto set = [&](Cost cost, double amount) {
    bits[int(cost)] = amount * bits_per_unit;
    held = held && std::abs(bits[int(cost)]) <= LARGEST_COST;
    weights.cost[int(cost)] = splat(Real(std::exp2(bits[int(cost)])));
  };
  set(Cost::open, p.open[ROWS]);
  set(Cost::extend, p.extend[ROWS]);
  set(Cost::turn, (turn_is_open ? p.open : p.extend)[ROWS]);
  if constexpr (POSITIONS) {
    weights.turn_is_open = turn_is_open, weights.turn_right_is_allowed = !(job.call.options & ALIGNMENT_RESTRICT_TURNS);
    for (double &cost : bits) cost = 0;  // known in each band
  }
  weights.cost[int(Cost::turn_right)] =
      job.call.options & ALIGNMENT_RESTRICT_TURNS ? splat(0) : weights.cost[int(Cost::turn)];
  // a match that counts as 0 must be negligible beside two gaps around it: the proof needs open <= extend
  if (!Kind::local && Kind::states > 1 && p.open[ROWS] > p.extend[ROWS]) return false;
  if (!held) return false;
  weights.inverse_t = splat(Real(1 / p.temperature));
  double first = 0, further = 0;
  unrolled<Kind::states>([&](auto s) {
    first = std::max(first, -bits[int(cost_between<Kind>(From::up, s))]);
    if (s == DOWN<Kind>) further = std::max(0.0, -bits[int(cost_between<Kind>(From::up, s))]);
  });
  weights.most_rows = 0;
  for (int rows = 1; rows <= MOST_ROWS; ++rows) {
    weights.decay[rows] = first + (rows - 1) * further;
    if ((rows & (rows - 1)) == 0 && weights.decay[rows] <= MOST_DECAY) weights.most_rows = rows;
  }
  return true;
}

/* The weight of n gap positions along the matrix's border, for any n: fraction and exponent. */
class BorderGaps {
 public:
  /* Bits of the first gap and of each further one. */
  BorderGaps(double first, double further)
      : further_(further), once_(first - further), whole_(Real(std::nearbyint(further))),
        part_(Real(further - std::nearbyint(further))), once_whole_(Real(std::nearbyint(once_))),
        once_fraction_(Real(std::exp2(once_ - std::nearbyint(once_)))) {}
  double bits(double gaps) const { return once_ + gaps * further_; }
  void weights(Vec gaps, Vec &m, Vec &e) const {
    const Vec more = rounded_product(gaps, splat(part_));
    const Mask any = gaps > splat(0);
    m = power_of_fraction(fma(gaps, splat(part_), -more)) * (any ? splat(once_fraction_) : splat(1));
    e = fma(gaps, splat(whole_), more) + (any ? splat(once_whole_) : splat(0));
  }

 private:
  double further_, once_;
  Real whole_, part_, once_whole_, once_fraction_;
};

/* How many strips a pair is cut into. */
inline Int strips_of(int64_t cols) { return Int((cols + STRIP_VECTORS * LANES - 1) / (STRIP_VECTORS * LANES)); }

/* One pair. Up to `threads` threads share its strips: they call `work` until the pair is through. */
template <class Kind, Pass pass>
class Tiles {
  static constexpr bool tangents = pass == Pass::tangents, recording = pass != Pass::score;
  static constexpr Pass first_pass = tangents ? pass : Pass::score;
  static constexpr bool has_border = !Kind::local && !IS_COST<Kind>;  // alignments may come along the border by gaps
  using K = Kept<Kind, pass>;
  using Down = ForwardColumns<Kind, tangents>;
  using Up = BackwardColumns<Kind, pass>;

 public:
  /* Takes memory for what passes between strips from `shared`, which must outlive this. */
  Tiles(const Job &job, int64_t pair, int64_t threads, Scratch &shared)
      : job_(job), pair_(pair), size_(size_of(job.call, pair)) {
    const AlignmentCall &call = job_.call;
    rows_ = Int(size_.rows);
    vectors_ = Int((size_.cols + LANES - 1) / LANES);
    strips_ = strips_of(size_.cols);
    // Strips end in the order in which they begin, at most `threads` at a time: when strip k begins, strip k - threads
    // has ended, so threads + 1 seams are enough.
    seam_slots_ = Int(std::min<int64_t>(strips_, threads + 1));
    p_ = clamped_parameters_of(call, pair_);
    const bool tried = size_.rows > 0 && is_valid(p_) && set_weights<Kind>(weights_, job_, p_);
    if (tried) lay_out(shared);
    given_up_ = !tried;
  }

  /* Does a sweep that nobody has begun: of a strip forwards or, when all of these are done, backwards. False if there is
     none. */
  bool work(Scratch &memory) {
    if (given_up_) return false;
    try {
      Int strip;
      if (next_down_ < strips_ && (strip = next_down_.fetch_add(1)) < strips_) {
        if (!sweep_forward(strip, take(memory))) given_up_ = true;
        if (done_.fetch_add(1) + 1 == strips_ && !given_up_) {
          if (!add_up() || (!recording && !finish())) given_up_ = true;
          totalled_ = true;
        }
        return true;
      }
      if constexpr (recording) {
        if (totalled_ && next_up_ >= 0 && (strip = next_up_.fetch_sub(1)) >= 0) {
          if (!sweep_backward(strip, take(memory))) given_up_ = true;
          if (done_.fetch_add(1) + 1 == 2 * strips_ && !given_up_ && !finish()) given_up_ = true;
          return true;
        }
      }
      return false;
    } catch (...) {
      given_up_ = true;  // so that nobody waits for this thread
      throw;
    }
  }

  /* Whether all parts are done, or the pair needs an exponent per cell. The thread of the last part may still be
     writing results: is_solved holds when all threads have returned. */
  bool is_through() const { return given_up_ || done_ == (recording ? 2 : 1) * strips_; }
  bool is_solved() const { return !given_up_; }
  /* Its score, which it may have although its derivatives need an exponent per cell. */
  bool has_score() const { return score_weight_.exists; }
  Real score() const {
    const double value = p_.temperature * score_weight_.log();
    return Real(IS_COST<Kind> ? 0 - value : value);
  }

 private:
  /* The memory of one thread. */
  struct StripMemory {
    Down *down;
    Vec *kept, *units;
    Band *bands;
  };

  /* Whether a local alignment loses nothing that counts by rounding to 0. Match weights below 2^LEAST_MATCH count as 0,
     and so do weights of gaps after a start, below 2^(-LOST - LEVEL). The loss, at most these bounds times the gap weights
     of all paths, is less than 2^-DIGITS of the smallest total, unless gaps are cheap. If they are, no match may lie
     between the weight that is negligible beside any total (bits_to_negligible) and least_start, above which
     rounding the gaps after it loses at most 2^-DIGITS of its alignments. */
  bool starts_lose_nothing(const Strip &strip) const {
    if (!Kind::local) return true;
    double cheapest = -LARGEST_COST, dearest = LARGEST_COST;
    for (Cost cost : {Cost::open, Cost::extend, Cost::turn}) {
      const double bits = std::log2(double(weights_.cost[int(cost)][0]));
      cheapest = std::max(cheapest, bits), dearest = std::min(dearest, bits);
    }
    return has_no_match_between(strip, double(LEAST_MATCH) - bits_to_negligible(cheapest), least_start(dearest));
  }

  /* Bits of a match above which the gaps after it lose nothing that counts. */
  double least_start(double dearest) const {
    return std::log2(double(size_.rows) * double(size_.cols)) - std::min(0.0, dearest) + DIGITS - LOST - double(LEVEL);
  }

  /* How many bits below LEAST_MATCH a match must be to be negligible beside any total. */
  double bits_to_negligible(double cheapest) const {
    // from each start by up to `steps` steps, each along either axis, to each end
    const double steps = double(size_.rows) + double(size_.cols), starts = double(size_.rows) * double(size_.cols);
    const double paths = std::max(0.0, steps * (cheapest + 1)) + std::log2(starts * steps);
    return paths - (LEAST_TOTAL - double(LEVEL) - DIGITS - double(LEAST_MATCH));
  }

  /* False if a match has more than `least` and at most `most` bits. True at once if `least` is not below LEAST_MATCH.
     */
  bool has_no_match_between(const Strip &strip, double least, double most) const {
    if (least >= double(LEAST_MATCH)) return true;
    const double unit = p_.temperature / LOG2_E;
    const Vec high = splat(Real(most * unit)), low = splat(Real(least * unit));
    for (Int i = 0; i < rows_; ++i) {
      Mask found{};
      strip.each([&](int v, auto is_last) {
        const Vec s = strip.part<is_last>(strip.s + i * strip.pitch, v, 0);
        found |= (s <= high) & (s > low);
      });
      for (int l = 0; l < LANES; ++l) {
        if (found[l]) return false;
      }
    }
    return true;
  }

  /* The checks of gaps by position that need the whole pair; largest: bits of the largest unit. */
  bool gaps_lose_nothing(double largest) const {
    GapExtremes seen;
    for (Int strip = 0; strip < strips_; ++strip) seen.add(strip_states_[strip].ends);
    const double cheapest = std::log2(double(largest_of(seen.most_gap)));
    const double start = least_start(std::log2(-double(largest_of(-seen.least_gap))));
    double excess = 0;
    if constexpr (!ONE_STATE<Kind>) {
      if (seen.spread_of_gaps() > seen.spread) return false;
      if (!weights_.turn_right_is_allowed) {
        // log2 of the weights of all gaps that may follow a weight rounded to 0, summed over all cells; what follows these
        // gaps is an alignment that is in the total too
        const double gaps = std::max(0.0, cheapest) * double(size_.rows + size_.cols) +
                            std::log2(double(size_.rows) * double(size_.cols));
        const double match = std::log2(std::max(1.0, double(largest_of(seen.largest_match))));
        const double room = LOST - DIGITS - gaps;
        if (seen.risk > room || seen.risk_in_units + match > room + LEAST_TOTAL) return false;
        excess = std::max(largest + double(ROOM), double(ROOM) - LEAST_TOTAL + match) + DIGITS + gaps + double(LEAST_MATCH);
      }
    }
    if (-double(largest_of(-seen.lowest)) * (LOG2_E / p_.temperature) > std::max(start, double(LEAST_MATCH))) return true;
    for (Int number = 0; number < strips_; ++number) {
      const Strip strip = strip_of(number);
      if (!has_no_match_between(strip, double(LEAST_MATCH) - excess, double(LEAST_MATCH)) ||
          !has_no_match_between(strip, double(LEAST_MATCH) - bits_to_negligible(cheapest), start)) {
        return false;
      }
    }
    return true;
  }

  void lay_out(Scratch &shared) {
    widest_ = (vectors_ + strips_ - 1) / strips_;
    next_up_ = strips_ - 1;
    if constexpr (recording) {
      const Int most = Int(KEPT_VECTORS) / (widest_ * K::size) / MOST_ROWS * MOST_ROWS;
      height_ = std::min(rows_, std::max<Int>(most, MOST_ROWS));
    } else {
      height_ = rows_;
    }
    blocks_ = (rows_ + height_ - 1) / height_;
    tiled_ = strips_ * blocks_ > 1;
    seam_length_ = size_t(rows_) + 1 + 2 * LANES;  // read by whole vectors
    const bool outside = strips_ > 1 || has_border;
    const size_t down = outside ? down_seam_slots() * seam_length_ * (Down::passed + K::marks) : 0;
    const size_t up = recording && outside ? seam_slots_ * seam_length_ * (Up::count + K::marks) : 0;
    const size_t checkpoints = recording && tiled_ ? size_t(blocks_) * vectors_ * (Down::count + K::marks) : 0;
    using S = Scratch;
    shared.begin(S::bytes_of<Real>(down) + S::bytes_of<Real>(up) + S::bytes_of<Vec>(checkpoints) +
                 S::bytes_of<Up>(recording ? vectors_ : 0) + S::bytes_of<StripState>(strips_));
    down_seams_ = shared.take<Real>(down);
    up_seams_ = shared.take<Real>(up);
    checkpoints_ = shared.take<Vec>(checkpoints);
    up_ = shared.take<Up>(recording ? vectors_ : 0);
    strip_states_ = shared.take<StripState>(strips_);
    for (Int strip = 0; strip < strips_; ++strip) new (strip_states_ + strip) StripState;
    if constexpr (has_border) {
      fill_first_seam();
      strip_states_[0].down = rows_;
    }
    if constexpr (IS_COST<Kind>) {
      double before = 0, after = 0;
      for (Int number = 0; number < strips_; ++number) {
        strip_states_[number].bits_before = before;
        each_column(number, [&](Int, Int j) { before += bits_of_cell(0, j); });
      }
      for (Int number = strips_ - 1; number >= 0; --number) {
        strip_states_[number].bits_after = after;
        each_column(number, [&](Int, Int j) { after += bits_of_cell(rows_ - 1, j); });
      }
    }
  }

  /* Calls f(column in the strip, column in the matrix); the last vector may go beyond the matrix. */
  template <class F>
  void each_column(Int number, const F &f) const {
    const Int first = first_vector(number) * LANES, after = first_vector(number + 1) * LANES;
    for (Int j = first; j < after; ++j) f(j - first, j);
  }

  StripMemory take(Scratch &memory) const {
    const size_t cells = recording ? size_t(height_) * widest_ : 0;
    using S = Scratch;
    memory.begin(S::bytes_of<Down>(widest_) + S::bytes_of<Vec>(cells * K::size) + S::bytes_of<Vec>(cells * K::band_marks) +
              S::bytes_of<Band>(height_));
    return {memory.take<Down>(widest_), memory.take<Vec>(cells * K::size), memory.take<Vec>(cells * K::band_marks),
            memory.take<Band>(height_)};
  }

  /* What a strip adds to the results, and how many rows have been handed over: `down`, to it by its left neighbour in
     the forward sweep; `up`, by it to its left neighbour in the backward sweep. */
  struct StripState {
    StripEnds ends;
    StripSums sums;
    double end_m = 0, end_unit = 0, end_t = 0;  // of a global alignment
    double bits_before = 0, bits_after = 0;     // soft_dtw: of the first row left of the strip, of the last row right of it
    std::atomic<Int> down{0}, up{0};
  };

  Int first_vector(Int strip) const { return Int(int64_t(vectors_) * strip / strips_); }

  Strip strip_of(Int number) const {
    const Int first = first_vector(number), after = first_vector(number + 1);
    const int64_t column = int64_t(first) * LANES;
    Strip strip{job_.call.similarity + pair_ * job_.call.pair_stride + column,
                tangents ? job_.t_similarity + pair_ * job_.t_pair_stride + column : nullptr,
                job_.call.cols, int(after - first),
                after == vectors_ ? int(size_.cols - int64_t(vectors_ - 1) * LANES) : LANES};
    for (int g = 0; g < GAPS<Kind>; ++g) {
      const AlignmentGap *gap = is_by_position(job_.call, g) ? job_.call.gaps + g : nullptr;
      strip.gaps[g] = gap ? gap->costs + pair_ * gap->stride + column : nullptr;
    }
    return strip;
  }

  /* The seam to the left of a strip. */
  template <int count>
  Seam seam_at(Real *all_seams, Int place, std::atomic<Int> *progress) const {
    Seam seam;
    Real *memory = all_seams + size_t(place) * seam_length_ * (count + K::marks);
    for (int n = 0; n < count; ++n) seam.numbers[n] = memory + n * seam_length_;
    seam.unit = memory + count * seam_length_;
    if constexpr (tangents) seam.origin = seam.unit + seam_length_;
    seam.progress = progress;
    seam.given_up = &given_up_;
    return seam;
  }
  Seam down_seam(Int strip) const {
    return seam_at<Down::passed>(down_seams_, strip % down_seam_slots(), &strip_states_[strip].down);
  }
  Seam up_seam(Int strip) const {
    return seam_at<Up::count>(up_seams_, strip % seam_slots_, &strip_states_[strip].up);
  }
  /* All are kept when recording: the backward sweep repeats the forward sweep block by block. */
  Int down_seam_slots() const { return recording ? strips_ : seam_slots_; }

  BorderGaps border_gaps() const {
    const double bits_per_unit = LOG2_E / p_.temperature;
    return {p_.open[ROWS] * bits_per_unit, (ONE_STATE<Kind> ? p_.open : p_.extend)[ROWS] * bits_per_unit};
  }

  /* Bits of a cell's weight, clamped to LARGEST_COST; beyond the last column 0. */
  double bits_of_cell(Int i, Int j) const {
    if (j >= size_.cols) return 0;
    const double s = double(SIGN<Kind> * job_.call.similarity[pair_ * job_.call.pair_stride + i * job_.call.cols + j]);
    return std::min(std::max(s * (LOG2_E / p_.temperature), -LARGEST_COST), LARGEST_COST);
  }

  /* The row above the matrix. */
  void begin(Down *columns, Int strip, Int vectors) const {
    if constexpr (!has_border) {
      for (Int v = 0; v < vectors; ++v) {
        for (Vec &number : columns[v].now) number = splat(0);
        columns[v].unit = splat(-LEVEL);
        if constexpr (tangents) columns[v].origin = splat(0);
      }
      if constexpr (IS_COST<Kind>) {  // the unit of the only path to each cell of the first row
        double bits = strip_states_[strip].bits_before;
        each_column(strip, [&](Int column, Int j) {
          bits += bits_of_cell(0, j);
          columns[column / LANES].unit[column % LANES] = Real(std::nearbyint(bits)) - LEVEL;
        });
      }
    } else {
      const BorderGaps border = border_gaps();
      for (Int v = 0; v < vectors; ++v) {
        Down &c = columns[v];
        const Vec gaps = lane_reals() + Real((first_vector(strip) + v) * LANES + 1);
        for (Vec &number : c.now) number = splat(0);
        border.weights(gaps, c.now[0], c.unit);
        if constexpr (!ONE_STATE<Kind>) c.now[1] = weights_.template weights<From::up, ACROSS<Kind>>() * c.now[0];
        if constexpr (tangents) c.origin = splat(0);
      }
    }
  }

  /* The column to the left of a global alignment. */
  void fill_first_seam() const {
    const Seam seam = down_seam(0);
    const BorderGaps all_gaps = border_gaps();
    for (Int i = 0; i <= rows_; i += LANES) {
      const Vec gaps = lane_reals() + Real(i);
      Vec m, unit;
      all_gaps.weights(gaps, m, unit);
      for (int n = 1; n < Down::passed; ++n) store(seam.numbers[n] + i, splat(0));
      store(seam.numbers[0] + i, m);
      if constexpr (!ONE_STATE<Kind>) {  // what the gap along the row receives
        store(seam.numbers[1] + i, weights_.template weights<From::left, DOWN<Kind>>() * m);
      }
      store(seam.unit + i, unit);
      if constexpr (tangents) store(seam.origin + i, splat(0));
    }
  }

  static Vec lane_reals() { return __builtin_convertvector(lane_numbers(), Vec); }

  bool sweep_forward(Int number, const StripMemory &memory) {
    const Strip strip = strip_of(number);
    if (!POSITIONS && !starts_lose_nothing(strip)) return false;
    StripState &state_of_strip = strip_states_[number];
    const bool has_left = number > 0 || has_border, has_right = number + 1 < strips_;
    const Seam left = has_left ? down_seam(number) : Seam{};
    const Seam right = has_right ? down_seam(number + 1) : Seam{};
    const Seam *from = has_left ? &left : nullptr, *to = has_right ? &right : nullptr;
    begin(memory.down, number, strip.vectors);
    if (to) {  // the corner
      const Down &c = memory.down[strip.vectors - 1];
      for (int n = 0; n < Down::passed; ++n) right.numbers[n][0] = n < Down::count ? c.now[n][LANES - 1] : 0;
      right.unit[0] = c.unit[LANES - 1];
      if constexpr (tangents) right.origin[0] = c.origin[LANES - 1];
    }
    if (recording && !tiled_) {
      ForwardStrip<Kind, pass, true> sweep{weights_, strip, memory.down, from, to, state_of_strip.ends};
      if (!sweep.run(0, rows_, memory.kept, memory.units, memory.bands, &band_count_)) return false;
    } else {
      ForwardStrip<Kind, first_pass, false> sweep{weights_, strip, memory.down, from, to, state_of_strip.ends};
      for (Int block = 0; block < blocks_; ++block) {
        if constexpr (recording) keep(number, block, memory.down, strip.vectors);
        const Int first = block * height_;
        if (!sweep.run(first, std::min(first + height_, rows_), nullptr, nullptr, nullptr, nullptr)) return false;
      }
    }
    if (Kind::end == End::last && !has_right) {
      const Down &c = memory.down[strip.vectors - 1];
      state_of_strip.end_m = double(c.now[0][strip.last - 1]), state_of_strip.end_unit = double(c.unit[strip.last - 1]);
      if constexpr (tangents) {
        const double origin = double(c.origin[strip.last - 1]);
        state_of_strip.end_t = double(c.now[Down::first_tangent][strip.last - 1]) + origin * state_of_strip.end_m;
      }
    }
    return true;
  }

  /* The total over all strips; false if block exponents cannot hold it. */
  bool add_up() {
    double m = 0, unit = 0, t = 0;
    if constexpr (Kind::end == End::last) {
      const StripState &last = strip_states_[strips_ - 1];
      m = last.end_m, unit = last.end_unit, t = last.end_t;
    } else {
      double largest = double(NOTHING);
      unit = largest;
      for (Int strip = 0; strip < strips_; ++strip) {
        const StripEnds &ends = strip_states_[strip].ends;
        for (int l = 0; l < LANES; ++l) {
          unit = std::max(unit, double(ends.unit[l])), largest = std::max(largest, double(ends.largest[l]));
        }
      }
      for (Int strip = 0; strip < strips_; ++strip) {
        const StripEnds &ends = strip_states_[strip].ends;
        for (int l = 0; l < LANES; ++l) {
          const double scale = std::exp2(double(ends.unit[l]) - unit);
          m += double(ends.m[l]) * scale;
          t += (double(ends.t_m[l]) + double(ends.origin[l]) * double(ends.m[l])) * scale;
        }
      }
      if (!(std::log2(m) + unit >= largest + LEAST_TOTAL)) return false;
      if constexpr (POSITIONS) {
        if (!gaps_lose_nothing(largest)) return false;
      }
    }
    constexpr double finite = double(LARGEST);
    if (!(m > 0 && m <= finite && std::abs(t / m) <= finite)) return false;
    score_weight_ = score_weight_of(m, unit, t, p_.temperature);
    Total total{};
    set_total(total, 0, score_weight_);
    total_ = {splat(total.inverse_m[0]), splat(total.e[0]), score_weight_.tangent};
    return true;
  }

  /* The numbers of a strip's columns above a block of rows. */
  Vec *checkpoint(Int strip, Int block) const {
    return checkpoints_ + (size_t(block) * vectors_ + first_vector(strip)) * (Down::count + K::marks);
  }
  void keep(Int strip, Int block, const Down *columns, Int vectors) const {
    Vec *to = checkpoint(strip, block);
    for (Int v = 0; v < vectors; ++v) {
      for (const Vec &number : columns[v].now) *to++ = number;
      *to++ = columns[v].unit;
      if constexpr (tangents) *to++ = columns[v].origin;
    }
  }
  void restore(Int strip, Int block, Down *columns, Int vectors) const {
    const Vec *from = checkpoint(strip, block);
    for (Int v = 0; v < vectors; ++v) {
      for (Vec &number : columns[v].now) number = *from++;
      columns[v].unit = *from++;
      if constexpr (tangents) columns[v].origin = *from++;
    }
  }

  /* The row below the matrix. */
  void begin(Up *columns, Int strip, Int vectors) const {
    const BorderGaps border = border_gaps();
    for (Int v = 0; v < vectors; ++v) {
      Up &c = columns[v];
      for (Vec &number : c.now) number = splat(0);
      c.b_for_unit = splat(0);
      c.unit = splat(-LEVEL);
      if constexpr (tangents) c.origin = splat(0);
      if constexpr (has_border) {  // as if gaps led to the end
        const Vec gaps = Real(size_.cols - 1 - int64_t(first_vector(strip) + v) * LANES) - lane_reals();
        Vec m;
        border.weights(max_of(gaps, splat(0)), m, c.unit);
        c.unit -= LEVEL;
      }
    }
    if constexpr (IS_COST<Kind>) {  // the unit of the only path from each cell of the last row
      double bits = strip_states_[strip].bits_after;
      each_column(strip, [&](Int, Int j) { bits += bits_of_cell(rows_ - 1, j); });
      each_column(strip, [&](Int column, Int j) {
        bits -= bits_of_cell(rows_ - 1, j);
        columns[column / LANES].unit[column % LANES] = Real(std::nearbyint(bits)) - LEVEL;
      });
    }
  }

  bool sweep_backward(Int number, const StripMemory &memory) {
    const Strip strip = strip_of(number);
    StripState &state_of_strip = strip_states_[number];
    const bool has_right = number + 1 < strips_, is_last = !has_right;
    const bool has_left = number > 0 || (has_border && pass == Pass::gradients);
    const Seam right = has_right ? up_seam(number + 1) : Seam{}, left = has_left ? up_seam(number) : Seam{};
    const Seam before = number > 0 || has_border ? down_seam(number) : Seam{};
    Up *columns = up_ + first_vector(number);
    Real *out = job_.d_similarity + pair_ * job_.call.rows * job_.call.cols;
    begin(columns, number, strip.vectors);
    BackwardStrip<Kind, pass> sweep{weights_,
                               strip,
                               total_,
                               columns,
                               has_right ? &right : nullptr,
                               has_left ? &left : nullptr,
                               rows_,
                               first_vector(number) * LANES,
                               is_last ? rows_ - 1 : -1,
                               out + first_vector(number) * LANES,
                               state_of_strip.sums};
    if constexpr (POSITIONS && pass == Pass::gradients) {
      for (int g = 0; g < 2; ++g) {
        Real *d_costs = is_by_position(job_.call, g) ? job_.call.gaps[g].d_costs : nullptr;
        if (d_costs) sweep.d_gaps[g] = d_costs + pair_ * job_.call.rows * job_.call.cols + first_vector(number) * LANES;
      }
    }
    for (Int block = blocks_ - 1; block >= 0; --block) {
      int band_count = band_count_;
      if (tiled_) {
        const Int first = block * height_, last = std::min(first + height_, rows_);
        StripEnds unused;
        restore(number, block, memory.down, strip.vectors);
        ForwardStrip<Kind, pass, true> again{weights_, strip, memory.down, before.unit ? &before : nullptr, nullptr, unused};
        if (!again.run(first, last, memory.kept, memory.units, memory.bands, &band_count)) return false;
      }
      if (!sweep.run(memory.kept, memory.units, memory.bands, band_count)) return false;
    }
    return true;
  }

  /* Adds the expected number of gap positions along the border and, where gaps have no cost by position, of those that
     lead from it into the matrix: the sums over cells do not count these. */
  void add_border_gaps(StripSums &of) const {
    const BorderGaps gaps = border_gaps();
    const double unit = double(total_.unit[0]);
    // along the border to gap number `n`, from there into the matrix: by a gap that costs `next`, or by the match after it
    auto add = [&](Int n, Cost next, double b, double b_unit, double x, double x_unit) {
      const double weight = POSITIONS ? 1 : double(weights_.cost[int(next)][0]);  // by position, b is times this already
      const double by_gap = weight * b * std::exp2(gaps.bits(n) + b_unit - unit);
      const double both = by_gap + x * std::exp2(gaps.bits(n) + x_unit - unit);
      of.cost[int(Cost::open)] += both;
      of.cost[int(ONE_STATE<Kind> ? Cost::open : Cost::extend)] += (n - 1) * both;
      if (!POSITIONS) of.cost[int(next)] += by_gap;
    };
    constexpr Cost down = cost_between<Kind>(From::up, ACROSS<Kind>), along = cost_between<Kind>(From::left, DOWN<Kind>);
    auto above = [&](Int col, int number) { return double(up_[col / LANES].now[number][col % LANES]); };
    auto unit_above = [&](Int col) { return double(up_[col / LANES].unit[col % LANES]); };
    for (Int col = 0; col < Int(size_.cols); ++col) {
      const bool more = col + 1 < Int(size_.cols);
      add(col + 1, down, above(col, 1), unit_above(col), more ? above(col + 1, 0) : 0, more ? unit_above(col + 1) : 0);
    }
    const Seam left = up_seam(0);
    for (Int row = 0; row < rows_; ++row) {
      const bool more = row + 1 < rows_;
      const double x = more ? left.numbers[0][row + 1] : 0, x_unit = more ? left.unit[row + 1] : 0;
      add(row + 1, along, left.numbers[1][row], left.unit[row], x, x_unit);
    }
  }

  /* How far origins reach outside the interval from 0 to the total's tangent, where those of probable alignments lie.
     Origins outside it come from improbable paths; probable ones in the same vector then lose digits. */
  double origins_beyond() const {
    OriginRange range;
    for (Int strip = 0; strip < strips_; ++strip) {
      for (const OriginRange &of_strip : {strip_states_[strip].ends.origins, strip_states_[strip].sums.origins}) {
        range.add(of_strip.least), range.add(of_strip.most);
      }
    }
    const double most = double(range.most[0]), least = double(range.least[0]), total = score_weight_.tangent;
    return std::max(most - std::max(0.0, total), std::min(0.0, total) - least);
  }

  /* Whether the largest of the marginals' tangents, or 1 / T, is far above an error. */
  bool is_above_rounding(double error) const {
    const double tangent = error / MOST_OF_TANGENTS;
    if (tangent <= double(weights_.inverse_t[0])) return true;
    Vec largest = splat(0);
    for (Int i = 0; i < rows_; ++i) {
      const Real *row = job_.d_similarity + (pair_ * job_.call.rows + i) * job_.call.cols;
      Int j = 0;
      for (; j + LANES <= Int(size_.cols); j += LANES) largest = max_of(largest, absolute(load(row + j)));
      largest = max_of(largest, absolute(load_some(row + j, int(size_.cols - j), 0)));
    }
    return tangent <= double(largest_of(largest));
  }

  /* Writes the score, the parameters' gradients and what lies outside lengths; false if too many digits are lost. */
  bool finish() {
    Summed sums{};
    if constexpr (pass == Pass::gradients) {
      StripSums of;
      for (Int strip = 0; strip < strips_; ++strip) {
        const StripSums &of_strip = strip_states_[strip].sums;
        for (int c = 0; c < COSTS; ++c) of.cost[c] += of_strip.cost[c];
        of.matches += of_strip.matches, of.similarity += of_strip.similarity, of.gaps += of_strip.gaps;
        of.begins += of_strip.begins, of.begins_at += of_strip.begins_at,
            of.ends += of_strip.ends, of.ends_at += of_strip.ends_at;
      }
      // The expected numbers of matches and gaps have a relative error in common, from rounding along the alignments. It
      // shows, as the number of steps is known: a match leads to the next row and column, a gap to one of them.
      if constexpr (has_border) add_border_gaps(of);
      double gaps = 0;
      for (double cost : of.cost) gaps += cost;
      const double steps = Kind::local ? of.ends_at / of.ends - of.begins_at / of.begins + 2
                                       : double(size_.rows + size_.cols);
      double correction = steps / (2 * of.matches + gaps);
      // no correction below the rounding error of `steps`: places within a strip are floats, their sums and the
      // difference double
      const double least = 4 * __DBL_EPSILON__ * double(size_.rows + size_.cols) / steps, size = std::abs(correction - 1);
      if (!(least < size && size < LARGEST_CORRECTION) || (Kind::local && steps < LEAST_STEPS)) correction = 1;
      if (IS_COST<Kind>) correction = 1, gaps = steps;  // a path of soft_dtw may have any number of steps
      for (int c = 0; c < COSTS; ++c) sums.cost[c] = correction * of.cost[c];
      // The entropy of the alignments: the logarithm of all weights less the expected logarithm of an alignment's own.
      const Parameters counts = gaps_of(job_.call, sums.cost);
      const double opened = counts.open[ROWS], extended = counts.extend[ROWS];
      const double known = correction * (of.similarity + of.gaps);
      const double mean = (known + cost_of(counts, p_)) / p_.temperature;
      const double entropy = score_weight_.log() - mean;
      sums.entropy = entropy / LN_2;
      // this error must be small beside 1, or the largest gradient that the caller gets
      const double error = (ERROR_OF_WEIGHTS + ERROR_OF_GAPS * std::min(1.0, gaps / steps)) * std::abs(mean);
      if (!(opened + extended <= double(LARGEST))) return false;
      double most = std::max(1.0, entropy);  // of those that the caller gets
      if (job_.call.kind != ALIGNMENT_FREE_GAP && !is_by_position(job_.call, 0)) most = std::max(most, opened);
      if (is_affine(job_.call.kind) && !is_by_position(job_.call, 1)) most = std::max(most, extended);
      if (!(error <= MOST_OF_GRADIENT * most)) return false;
    }
    if constexpr (tangents) {
      if (!is_above_rounding(origins_beyond() * ROUNDING_OF_ORIGIN)) return false;
    }
    finish_pair(job_, pass, pair_, score_weight_, false, sums);
    return true;
  }

  const Job &job_;
  const int64_t pair_;
  const Size size_;
  Parameters p_{};
  PairWeights<Kind> weights_{MatchWeight(1.0)};
  Int rows_ = 0, vectors_ = 0, strips_ = 1, widest_ = 0, height_ = 0, blocks_ = 0;
  bool tiled_ = false;   // into more than one tile
  Int seam_slots_ = 0;  // seams in use at a time; strips share them in turn
  size_t seam_length_ = 0;  // of each array of a seam
  int band_count_ = 0;   // where there is one tile
  Real *down_seams_ = nullptr, *up_seams_ = nullptr;
  Vec *checkpoints_ = nullptr;
  Up *up_ = nullptr;
  StripState *strip_states_ = nullptr;
  std::atomic<Int> next_down_{0}, next_up_{0}, done_{0};
  std::atomic<bool> given_up_{false}, totalled_{false};
  ScoreWeight score_weight_{};
  PairTotal total_{};
};

}  // namespace alignment

#endif
