/* How a batch is split into tasks: which pairs share a vector, which have their own, and in which order they start. */

#ifndef BATCHING_H
#define BATCHING_H

#include <cstdint>
#include <vector>

namespace alignment {

struct Size {
  int64_t rows, cols;
};

/* What the lanes of a vector are: as in alignment.h. */
enum class Layout : int32_t { choose, pairs, rows };

/* Either up to LANES pairs, one per lane, or one pair with its rows in the lanes. */
struct Task {
  const int64_t *pairs;
  int count;
  bool rows_in_lanes;
  double cost;  // in units of a step with pairs in the lanes
};

/* Pairs with fewer cells are not worth the waits of several threads for each other. */
constexpr int64_t CELLS_TO_SHARE = 100000;

/* How many of these threads are worth using for this many cells. */
int64_t threads_worth(int64_t threads, int64_t cells);

/* Those with more cells first, so that the last ones to start are short. */
void put_large_first(std::vector<int64_t> &pairs, const std::vector<int64_t> &cells);

/* The tasks of these pairs of a batch, and how many threads are worth using for them. */
class Plan {
 public:
  /* threads: the most that may be used. sizes: indexed by pair. */
  Plan(Layout layout, int lanes, int64_t threads, std::vector<int64_t> pairs, std::vector<Size> sizes);
  Plan(const Plan &) = delete;
  Plan &operator=(const Plan &) = delete;

  std::vector<Task> tasks;
  int64_t threads;

 private:
  double cost_alone(int64_t pair) const;
  void add(const int64_t *pairs, int count);
  void add_alone(const int64_t *pairs, int count);
  void balance();

  const Layout layout_;
  const int lanes_;
  std::vector<int64_t> order_;
  const std::vector<Size> sizes_;
};

}  // namespace alignment

#endif
