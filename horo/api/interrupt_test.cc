// Waits that end when a signal handler has run, and operations that do not notice.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <future>

#include "horo/api/rank_threads_testing.h"

namespace {

using horo::Engine;
using horo::Error;
using horo::Group;

std::atomic<int> handled{0};

/// Installs a handler for SIGUSR1 that only counts.
class Handler {
 public:
  explicit Handler(int flags) {
    handled = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { ++handled; };
    action.sa_flags = flags;
    sigaction(SIGUSR1, &action, &before_);
  }
  ~Handler() { sigaction(SIGUSR1, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

/// Signals `thread` until somebody lets go: whenever its wait begins, a signal follows.
class Pest {
 public:
  explicit Pest(pthread_t thread)
      : worker_([this, thread] {
          while (let_go_.wait_for(std::chrono::milliseconds(2)) == std::future_status::timeout) {
            pthread_kill(thread, SIGUSR1);
          }
        }) {}
  void stop() {
    if (!worker_.joinable()) return;
    end_.set_value();
    worker_.join();
  }
  ~Pest() { stop(); }

 private:
  std::promise<void> end_;
  std::future<void> let_go_ = end_.get_future();
  std::thread worker_;
};

horo_operation sum_of(uint64_t count) {
  horo_operation operation = HORO_OPERATION_INIT;
  operation.kind = HORO_ALLREDUCE;
  operation.dtype = HORO_U64;
  operation.count = count;
  return operation;
}

/// ThreadSanitizer cannot follow the order here: it goes through memory that is mapped twice.
__attribute__((no_sanitize("thread"))) bool all_are(const std::vector<uint64_t>& values, uint64_t value) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (*(static_cast<const volatile uint64_t*>(values.data()) + i) != value) return false;
  }
  return true;
}

struct Case {
  const char* transport;
  int flags;
};

class ApiInterrupt : public testing::TestWithParam<Case> {
 protected:
  /// Rank 1 comes to the operation only after rank 0 was interrupted, which is rank 0's to say.
  void run(const std::function<void(Engine&, std::promise<void>&)>& rank_0, uint64_t count) {
    const Handler handler(GetParam().flags);
    std::promise<void> interrupted;
    std::shared_future<void> go = interrupted.get_future().share();
    horo::api::run_ranks(2,
                         [&](Engine& engine) {
                           if (engine.rank() == 0) return rank_0(engine, interrupted);
                           go.wait();
                           std::vector<uint64_t> values(count, 2);
                           engine.world().allreduce(values.data(), count);
                           EXPECT_EQ(values, std::vector<uint64_t>(count, 3));
                         },
                         {std::string("HORO_TRANSPORT=") + GetParam().transport});
    EXPECT_GT(handled, 0);
  }
};

TEST_P(ApiInterrupt, EndsAWaitAndTheOperationCanBeWaitedForAgain) {
  constexpr uint64_t kCount = 70'000;
  run(
      [&](Engine& engine, std::promise<void>& interrupted) {
        std::vector<uint64_t> values(kCount, 1);
        horo::Request request = engine.world().submit(sum_of(kCount), values.data(), values.data());
        Pest pest(pthread_self());
        for (int turn = 0; turn < 3; ++turn) {
          try {
            request.wait_interruptible();
            ADD_FAILURE() << "rank 1 did not come, but the operation ended";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), HORO_INTERRUPTED) << error.what();
            EXPECT_NE(std::string(error.what()).find("goes on"), std::string::npos) << error.what();
          }
        }
        EXPECT_FALSE(request.done());
        EXPECT_TRUE(all_are(values, 1)) << "inputs change only when the operation is decided";
        pest.stop();
        interrupted.set_value();
        request.wait();
        EXPECT_EQ(values, std::vector<uint64_t>(kCount, 3));
      },
      kCount);
}

TEST_P(ApiInterrupt, EndsABlockingCallAndLeavesItsRequest) {
  run(
      [](Engine& engine, std::promise<void>& interrupted) {
        uint64_t value = 1;
        Pest pest(pthread_self());
        std::optional<horo::Request> rest = engine.world().run_interruptible(sum_of(1), &value, &value);
        pest.stop();
        interrupted.set_value();
        ASSERT_TRUE(rest.has_value()) << "rank 1 did not come, but the call ended";
        rest->wait_interruptible(20);
        EXPECT_EQ(value, 3u);
      },
      1);
}

TEST_P(ApiInterrupt, DoesNotEndAWaitThatDidNotAskForIt) {
  run(
      [](Engine& engine, std::promise<void>& interrupted) {
        uint64_t value = 1;
        horo::Request request = engine.world().submit(sum_of(1), &value, &value);
        Pest pest(pthread_self());
        std::thread later([&] {
          while (handled < 5) std::this_thread::yield();
          interrupted.set_value();
        });
        request.wait();
        pest.stop();
        later.join();
        EXPECT_EQ(value, 3u);
        EXPECT_GE(handled, 5);
      },
      1);
}

INSTANTIATE_TEST_SUITE_P(Transports, ApiInterrupt,
                         testing::Values(Case{"shm", 0}, Case{"shm", SA_RESTART}, Case{"tcp", 0},
                                         Case{"tcp", SA_RESTART}),
                         [](const auto& param) {
                           return std::string(param.param.transport) + (param.param.flags != 0 ? "Restart" : "");
                         });

TEST(ApiInterruptible, CallsThatEndInPeaceLeaveNoRequest) {
  Engine engine;
  uint64_t value = 7;
  EXPECT_FALSE(engine.world().run_interruptible(sum_of(1), &value, &value).has_value());
  EXPECT_EQ(value, 7u);
  horo_request* rest = reinterpret_cast<horo_request*>(&value);
  horo_operation wrong = sum_of(1);
  wrong.dtype = HORO_BYTE;
  horo_status* status = horo_group_run_interruptible(engine.world().get(), &wrong, &value, &value, &rest);
  EXPECT_EQ(horo_status_code(status), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(rest, nullptr);
  horo_status_free(status);
}

}  // namespace
