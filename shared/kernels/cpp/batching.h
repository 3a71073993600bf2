/* How a batch is split into tasks: which pairs share a vector, which have their own, and in which order they start. */

#ifndef BATCHING_H
#define BATCHING_H

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "vector.h"

namespace alignment {

struct Size {
  int64_t rows, cols;
};

inline Size size_of(const AlignmentCall &call, int64_t pair) {
  if (!call.lengths) return {call.rows, call.cols};
  auto inside = [](int64_t n, int64_t most) { return std::min(std::max<int64_t>(n, 0), most); };
  return {inside(call.lengths[2 * pair], call.rows), inside(call.lengths[2 * pair + 1], call.cols)};
}

inline bool lengths_inside(const AlignmentCall &call) {
  for (int64_t pair = 0; call.lengths && pair < call.pairs; ++pair) {
    const int64_t rows = call.lengths[2 * pair], cols = call.lengths[2 * pair + 1];
    if (rows < 0 || rows > call.rows || cols < 0 || cols > call.cols) return false;
  }
  return true;
}

/* Up to LANES pairs, one per lane, or one pair with its rows in the lanes. */
struct Task {
  const int64_t *pairs;
  int count;
  bool rows_in_lanes;
  double cost;  // in steps of pairs side by side
};

/* How much longer a step takes with rows in the lanes: the lanes exchange numbers. */
constexpr double ROWS_STEP = 1.28;
/* What a sweep takes beside its steps, in steps. */
constexpr double SWEEP = 12;
/* Waking a thread costs about as much as this many cells. */
constexpr int64_t CELLS_PER_THREAD = 20000;
/* Pairs with fewer cells are not worth the waits of several threads for each other. */
constexpr int64_t CELLS_TO_SHARE = 100000;

inline int64_t threads_worth(const AlignmentCall &call, int64_t cells) {
  return std::min<int64_t>(std::max(call.threads, 1), cells / CELLS_PER_THREAD + 1);
}

/* Sorts pairs so that each group of LANES has similar sizes: all lanes run as long as the largest of them. Halves
   them by rows or by columns, where they differ more, until a half is one group. */
inline void put_alike_together(int64_t *begin, int64_t *end, const std::vector<Size> &sizes) {
  while (end - begin > LANES) {
    Size least = sizes[*begin], most = least;
    for (const int64_t *pair = begin; pair < end; ++pair) {
      const Size &own = sizes[*pair];
      least = {std::min(least.rows, own.rows), std::min(least.cols, own.cols)};
      most = {std::max(most.rows, own.rows), std::max(most.cols, own.cols)};
    }
    if (least.rows == most.rows && least.cols == most.cols) return;
    const bool by_rows = double(most.rows - least.rows) * double(most.cols) >=
                         double(most.cols - least.cols) * double(most.rows);
    int64_t *half = begin + ((end - begin + LANES - 1) / LANES / 2) * LANES;
    std::nth_element(begin, half, end, [&](int64_t a, int64_t b) {
      const Size &x = sizes[a], &y = sizes[b];
      return by_rows ? std::make_tuple(-x.rows, -x.cols, a) < std::make_tuple(-y.rows, -y.cols, b)
                     : std::make_tuple(-x.cols, -x.rows, a) < std::make_tuple(-y.cols, -y.rows, b);
    });
    put_alike_together(begin, half, sizes);
    begin = half;
  }
}

/* The tasks of these pairs of a batch, and how many threads are worth using for them. */
class Plan {
 public:
  Plan(const AlignmentCall &call, std::vector<int64_t> pairs)
      : layout_(call.layout), order_(std::move(pairs)), sizes_(call.pairs) {
    const int64_t count = int64_t(order_.size());
    int64_t cells = 0;
    for (int64_t pair : order_) {
      sizes_[pair] = size_of(call, pair);
      cells += sizes_[pair].rows * sizes_[pair].cols;
    }
    const int64_t most_threads = threads_worth(call, cells);
    if (layout_ != ALIGNMENT_ROWS) put_alike_together(order_.data(), order_.data() + count, sizes_);
    for (int64_t first = 0; first < count; first += LANES) {
      add(order_.data() + first, int(std::min<int64_t>(LANES, count - first)));
    }
    if (layout_ == ALIGNMENT_CHOOSE) balance(most_threads);
    // large ones first, so that the last ones to start are short
    std::stable_sort(tasks.begin(), tasks.end(), [](const Task &a, const Task &b) { return a.cost > b.cost; });
    threads = std::min<int64_t>(most_threads, int64_t(tasks.size()));
  }
  Plan(const Plan &) = delete;
  Plan &operator=(const Plan &) = delete;

  std::vector<Task> tasks;
  int64_t threads;

 private:
  double cost_alone(int64_t pair) const {
    const Size &size = sizes_[pair];
    return ROWS_STEP * double((size.rows + LANES - 1) / LANES) * (double(size.cols + LANES - 1) + SWEEP);
  }

  void add(const int64_t *pairs, int count) {
    int64_t rows = 0, cols = 0;
    double alone = 0;
    for (int p = 0; p < count; ++p) {
      rows = std::max(rows, sizes_[pairs[p]].rows);
      cols = std::max(cols, sizes_[pairs[p]].cols);
      alone += cost_alone(pairs[p]);
    }
    const double together = double(rows) * (double(cols) + SWEEP);
    if (layout_ == ALIGNMENT_PAIRS || (layout_ == ALIGNMENT_CHOOSE && together <= alone)) {
      tasks.push_back({pairs, count, false, together});
    } else {
      add_alone(pairs, count);
    }
  }

  void add_alone(const int64_t *pairs, int count) {
    for (int p = 0; p < count; ++p) tasks.push_back({pairs + p, 1, true, cost_alone(pairs[p])});
  }

  /* Few groups may leave threads idle at the end: groups that the threads cannot share evenly are split into
     pairs, if that finishes sooner than waiting for one of them. */
  void balance(int64_t threads) {
    auto is_group = [](const Task &task) { return !task.rows_in_lanes; };
    const int64_t groups = std::count_if(tasks.begin(), tasks.end(), is_group), left = groups % threads;
    if (groups > 4 * threads || left == 0 || ROWS_STEP * double(left) >= double(threads)) return;
    std::stable_sort(tasks.begin(), tasks.end(), [&](const Task &a, const Task &b) {
      return std::make_tuple(is_group(a), a.cost) < std::make_tuple(is_group(b), b.cost);
    });
    auto first = std::find_if(tasks.begin(), tasks.end(), is_group);
    const std::vector<Task> taken(first, first + left);
    tasks.erase(first, first + left);
    for (const Task &task : taken) add_alone(task.pairs, task.count);
  }

  int32_t layout_;
  std::vector<int64_t> order_;
  std::vector<Size> sizes_;
};

}  // namespace alignment

#endif
