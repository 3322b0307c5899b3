#include "cli/bench/engine_rank.h"

#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>

#include "horo/api/handles.h"
#include "horo/api/horo.hpp"
#include "horo/base/deadline.h"
#include "horo/base/text.h"

namespace horo::bench {

namespace {

using nlohmann::json;

constexpr int kSmallCalls = 1000;  ///< Of each path in each round, alone and in a row.
constexpr int kTensors = 1000;
constexpr int64_t kTensorFloats = 1024;
constexpr int kPasses = 5;  ///< Over all tensors, in each turn, after one that warms up.

double microseconds_since(Time begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

/// The number behind a word of a file in /proc; 0 where there is none.
uint64_t number_behind(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string found; file >> found;) {
    uint64_t number = 0;
    if (found == word && file >> number) return number;
  }
  return 0;
}

/// How often threads of the library went to sleep: each time something had woken them.
uint64_t switches_of_other_threads() {
  uint64_t sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    sum += number_behind(task.path().string() + "/status", "voluntary_ctxt_switches:");
  }
  return sum;
}

json memory_now() {
  constexpr uint64_t kKibibyte = 1024;
  return {{"resident_bytes", number_behind("/proc/self/status", "VmRSS:") * kKibibyte},
          {"heap_bytes", mallinfo2().uordblks}};
}

void require(bool right, const char* what) {
  if (!right) throw std::runtime_error(std::string("WRONG RESULT of ") + what);
}

class EngineRank {
 public:
  explicit EngineRank(const EngineRankOptions& options)
      : options_(options),
        random_(options.seed * 1000 + static_cast<uint64_t>(runtime_.rank())),
        group_{&engine(), engine().world_handle(), nullptr},
        world_(Group::Handle(&group_, [](horo_group*) {})),
        all_(static_cast<float>(runtime_.size())) {}

  json measure() {
    json result{{"rank", runtime_.rank()}, {"transport", world_.transport()}};
    make_tensors();
    for (int round = -1; round < options_.rounds; ++round) {  // The first one warms up.
      json one{{"ordered", small_calls([this](float& value) { world_.allreduce(&value, 1); })},
               {"negotiated", small_calls([this](float& value) { runtime_.allreduce("small", &value, 1); })},
               {"one_by_one_us", one_by_one()},
               {"any_order_us", in_any_order()}};
      if (round >= 0) result["rounds"].push_back(std::move(one));
    }
    result["memory"] = memory();
    result["idle"] = idle();
    runtime_.barrier("end");
    result["cpu_seconds"] = cpu_seconds();
    return result;
  }

 private:
  engine::Runtime& native() { return *runtime_.get()->runtime; }
  group::Engine& engine() { return native().engine(); }

  /// Both paths alike: each call after a barrier, on a new value; then as many in a row.
  template <class CallOnce>
  json small_calls(const CallOnce& call) {
    std::vector<double> times;
    for (int i = 0; i < kSmallCalls; ++i) {
      float value = 1;
      world_.barrier();
      const Time begin = Clock::now();
      call(value);
      times.push_back(microseconds_since(begin));
      require(value == all_, "a small allreduce");
    }
    std::vector<float> values(kSmallCalls, 1.0F);
    world_.barrier();
    const Time begin = Clock::now();
    for (float& value : values) call(value);
    const double row = microseconds_since(begin) / kSmallCalls;
    require(values == std::vector<float>(kSmallCalls, all_), "small allreduces in a row");
    return {{"times_us", times}, {"row_us", row}};
  }

  void make_tensors() {
    data_.assign(kTensors, std::vector<float>(kTensorFloats));
    for (size_t i = 0; i < data_.size(); ++i) names_.push_back(text("tensor ", i));
  }
  Handle hand_in(size_t tensor) {
    return runtime_.allreduce_async(names_[tensor].c_str(), data_[tensor].data(), data_[tensor].size());
  }

