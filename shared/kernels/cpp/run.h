/* A pass over a batch, which is split into tasks that threads process. */

#ifndef RUN_H
#define RUN_H

#include <sched.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "batching.h"
#include "huge_pages.h"
#include "subnormals.h"
#include "threads.h"
#include "tiles.h"

namespace alignment {

/* Calls `use` with the recurrence of a kind, which must be one that this library has. */
template <class Use>
void with_recurrence(int32_t kind, const Use &use) {
  constexpr auto has = [](int32_t which) { return KIND < 0 || KIND == which; };
  if constexpr (has(ALIGNMENT_LOCAL_ANY)) {
    if (kind == ALIGNMENT_LOCAL_ANY) return use(LocalLinear<End::anywhere>());
  }
  if constexpr (has(ALIGNMENT_LOCAL_MATCH)) {
    if (kind == ALIGNMENT_LOCAL_MATCH) return use(LocalLinear<End::later_match>());
  }
  if constexpr (has(ALIGNMENT_AFFINE)) {
    if (kind == ALIGNMENT_AFFINE) return use(LocalAffine());
  }
  if constexpr (has(ALIGNMENT_GLOBAL)) {
    if (kind == ALIGNMENT_GLOBAL || kind == ALIGNMENT_FREE_GAP) return use(GlobalLinear());
  }
  if constexpr (has(ALIGNMENT_SOFT_DTW)) {
    if (kind == ALIGNMENT_SOFT_DTW) return use(SoftDtw());
  }
  if constexpr (has(ALIGNMENT_GLOBAL_AFFINE)) {
    if (kind == ALIGNMENT_GLOBAL_AFFINE) return use(GlobalAffine());
  }
}

inline std::atomic<int64_t> exact_pairs{0};  // of this library, in calls that could use block exponents

/* The result of trying block exponents on a pair. */
struct Outcome {
  bool needs_cell_exponents = false;
  bool has_score = false;  // the score is valid, although the derivatives need cell exponents
  Real score = 0;
};

inline bool lengths_inside(const AlignmentCall &call) {
  for (int64_t pair = 0; call.lengths && pair < call.pairs; ++pair) {
    const int64_t rows = call.lengths[2 * pair], cols = call.lengths[2 * pair + 1];
    if (rows < 0 || rows > call.rows || cols < 0 || cols > call.cols) return false;
  }
  return true;
}

/* Solves the pairs of a batch with block exponents, as far as possible. */
template <class Kind, Pass pass>
std::vector<Outcome> solve_with_block_exponents(const Job &job) {
  const AlignmentCall &call = job.call;
  std::vector<Outcome> outcomes(call.pairs);
  std::vector<int64_t> order, cells(call.pairs);
  order.reserve(call.pairs);
  int64_t all_cells = 0;
  for (int64_t pair = 0; pair < call.pairs; ++pair) {
    const Size size = size_of(call, pair);
    all_cells += cells[pair] = size.rows * size.cols;
    // with few columns, several pairs side by side are faster
    if (size.cols <= LANES) outcomes[pair].needs_cell_exponents = true;
    else order.push_back(pair);
  }
  const int64_t count = int64_t(order.size());
  const int64_t threads = threads_worth(call.threads, all_cells);
  // Threads share the strips of two kinds of pairs: those that would keep one thread busy for long, and the
  // count % threads that are left over.
  if (threads > 1) put_large_first(order, cells);
  int64_t shared = 0, parts = count;
  const int64_t uneven = count < 4 * threads ? count % threads : 0;
  for (; threads > 1 && shared < count; ++shared) {
    const int64_t pair = order[shared], strips = strips_of(size_of(call, pair).cols);
    if (strips == 1 || cells[pair] < CELLS_TO_SHARE) break;
    if (shared >= uneven && 2 * threads * cells[pair] <= all_cells) break;
    parts += strips - 1;
  }
  const FlushSubnormals flush;
  using Pair = Tiles<Kind, pass>;
  std::vector<Scratch> memory(shared);
  std::vector<std::unique_ptr<Pair>> together;
  for (int64_t k = 0; k < shared; ++k) together.emplace_back(new Pair(job, order[k], threads, memory[k]));

  std::atomic<int64_t> next{shared}, arrived{0};
  std::atomic<bool> out_of_memory{false};
  auto note = [&](const Pair &tiles, int64_t pair) {
    if (!tiles.is_solved()) outcomes[pair] = {true, tiles.has_score(), tiles.score()};
  };
  auto work = [&] {  // in each thread that takes part
    const FlushSubnormals flush_here;
    static thread_local Scratch scratch, between_strips;
    try {
      // at first parts of the shared pairs, threads in different pairs if possible; then whole pairs, each by one thread
      for (int64_t k = arrived.fetch_add(1), idle = 0; idle < shared; ++k) {
        idle = together[k % shared]->work(scratch) ? 0 : idle + 1;
      }
      for (int64_t number; (number = next.fetch_add(1)) < count;) {
        Pair tiles(job, order[number], 1, between_strips);
        while (tiles.work(scratch)) {
        }
        note(tiles, order[number]);
      }
      for (auto &tiles : together) {
        while (!tiles->is_through()) {
          if (!tiles->work(scratch)) sched_yield();
        }
      }
    } catch (const std::bad_alloc &) {
      out_of_memory = true;
    }
    scratch.end(), between_strips.end();
  };
  if (count > 0) run_with_helpers(call.openmp, std::min(threads, parts) - 1, work);
  if (out_of_memory) throw std::bad_alloc();
  for (int64_t k = 0; k < shared; ++k) note(*together[k], order[k]);
  return outcomes;
}

static_assert(int(Layout::choose) == ALIGNMENT_CHOOSE && int(Layout::pairs) == ALIGNMENT_PAIRS &&
              int(Layout::rows) == ALIGNMENT_ROWS);

inline Plan plan_of(const AlignmentCall &call, std::vector<int64_t> pairs) {
  std::vector<Size> sizes(call.pairs);
  for (int64_t pair : pairs) sizes[pair] = size_of(call, pair);
  return {Layout(call.layout), LANES, call.threads, std::move(pairs), std::move(sizes)};
}

/* Solves these pairs with an exponent per cell. */
template <class Kind, Pass pass>
void solve_with_cell_exponents(const Job &job, std::vector<int64_t> pairs) {
  const Plan plan = plan_of(job.call, std::move(pairs));
  std::atomic<size_t> next{0};
  std::atomic<bool> out_of_memory{false};
  auto work = [&] {  // in each thread that takes part
    const FlushSubnormals flush;
    for (size_t number; (number = next.fetch_add(1)) < plan.tasks.size();) {
      const Task &task = plan.tasks[number];
      try {
        if (task.rows_in_lanes) {
          solve<Kind, pass, RowsSideBySide>(job, task.pairs, task.count);
        } else {
          solve<Kind, pass, PairsSideBySide>(job, task.pairs, task.count);
        }
      } catch (const std::bad_alloc &) {
        out_of_memory = true;
      }
    }
  };
  run_with_helpers(job.call.openmp, plan.threads - 1, work);
  if (out_of_memory) throw std::bad_alloc();
}

template <class Kind, Pass pass>
int32_t run(const Job &job) {
  const AlignmentCall &call = job.call;
  if ((call.options & ALIGNMENT_CHECK_LENGTHS) && !lengths_inside(call)) return ALIGNMENT_BAD_LENGTHS;
  use_huge_pages(job.d_similarity, sizeof(REAL) * call.pairs * call.rows * call.cols);
  if constexpr (POSITIONS && (pass == Pass::gradients || pass == Pass::tangents)) {
    for (int g = 0; g < 2; ++g) {
      if (!is_by_position(call, g)) continue;
      use_huge_pages(call.gaps[g].d_costs, sizeof(REAL) * call.pairs * call.rows * call.cols);
    }
  }
  try {
    // tangents from or to the parameters have an exponent per cell
    bool tried = HAS_BLOCKS<Kind> && call.layout == ALIGNMENT_CHOOSE &&
                 !(pass == Pass::tangents && (job.t_parameters || job.d_parameters));
    // add_border_gaps in tiles.h, in a library with gaps by position, expects that the gap is by position
    if (POSITIONS && pass == Pass::gradients && !Kind::local && !is_by_position(call, 0)) tried = false;
    for (int g = 0; pass == Pass::tangents && g < 2; ++g) {
      if (is_by_position(call, g) && (call.gaps[g].t_costs || call.gaps[g].d_costs)) tried = false;
    }
    std::vector<Outcome> outcomes;
    if constexpr (HAS_BLOCKS<Kind>) {
      if (tried) outcomes = solve_with_block_exponents<Kind, pass>(job);
    }
    std::vector<int64_t> remaining;
    for (int64_t pair = 0; pair < call.pairs; ++pair) {
      if (!tried || outcomes[pair].needs_cell_exponents) remaining.push_back(pair);
    }
    if (tried) exact_pairs += int64_t(remaining.size());
    if (!remaining.empty()) solve_with_cell_exponents<Kind, pass>(job, std::move(remaining));
    for (int64_t pair = 0; pass != Pass::tangents && pair < int64_t(outcomes.size()); ++pair) {
      if (outcomes[pair].has_score) job.scores[pair] = outcomes[pair].score;
    }
    return ALIGNMENT_OK;
  } catch (const std::exception &) {
    return ALIGNMENT_OUT_OF_MEMORY;
  }
}

/* Whether this library, the kind and the call have the gaps by position that the options name. */
inline bool has_gaps(const AlignmentCall &call) {
  constexpr int both = ALIGNMENT_OPEN_BY_POSITION | ALIGNMENT_EXTEND_BY_POSITION;
  const int known = is_affine(call.kind) ? both : has_gap(call.kind) ? ALIGNMENT_OPEN_BY_POSITION : 0;
  const int named = call.options & both;
  return named == 0 || (POSITIONS && (named & ~known) == 0 && call.gaps);
}

inline bool is_possible(const AlignmentCall &call) {
  constexpr int free = ALIGNMENT_FREE_ROWS | ALIGNMENT_FREE_COLS;
  if (bool(call.options & ALIGNMENT_BY_AXIS) != AXES || (AXES && !has_gap(call.kind))) return false;
  if ((call.options & free) && !(AXES && is_global(call.kind))) return false;
  auto is_length = [](int64_t n) { return n >= 0 && n <= std::numeric_limits<int32_t>::max() / 2; };  // so steps fit too
  return call.layout >= ALIGNMENT_CHOOSE && call.layout <= ALIGNMENT_ROWS && call.pairs >= 0 && is_length(call.rows) &&
         is_length(call.cols) && has_gaps(call);
}

template <Pass pass>
int32_t run(const Job &job) {
  int32_t status = ALIGNMENT_BAD_CALL;
  if (!is_possible(job.call)) return status;
  with_recurrence(job.call.kind, [&](auto kind) { status = run<decltype(kind), pass>(job); });
  return status;
}

}  // namespace alignment

// of each library, whichever pass it has
extern "C" __attribute__((used)) inline int64_t alignment_exact_pairs() { return alignment::exact_pairs; }

#endif
