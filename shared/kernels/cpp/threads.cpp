/* Helper threads: of OpenMP, or of a pool that is kept between calls, since to start one costs more than a small batch. The
   libraries of a process share the pool, as each has a single pass.

   OpenMP joins all of its threads, even those that have no work and that a busy machine does not schedule for
   milliseconds. The pool does not wait for threads that have not begun, so it is used where OpenMP has waited long. */

#include "threads.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace alignment {

namespace {

using Work = std::function<void()>;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

/* How long a waiting thread polls, yielding its core, before it sleeps: to sleep and be woken takes 30 to 100
   microseconds, and more on a core that has slept. */
constexpr microseconds PATIENCE(200);
/* A longer wait for OpenMP's idle threads makes calls avoid it: at first for AVOIDED_FIRST, then for twice as long after
   each long wait in a row, up to AVOIDED_MOST. */
constexpr microseconds LONG_WAIT(500), AVOIDED_FIRST(20000), AVOIDED_MOST(1000000);

template <class Condition>
void wait_awake(const Condition &holds) {
  const auto end = Clock::now() + PATIENCE;
  while (!holds() && Clock::now() < end) std::this_thread::yield();
}

/* Any number of threads may call run at the same time; they share the helpers. No call waits for a
   helper that is busy with another: the caller does whatever no helper has started. */
class Helpers {
 public:
  static void run(int64_t count, const Work &work) { (*shared())->run_shared(count, work); }

  /* Where the pool is that this library uses: another library's, if it was given one before it needed its own. */
  static Helpers **shared() {
    if (!used_) used_ = own_pool();
    return used_;
  }
  static void share(void *with) { used_ = static_cast<Helpers **>(with); }

  /* Whether OpenMP is not to be waited for now, because it has kept a call waiting not long ago. */
  bool avoid_openmp() const { return Clock::now().time_since_epoch() < Clock::duration(avoided_until_); }

  void openmp_has_waited(Clock::duration waited) {
    Clock::duration next(0);
    if (waited >= LONG_WAIT) {
      next = std::clamp<Clock::duration>(2 * Clock::duration(avoided_for_), AVOIDED_FIRST, AVOIDED_MOST);
      avoided_until_ = (Clock::now().time_since_epoch() + next).count();
    }
    if (avoided_for_ != next.count()) avoided_for_ = next.count();
  }

 private:
  struct Call {
    const Work &work;
    std::fenv_t environment;  // rounding, and the treatment of subnormal numbers
    int64_t wanted;
    std::atomic<int64_t> running{0};
    std::condition_variable through{};
  };

  /* Never destroyed: its threads wait on it until the process ends. A child of fork has none of them, and perhaps a
     mutex that nobody will ever unlock, so it begins anew. */
  static Helpers **own_pool() {
    static Helpers *own = new Helpers;
    pthread_atfork(nullptr, nullptr, [] { own = new Helpers; });
    return &own;
  }

  void run_shared(int64_t count, const Work &work) {
    Call call{work, {}, count, {}};
    std::fegetenv(&call.environment);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      while (threads_ < count && start()) ++threads_;
      calls_.push_back(&call);
      open_ = calls_.size();
    }
    for (int64_t n = 0; n < count; ++n) wake_.notify_one();
    work();
    std::unique_lock<std::mutex> lock(mutex_);
    for (auto at = calls_.begin(); at != calls_.end(); ++at) {
      if (*at == &call) {
        calls_.erase(at);
        open_ = calls_.size();
        break;
      }
    }
    lock.unlock();
    wait_awake([&] { return call.running == 0; });
    lock.lock();
    call.through.wait(lock, [&] { return call.running == 0; });
  }

  /* Adds a thread, if possible. Signals are left to the threads that the process had before. */
  bool start() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = true;
    try {
      std::thread([this] { help(); }).detach();
    } catch (const std::exception &) {
      started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  }

  void help() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      lock.unlock();
      wait_awake([&] { return open_ > 0; });
      lock.lock();
      wake_.wait(lock, [&] { return !calls_.empty(); });
      Call &call = *calls_.front();
      if (--call.wanted == 0) calls_.pop_front(), open_ = calls_.size();
      ++call.running;
      lock.unlock();
      std::fesetenv(&call.environment);
      call.work();
      lock.lock();
      if (--call.running == 0) call.through.notify_one();
    }
  }

  inline static std::atomic<Helpers **> used_{nullptr};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Call *> calls_;
  std::atomic<size_t> open_{0};  // calls_.size(), to be read without the mutex
  std::atomic<Clock::rep> avoided_for_{0}, avoided_until_{0};
  int64_t threads_ = 0;
};

/* In OpenMP's threads: those wait for work in a loop for some milliseconds after they had some, on cores that threads of
   our own would have to wait for. */
void run_in_openmp(Parallel openmp, int64_t count, const Work &work) {
  struct Region {
    const Work &work;
    std::fenv_t environment;
    std::atomic<int64_t> left;
    std::atomic<Clock::rep> first, last;  // when threads began with the work, and when they were through with it
  } region{work, {}, {count + 1}, {0}, {0}};
  std::fegetenv(&region.environment);
  auto run = [](void *argument) {
    Region &region = *static_cast<Region *>(argument);
    if (region.left.fetch_sub(1) <= 0) return;
    Clock::rep now = Clock::now().time_since_epoch().count(), none = 0;
    region.first.compare_exchange_strong(none, now);
    std::fenv_t before;
    std::fegetenv(&before);
    std::fesetenv(&region.environment);
    region.work();
    std::fesetenv(&before);
    now = Clock::now().time_since_epoch().count();
    Clock::rep last = region.last;
    while (last < now && !region.last.compare_exchange_weak(last, now)) {
    }
  };
  const auto begin = Clock::now();
  // 0: in all its threads, as OpenMP would end those that a smaller team does not need
  openmp(run, &region, 0, 0);
  const Clock::duration worked(region.last - region.first);
  (*Helpers::shared())->openmp_has_waited(Clock::now() - begin - worked);
}

}  // namespace

void run_with_helpers(Parallel openmp, int64_t count, void (*run)(const void *), const void *given) {
  const Work work = [=] { run(given); };
  if (count <= 0) return work();
  if (openmp && !(*Helpers::shared())->avoid_openmp()) return run_in_openmp(openmp, count, work);
  Helpers::run(count, work);
}

}  // namespace alignment

#pragma GCC visibility push(default)
extern "C" {
void *alignment_helpers() { return alignment::Helpers::shared(); }
void alignment_share_helpers(void *helpers) { alignment::Helpers::share(helpers); }
}
#pragma GCC visibility pop