  /// Microseconds of one pass: of several that follow each other, each on new values and begun together.
  template <class Pass>
  double passes(const Pass& pass) {
    double sum = 0;
    for (int i = -1; i < kPasses; ++i) {
      for (std::vector<float>& tensor : data_) std::fill(tensor.begin(), tensor.end(), 1.0F);
      std::vector<size_t> order(kTensors);
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random_);
      world_.barrier();
      const Time begin = Clock::now();
      pass(order);
      if (i >= 0) sum += microseconds_since(begin);
      for (const std::vector<float>& tensor : data_) {
        require(std::all_of(tensor.begin(), tensor.end(), [&](float value) { return value == all_; }), "tensors");
      }
    }
    return sum / kPasses;
  }

  double one_by_one() {
    return passes([&](const std::vector<size_t>&) {
      for (size_t tensor = 0; tensor < names_.size(); ++tensor) hand_in(tensor).wait();
    });
  }

  double in_any_order() {
    return passes([&](const std::vector<size_t>& order) {
      std::vector<Handle> handles;
      handles.reserve(order.size());
      for (size_t tensor : order) handles.push_back(hand_in(tensor));
      for (Handle& handle : handles) handle.wait();
    });
  }

  /// The first tenth fills what is filled once.
  json memory() {
    constexpr uint64_t kAtOnce = 16;
    constexpr uint64_t kLargest = 16'384;
    std::vector<std::vector<float>> values;
    std::vector<std::string> names;
    for (uint64_t i = 0; i < kAtOnce; ++i) {
      values.emplace_back(1 + kLargest * i / kAtOnce, 0.0F);
      names.push_back(text("memory ", i));
    }
    json before;
    const uint64_t turns = options_.operations / kAtOnce;
    for (uint64_t turn = 0; turn < turns; ++turn) {
      if (turn == turns / 10) before = memory_now();
      std::vector<Handle> handles;
      for (uint64_t i = 0; i < kAtOnce; ++i) {
        handles.push_back(runtime_.allreduce_async(names[i].c_str(), values[i].data(), values[i].size()));
      }
      for (Handle& handle : handles) handle.wait();
    }
    return {{"operations", turns * kAtOnce}, {"before", before}, {"after", memory_now()}};
  }

  /// Nobody calls anything; this thread sleeps, and only what the library's own threads do is counted.
  json idle() {
    constexpr std::chrono::milliseconds kUntilQuiet(2300);  // The pool of buffers returns its pages after a second.
    runtime_.barrier("idle");
    be_away(kUntilQuiet);
    const engine::Counter& sent = native().metrics().find(0)->messages_sent;
    const uint64_t messages = sent.get(), switches = switches_of_other_threads();
    const double cpu = cpu_seconds();
    const Time begin = Clock::now();
    be_away(std::chrono::duration<double>(options_.idle_seconds));
    const double used = cpu_seconds() - cpu;
    const double seconds = microseconds_since(begin) * 1e-6;
    return {{"seconds", seconds},
            {"cpu_seconds", used},
            {"messages", sent.get() - messages},
            {"wake_ups", switches_of_other_threads() - switches}};
  }

  /// This is the idleness that is measured, and no wait for anybody.
  template <class Time>
  static void be_away(Time time) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable().wait_for(lock, time, [] { return false; });
  }

  const EngineRankOptions& options_;
  Runtime runtime_;
  std::mt19937_64 random_;
  horo_group group_;
  Group world_;  ///< The ordered path of the same ranks, through the same memory or sockets.
  const float all_;
  std::vector<std::vector<float>> data_;
  std::vector<std::string> names_;
};

}  // namespace

int run_engine_rank(const EngineRankOptions& options) try {
  if (options.folder.empty()) {
    Runtime().barrier();
    return 0;
  }
  EngineRank rank(options);
  const json result = rank.measure();
  std::ofstream file(text(options.folder, "/", result["rank"].get<int>(), ".json"));
  file << result;
  file.close();
  return file ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "horo bench engine: %s\n", error.what());
  return 1;
}

}  // namespace horo::bench
