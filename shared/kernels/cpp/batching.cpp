#include "batching.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace alignment {

namespace {

/* How much longer a step takes with rows in the lanes: the lanes exchange numbers. */
constexpr double ROWS_STEP = 1.28;
/* The fixed cost of a sweep, in steps. */
constexpr double SWEEP = 12;
/* Waking a thread costs about as much as this many cells. */
constexpr int64_t CELLS_PER_THREAD = 20000;

/* Sorts pairs so that each group of `lanes` has similar sizes: all lanes run as long as the largest of them. Halves
   them by rows or by columns, whichever differ more, until a half is one group. */
void put_alike_together(int64_t *begin, int64_t *end, const std::vector<Size> &sizes, int lanes) {
  while (end - begin > lanes) {
    Size least = sizes[*begin], most = least;
    for (const int64_t *pair = begin; pair < end; ++pair) {
      const Size &own = sizes[*pair];
      least = {std::min(least.rows, own.rows), std::min(least.cols, own.cols)};
      most = {std::max(most.rows, own.rows), std::max(most.cols, own.cols)};
    }
    if (least.rows == most.rows && least.cols == most.cols) return;
    const bool by_rows = double(most.rows - least.rows) * double(most.cols) >=
                         double(most.cols - least.cols) * double(most.rows);
    int64_t *half = begin + ((end - begin + lanes - 1) / lanes / 2) * lanes;
    std::nth_element(begin, half, end, [&](int64_t a, int64_t b) {
      const Size &x = sizes[a], &y = sizes[b];
      return by_rows ? std::make_tuple(-x.rows, -x.cols, a) < std::make_tuple(-y.rows, -y.cols, b)
                     : std::make_tuple(-x.cols, -x.rows, a) < std::make_tuple(-y.cols, -y.rows, b);
    });
    put_alike_together(begin, half, sizes, lanes);
    begin = half;
  }
}

}  // namespace

int64_t threads_worth(int64_t threads, int64_t cells) {
  return std::min<int64_t>(std::max<int64_t>(threads, 1), cells / CELLS_PER_THREAD + 1);
}

void put_large_first(std::vector<int64_t> &pairs, const std::vector<int64_t> &cells) {
  std::stable_sort(pairs.begin(), pairs.end(), [&](int64_t a, int64_t b) { return cells[a] > cells[b]; });
}

Plan::Plan(Layout layout, int lanes, int64_t most_threads, std::vector<int64_t> pairs, std::vector<Size> sizes)
    : layout_(layout), lanes_(lanes), order_(std::move(pairs)), sizes_(std::move(sizes)) {
  const int64_t count = int64_t(order_.size());
  int64_t cells = 0;
  for (int64_t pair : order_) cells += sizes_[pair].rows * sizes_[pair].cols;
  threads = threads_worth(most_threads, cells);
  if (layout_ != Layout::rows) put_alike_together(order_.data(), order_.data() + count, sizes_, lanes_);
  for (int64_t first = 0; first < count; first += lanes_) {
    add(order_.data() + first, int(std::min<int64_t>(lanes_, count - first)));
  }
  if (layout_ == Layout::choose) balance();
  // large ones first, so that the last ones to start are short
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task &a, const Task &b) { return a.cost > b.cost; });
  threads = std::min(threads, int64_t(tasks.size()));
}

double Plan::cost_alone(int64_t pair) const {
  const Size &size = sizes_[pair];
  return ROWS_STEP * double((size.rows + lanes_ - 1) / lanes_) * (double(size.cols + lanes_ - 1) + SWEEP);
}

void Plan::add(const int64_t *pairs, int count) {
  int64_t rows = 0, cols = 0;
  double alone = 0;
  for (int p = 0; p < count; ++p) {
    rows = std::max(rows, sizes_[pairs[p]].rows);
    cols = std::max(cols, sizes_[pairs[p]].cols);
    alone += cost_alone(pairs[p]);
  }
  const double together = double(rows) * (double(cols) + SWEEP);
  if (layout_ == Layout::pairs || (layout_ == Layout::choose && together <= alone)) {
    tasks.push_back({pairs, count, false, together});
  } else {
    add_alone(pairs, count);
  }
}

void Plan::add_alone(const int64_t *pairs, int count) {
  for (int p = 0; p < count; ++p) tasks.push_back({pairs + p, 1, true, cost_alone(pairs[p])});
}

/* With few groups threads may be idle at the end: groups that the threads cannot share evenly are split into
   pairs, if that finishes sooner than waiting for one of them. */
void Plan::balance() {
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

}  // namespace alignment
