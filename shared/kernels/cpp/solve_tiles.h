/* Solves a pair in plain odds with shared exponents, if its numbers allow that. */

#ifndef SOLVE_TILES_H
#define SOLVE_TILES_H

#include <memory>

#include "solve.h"
#include "tile.h"

namespace alignment {

/* A tile is so high that what it keeps stays in the second cache. */
constexpr Int KEPT_VECTORS = (512 << 10) / VECTOR_BYTES;

/* Memory of this thread, kept from pair to pair and from call to call. */
class Scratch {
 public:
  /* Whatever was taken before is given back. */
  void begin(size_t bytes) {
    if (bytes > size_) {
      memory_.reset(static_cast<char *>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
      size_ = memory_ ? bytes : 0;
      if (!memory_) throw std::bad_alloc();
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
  /* Gives back to the system what is more than a thread should keep. */
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

/* False if plain odds cannot hold the pair's costs. */
template <class Kind>
bool set_odds(PairOdds<Kind> &odds, const Job &job, const Parameters &p, const Parameters &t) {
  const double bits_per_unit = LOG2_E / p.temperature, ratio = t.temperature / p.temperature;
  if (!(bits_per_unit <= double(__FLT_MAX__) && bits_per_unit >= double(SMALLEST_NORMAL))) return false;
  new (&odds.match) MatchOdds(bits_per_unit);
  const bool turn_is_open = job.call.options & ALIGNMENT_PENALIZE_TURNS;
  double bits[COSTS] = {};
  bool held = true;
  auto set = [&](Cost cost, double amount, double t_amount) {
    bits[int(cost)] = amount * bits_per_unit;
    held = held && std::abs(bits[int(cost)]) <= LARGEST_COST;
    odds.cost[int(cost)] = all(Real(std::exp2(bits[int(cost)])));
    odds.t_cost[int(cost)] = all(Real(t_amount / p.temperature - (amount / p.temperature) * ratio));
  };
  set(Cost::none, 0, 0);
  set(Cost::open, p.open, t.open);
  set(Cost::extend, p.extend, t.extend);
  set(Cost::turn, turn_is_open ? p.open : p.extend, turn_is_open ? t.open : t.extend);
  odds.cost[int(Cost::back)] = job.call.options & ALIGNMENT_RESTRICT_TURNS ? all(0) : odds.cost[int(Cost::turn)];
  odds.t_cost[int(Cost::back)] = odds.t_cost[int(Cost::turn)];
  if (!held) return false;
  odds.inverse_t = all(Real(1 / p.temperature));
  odds.t_ratio = all(Real(ratio / p.temperature));
  double first = 0, further = 0;
  unrolled<Kind::states>([&](auto s) {
    first = std::max(first, -bits[int(cost_between<Kind>(From::up, s))]);
    if (s == DOWN<Kind>) further = std::max(0.0, -bits[int(cost_between<Kind>(From::up, s))]);
  });
  odds.most_rows = 0;
  for (int rows = 1; rows <= MOST_ROWS; ++rows) {
    odds.decay[rows] = first + (rows - 1) * further;
    if ((rows & (rows - 1)) == 0 && odds.decay[rows] <= MOST_DECAY) odds.most_rows = rows;
  }
  return odds.most_rows > 0;
}

/* Odds of whole numbers of gaps: fraction and exponent. */
struct GapOdds {
  Real whole, part;
  explicit GapOdds(double bits) : whole(Real(std::nearbyint(bits))), part(Real(bits - std::nearbyint(bits))) {}
  void operator()(Vec gaps, Vec &m, Vec &e) const {
    const Vec more = rounded_product(gaps, all(part));
    m = power_of_fraction(fused(gaps, all(part), -more));
    e = fused(gaps, all(whole), more);
  }
};

/* One pair. */
template <class Kind, Pass pass>
class Tiles {
  static constexpr bool tangents = pass == Pass::tangents, recording = pass != Pass::score;
  static constexpr Pass first_pass = tangents ? pass : Pass::score;
  using C = Carries<Kind, tangents>;
  using K = Kept<Kind, pass>;
  using Down = Descent<Kind, tangents>;
  using Up = Ascent<Kind, pass>;

 public:
  Tiles(const Job &job, int64_t pair) : job_(job), pair_(pair), size_(size_of(job.call, pair)) {}

  /* False if this pair needs an exponent per cell. Then the score is nevertheless set if `has_score`. */
  bool solve(Scratch &scratch) {
    const AlignmentCall &call = job_.call;
    p_ = clamped_parameters_of(call.kind, call.parameters, pair_);
    if (job_.t_parameters) t_ = parameters_of(call.kind, job_.t_parameters, pair_);
    if (size_.rows == 0 || size_.cols == 0) {
      finish_pair(job_, pass, pair_, Worth{}, false, {});
      return true;
    }
    if (!is_valid(p_) || !set_odds<Kind>(odds_, job_, p_, t_)) return false;
    lay_out(scratch);
    if (!descend()) return false;
    has_score = true;
    if constexpr (recording) {
      if (!ascend()) return false;
    }
    return finish();
  }

  bool has_score = false;
  Worth worth{};
  Real score() const { return Real(p_.temperature * worth.log2() * LN_2); }

 private:
  int64_t strips() const { return (vectors_ + STRIP_VECTORS - 1) / STRIP_VECTORS; }
  Int first_vector(int64_t strip) const { return Int(vectors_ * strip / strips()); }

  void lay_out(Scratch &scratch) {
    rows_ = Int(size_.rows);
    vectors_ = Int((size_.cols + LANES - 1) / LANES);
    const Int widest = (vectors_ + Int(strips()) - 1) / Int(strips());
    height_ = rows_;
    if (recording) {
      const Int most = std::max<Int>(KEPT_VECTORS / (widest * K::size) / MOST_ROWS * MOST_ROWS, MOST_ROWS);
      if (height_ > most) height_ = most;
    }
    blocks_ = (rows_ + height_ - 1) / height_;
    const size_t border = size_t(rows_) + 1 + 2 * LANES, borders = strips() > 1 || !Kind::local ? strips() : 0;
    const size_t cells = recording ? size_t(height_) * widest : 0;
    const bool tiled = strips() * blocks_ > 1;
    const size_t checkpoints = recording && tiled ? size_t(blocks_) * vectors_ * (C::count + 1) : 0;
    using S = Scratch;
    scratch.begin(S::bytes_of<Down>(widest) + S::bytes_of<Up>(recording ? vectors_ : 0) +
                  S::bytes_of<Real>(border * (C::count + 1)) * borders + S::bytes_of<Real>(border * 5) * 2 +
                  S::bytes_of<Vec>(cells * K::size) + S::bytes_of<Vec>(cells) + S::bytes_of<Band>(height_) +
                  S::bytes_of<Vec>(checkpoints));
    down_ = scratch.take<Down>(widest);
    up_ = scratch.take<Up>(recording ? vectors_ : 0);
    kept_ = scratch.take<Vec>(cells * K::size);
    units_ = scratch.take<Vec>(cells);
    bands_ = scratch.take<Band>(height_);
    checkpoints_ = scratch.take<Vec>(checkpoints);
    borders_ = scratch.take<Real>(0);
    for (size_t b = 0; b < borders; ++b) scratch.take<Real>(border * (C::count + 1));
    border_ = border;
    border_bytes_ = S::bytes_of<Real>(border * (C::count + 1));
    for (auto &one : back_) one = scratch.take<Real>(border * 5);
  }

  Strip strip_of(int64_t number) const {
    const Int first = first_vector(number), after = first_vector(number + 1);
    const int64_t column = int64_t(first) * LANES;
    return {job_.call.similarity + pair_ * job_.call.pair_stride + column,
            tangents ? job_.t_similarity + pair_ * job_.t_pair_stride + column : nullptr, job_.call.cols,
            int(after - first), after == vectors_ ? int(size_.cols - int64_t(vectors_ - 1) * LANES) : LANES};
  }

  /* The border to the left of a strip. */
  Border border_of(int64_t strip) const {
    Border border;
    Real *memory = reinterpret_cast<Real *>(reinterpret_cast<char *>(borders_) + strip * border_bytes_);
    for (int n = 0; n < C::count; ++n) border.numbers[n] = memory + n * border_;
    border.unit = memory + C::count * border_;
    return border;
  }
  Border back_border_of(int64_t strip) const {
    Border border;
    for (int n = 0; n < 4; ++n) border.numbers[n] = back_[strip % 2] + n * border_;
    border.unit = back_[strip % 2] + 4 * border_;
    return border;
  }

  /* The row above the matrix. */
  void above(Down *columns, int64_t strip, Int vectors) const {
    if constexpr (Kind::local) {
      for (Int v = 0; v < vectors; ++v) {
        for (Vec &number : columns[v].now) number = all(0);
        columns[v].unit = all(-LEVEL);
      }
    } else {
      const GapOdds odds(gap_bits());
      const Vec numbers = __builtin_convertvector(lane_numbers(), Vec);
      for (Int v = 0; v < vectors; ++v) {
        const Vec gaps = numbers + Real((first_vector(strip) + v) * LANES + 1);
        odds(gaps, columns[v].now[0], columns[v].unit);
        if constexpr (tangents) columns[v].now[1] = columns[v].now[0] * gaps * odds_.t_cost[int(Cost::open)];
      }
    }
  }
  double gap_bits() const { return p_.open * (LOG2_E / p_.temperature); }

  void outside(const Border &border, Int first_gaps) const {
    const GapOdds odds(gap_bits());
    const Vec numbers = __builtin_convertvector(lane_numbers(), Vec);
    for (Int i = 0; i <= rows_; i += LANES) {
      const Vec gaps = numbers + Real(first_gaps + i);
      Vec m, e;
      odds(gaps, m, e);
      store(border.numbers[0] + i, m);
      store(border.unit + i, e);
      if constexpr (tangents) store(border.numbers[1] + i, m * gaps * odds_.t_cost[int(Cost::open)]);
    }
  }

  bool descend() {
    const bool tiled = strips() * blocks_ > 1;
    Ends ends;
    double end_m = 0, end_unit = 0, end_t = 0;
    for (int64_t number = 0; number < strips(); ++number) {
      const Strip strip = strip_of(number);
      const Border left = border_of(number), right = border_of(number + 1);
      if (number == 0 && !Kind::local) outside(left, 0);
      const Border *from = number > 0 || !Kind::local ? &left : nullptr, *to = number + 1 < strips() ? &right : nullptr;
      above(down_, number, strip.vectors);
      if (to) hand_over_corner(strip, right);
      if (recording && !tiled) {
        DownTheStrip<Kind, pass, true> way{odds_, strip, down_, from, to, ends};
        if (!way.run(0, rows_, kept_, units_, bands_, &band_count_)) return false;
      } else {
        DownTheStrip<Kind, first_pass, false> way{odds_, strip, down_, from, to, ends};
        for (Int first = 0, block = 0; first < rows_; first += height_, ++block) {
          if constexpr (recording) keep(number, block, strip.vectors);
          if (!way.run(first, std::min(first + height_, rows_), nullptr, nullptr, nullptr, nullptr)) return false;
        }
      }
      if (Kind::end == End::last && number + 1 == strips()) {
        const Down &c = down_[strip.vectors - 1];
        end_m = double(c.now[0][strip.last - 1]), end_unit = double(c.unit[strip.last - 1]);
        if constexpr (tangents) end_t = double(c.now[C::tangent][strip.last - 1]);
      }
    }
    if constexpr (Kind::end != End::last) {
      double largest = double(NOTHING);
      end_unit = double(NOTHING);
      for (int l = 0; l < LANES; ++l) {
        end_unit = std::max(end_unit, double(ends.unit[l]));
        largest = std::max(largest, double(ends.largest[l]));
      }
      for (int l = 0; l < LANES; ++l) {
        const double scale = std::exp2(double(ends.unit[l]) - end_unit);
        end_m += double(ends.m[l]) * scale, end_t += double(ends.t_m[l]) * scale;
      }
      if (!(std::log2(end_m) + end_unit >= largest - 40)) return false;
    }
    if (!(end_m > 0 && end_m <= double(__FLT_MAX__) && std::abs(end_t / end_m) <= double(__FLT_MAX__))) return false;
    worth = worth_of(end_m, end_unit, end_t);
    Total total{};
    set_total(total, 0, worth);
    total_ = {all(total.inverse_m[0]), all(total.e[0]), all(total.tangent[0])};
    return true;
  }

  /* What the strip to the right sees of the row above the matrix. */
  void hand_over_corner(const Strip &strip, const Border &right) const {
    const Down &c = down_[strip.vectors - 1];
    for (int n = 0; n < C::count; ++n) right.numbers[n][0] = c.now[n][LANES - 1];
    right.unit[0] = c.unit[LANES - 1];
  }

  Vec *checkpoint(int64_t strip, Int block) const {
    return checkpoints_ + (size_t(block) * vectors_ + first_vector(strip)) * (C::count + 1);
  }
  void keep(int64_t strip, Int block, Int vectors) const {
    Vec *to = checkpoint(strip, block);
    for (Int v = 0; v < vectors; ++v) {
      for (const Vec &number : down_[v].now) *to++ = number;
      *to++ = down_[v].unit;
    }
  }
  void restore(int64_t strip, Int block, Int vectors) const {
    const Vec *from = checkpoint(strip, block);
    for (Int v = 0; v < vectors; ++v) {
      for (Vec &number : down_[v].now) number = *from++;
      down_[v].unit = *from++;
    }
  }

  /* The row below the matrix. */
  void below() const {
    for (Int v = 0; v < vectors_; ++v) {
      for (Vec &number : up_[v].now) number = all(0);
      up_[v].level = all(0);
      up_[v].unit = all(-LEVEL);
      if constexpr (!Kind::local) {
        const Vec numbers = __builtin_convertvector(lane_numbers(), Vec) + Real(v * LANES);
        Vec m;
        GapOdds{gap_bits()}(greater(Real(size_.cols - 1) - numbers, all(0)), m, up_[v].unit);
        up_[v].unit -= LEVEL;
      }
    }
  }

  bool ascend() {
    const bool tiled = strips() * blocks_ > 1;
    const AlignmentCall &call = job_.call;
    below();
    for (Int block = blocks_ - 1; block >= 0; --block) {
      const Int first = block * height_, last = std::min(first + height_, rows_);
      for (int64_t number = strips() - 1; number >= 0; --number) {
        const Strip strip = strip_of(number);
        const Border left = border_of(number);
        if (tiled) {
          restore(number, block, strip.vectors);
          Ends unused;
          DownTheStrip<Kind, pass, true> way{odds_, strip, down_, number > 0 || !Kind::local ? &left : nullptr, nullptr, unused};
          if (!way.run(first, last, kept_, units_, bands_, &band_count_)) return false;
        }
        const Border from = back_border_of(number + 1), to = back_border_of(number);
        UpTheStrip<Kind, pass> way{odds_,
                                   strip,
                                   total_,
                                   up_ + first_vector(number),
                                   number + 1 < strips() ? &from : nullptr,
                                   number > 0 || (!Kind::local && pass == Pass::gradients) ? &to : nullptr,
                                   number + 1 == strips() ? rows_ - 1 : -1,
                                   job_.d_similarity + pair_ * call.rows * call.cols + int64_t(first_vector(number)) * LANES,
                                   sums_};
        if (!way.run(kept_, units_, bands_, band_count_)) return false;
      }
    }
    return true;
  }

  /* The expected number of gaps that begin on the border, along it and into the matrix. */
  double border_gaps() const {
    const double bits = gap_bits(), unit = double(total_.unit[0]), odds = std::exp2(bits);
    double gaps = 0;
    // along the border to gap number `n`, from there into the matrix: by a gap, or by the match after it
    auto add = [&](Int n, double b, double b_unit, double x, double x_unit) {
      gaps += (n + 1) * odds * b * std::exp2(n * bits + b_unit - unit) + n * x * std::exp2(n * bits + x_unit - unit);
    };
    auto above = [&](Int col, int number) { return double(up_[col / LANES].now[number][col % LANES]); };
    auto unit_above = [&](Int col) { return double(up_[col / LANES].unit[col % LANES]); };
    for (Int col = 0; col < Int(size_.cols); ++col) {
      const bool more = col + 1 < Int(size_.cols);
      add(col + 1, above(col, 1), unit_above(col), more ? above(col + 1, 0) : 0, more ? unit_above(col + 1) : 0);
    }
    const Border left = back_border_of(0);
    for (Int row = 0; row < rows_; ++row) {
      const bool more = row + 1 < rows_;
      add(row + 1, left.numbers[1][row], left.unit[row], more ? left.numbers[0][row + 1] : 0, more ? left.unit[row + 1] : 0);
    }
    return gaps;
  }

  bool finish() {
    Summed sums{};
    if constexpr (pass == Pass::gradients) {
      for (int c = 0; c < COSTS; ++c) sums.cost[c] = sums_.cost[c];
      if constexpr (!Kind::local) sums.border = border_gaps();
      // the expected surprise of an alignment: the logarithm of all odds less that of its own
      const double value = worth.log2() * LN_2;
      const double own = (sums_.similarity + (sums.cost[int(Cost::open)] + sums.border) * p_.open +
                          sums.cost[int(Cost::extend)] * p_.extend +
                          (sums.cost[int(Cost::turn)] + sums.cost[int(Cost::back)]) *
                              (job_.call.options & ALIGNMENT_PENALIZE_TURNS ? p_.open : p_.extend)) / p_.temperature;
      const double entropy = value - own;
      sums.entropy = entropy / LN_2;
      if (!(std::abs(value) + std::abs(own) <= 64 * std::max(1.0, entropy))) return false;
    }
    finish_pair(job_, pass, pair_, worth, false, sums);
    return true;
  }

  const Job &job_;
  const int64_t pair_;
  const Size size_;
  Parameters p_{}, t_{};
  PairOdds<Kind> odds_{MatchOdds(1.0)};
  Int rows_ = 0, vectors_ = 0, height_ = 0, blocks_ = 0;
  Down *down_ = nullptr;
  Up *up_ = nullptr;
  Vec *kept_ = nullptr, *units_ = nullptr, *checkpoints_ = nullptr;
  Band *bands_ = nullptr;
  int band_count_ = 0;
  Real *borders_ = nullptr, *back_[2] = {};
  size_t border_ = 0, border_bytes_ = 0;
  PairTotal total_{};
  TileSums sums_;
};

}  // namespace alignment

#endif
