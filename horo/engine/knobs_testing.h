// Jobs whose ranks are threads of this program, with real groups between them, for tests of what knobs do.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "horo/base/text.h"
#include "horo/engine/knobs.h"
#include "horo/engine/runtime.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/knobs.h"
#include "horo/rendezvous/memory_store.h"

namespace horo::engine {

using Variables = Environment::Variables;

/// Lines that engines wrote to their log.
class Lines {
 public:
  void add(std::string_view line) {
    const std::lock_guard lock(mutex_);
    all_ += text(line, "\n");
    changed_.notify_all();
  }
  /// Until a line has one of `words`. False when none has for so long.
  bool await(std::initializer_list<std::string_view> words, double seconds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
      return std::any_of(words.begin(), words.end(), [&](auto one) { return all_.find(one) != std::string::npos; });
    });
  }
  bool has(std::string_view words) const {
    const std::lock_guard lock(mutex_);
    return all_.find(words) != std::string::npos;
  }
  std::string all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string all_;
};

using Body = std::function<void(Runtime&)>;

/// Starts a job and runs `body` on every rank. `own` is what a rank sets beside `shared`. Failures to start are told.
inline std::vector<Status> run(int size, const Variables& shared, const Body& body, Lines* log = nullptr,
                               const std::function<Variables(int rank)>& own = {}) {
  auto store = std::make_shared<rendezvous::MemoryStore>();
  std::vector<Status> outcomes(static_cast<size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      Environment environment(Variables{{"HORO_TIMEOUT", "30s"}, {"HORO_STAGING", "8MiB"}});
      environment = environment.with(shared);
      if (own) environment = environment.with(own(rank));
      auto config = Config::read({rendezvous::kKnobs, group::kKnobs, kKnobs}, environment);
      ASSERT_TRUE(config.ok()) << config.status();
      group::EngineOptions options{.rank = rank, .size = size, .store = store, .config = *config};
      if (log != nullptr) options.log_sink = [log](LogLevel, std::string_view line) { log->add(line); };
      auto runtime = Runtime::start({.engine = std::move(options)});
      outcomes[static_cast<size_t>(rank)] = runtime.status();
      if (!runtime.ok()) return;
      body(**runtime);
      (*runtime)->shutdown();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return outcomes;
}

inline Call sum_of(std::string name, std::vector<float>& values) {
  Call call;
  call.tensor.name = std::move(name);
  call.tensor.kind = Kind::kAllreduce;
  call.tensor.dtype = DType::kF32;
  call.tensor.shape = {static_cast<int64_t>(values.size())};
  call.input = call.output = reinterpret_cast<std::byte*>(values.data());
  return call;
}

/// Waits for the others, so that nobody leaves early.
inline void meet(Runtime& runtime) {
  std::vector<float> one(1);
  auto handle = runtime.submit(0, {sum_of("meet", one)});
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_TRUE(runtime.wait(0, *handle, Deadline::after_seconds(30)).ok());
}

}  // namespace horo::engine
