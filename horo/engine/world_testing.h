// Members of a process set under a seeded scheduler: any order, any delay between messages that stay in order per pair.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "horo/engine/negotiation.h"

namespace horo::engine {

struct Plan {
  int members = 2;
  std::vector<int> host_of;
  size_t capacity = 1024;
  uint64_t threshold = 128 << 20;
  Duration stall_abort = Duration::zero();
  std::optional<TunerOptions> tuner = {};
};

/// Delivers messages and lets members act in an order that a seed decides.
class World {
 public:
  World(const Plan& plan, uint64_t seed) : random_(seed) {
    const collective::Shape shape(plan.host_of);
    NegotiationOptions options;
    options.coordinator.cache_capacity = plan.capacity;
    options.coordinator.fusion.threshold = plan.threshold;
    options.stall_abort = plan.stall_abort;
    options.tuner = plan.tuner;
    for (int member = 0; member < plan.members; ++member) options.coordinator.ranks.push_back(100 + member);
    for (int member = 0; member < plan.members; ++member) {
      const Tree tree = Tree::of(shape, member);
      parents_.push_back(tree.parent);
      members_.push_back(std::make_unique<Negotiation>(tree, options));
    }
    logs_.resize(members_.size());
  }

  Negotiation& at(int member) { return *members_[static_cast<size_t>(member)]; }
  Time now() const { return now_; }
  size_t random(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }
  uint64_t messages() const { return messages_; }

  void step(int member) {
    for (Output& output : at(member).step(now_)) {
      if (auto* send = std::get_if<output::Send>(&output)) {
        ++messages_;
        wires_[{member, send->to}].push_back(std::move(send->message));
      } else {
        take(member, output);
      }
    }
  }

  /// One message, of a random pair; false when none is under way.
  bool deliver() {
    std::erase_if(wires_, [](const auto& wire) { return wire.second.empty(); });
    if (wires_.empty()) return false;
    auto wire = std::next(wires_.begin(), static_cast<long>(random(wires_.size())));
    const auto [from, to] = wire->first;
    std::vector<std::byte> message = std::move(wire->second.front());
    wire->second.pop_front();
    if (on_delivery) on_delivery({from, to, parents_[static_cast<size_t>(to)] == from}, message, wire->second);
    const Status status = at(to).receive(from, message, now_);
    EXPECT_TRUE(status.ok()) << status;
    if (random(2) == 0) step(to);
    return true;
  }

  /// The next message on this way, and what is done about it.
  void deliver(int from, int to) {
    auto& wire = wires_[{from, to}];
    ASSERT_FALSE(wire.empty()) << "nothing is under way from " << from << " to " << to;
    const Status status = at(to).receive(from, wire.front(), now_);
    EXPECT_TRUE(status.ok()) << status;
    wire.pop_front();
    step(to);
  }

  /// Until nothing moves any more; time passes only when everything else is done.
  void settle() {
    for (int quiet = 0; quiet < 3;) {
      while (deliver()) quiet = 0;
      for (int member = 0; member < static_cast<int>(members_.size()); ++member) step(member);
      bool moving = false;
      for (const auto& [pair, wire] : wires_) moving |= !wire.empty();
      if (!moving) {
        now_ += std::chrono::milliseconds(2);
        ++quiet;
      }
    }
  }
  void pass(Duration time) { now_ += time; }
  void announce(int member, const Unit& unit) { at(member).announce(std::make_shared<Unit>(unit), now_); }

  struct Log {
    std::vector<std::string> runs;  ///< Keys, batch by batch, joined by '+', and new settings between them.
    size_t tunings = 0;
    size_t measured = 0;
    std::map<std::string, std::string> failures;
    std::vector<int> joins;
    std::vector<output::Stall> stalls;
    std::optional<std::string> abort;
  };
  const Log& log(int member) const { return logs_[static_cast<size_t>(member)]; }
  std::function<void(int, const std::string&)> on_done = [](int, const std::string&) {};
  std::function<void(int, const Unit&)> on_run = [](int, const Unit&) {};
  std::function<void(int, const std::string&)> on_failed = [](int, const std::string&) {};
  std::function<void(int)> on_joined = [](int) {};

  /// A message that is about to be received; what follows it on its way may be changed, too.
  struct Way {
    int from = 0, to = 0;
    bool down = false;
  };
  using Messages = std::deque<std::vector<std::byte>>;
  std::function<void(const Way&, std::vector<std::byte>& message, Messages& behind)> on_delivery;

 private:
  void take(int member, const Output& output) {
    Log& log = logs_[static_cast<size_t>(member)];
    if (const auto* run = std::get_if<output::Run>(&output)) {
      std::string keys;
      for (const UnitPtr& unit : run->units) {
        keys += (keys.empty() ? "" : "+") + unit->key();
        on_run(member, *unit);
        on_done(member, unit->key());
      }
      log.runs.push_back(keys);
    } else if (const auto* fail = std::get_if<output::Fail>(&output)) {
      log.failures[fail->key] = fail->message;
      on_failed(member, fail->key);
      on_done(member, fail->key);
    } else if (const auto* tune = std::get_if<output::Tune>(&output)) {
      log.runs.push_back(tuning_text(tune->tuning));
      ++log.tunings;
    } else if (const auto* tuned = std::get_if<output::Tuned>(&output)) {
      log.measured += tuned->measured.size();
    } else if (const auto* joined = std::get_if<output::Joined>(&output)) {
      log.joins.push_back(joined->last);
      on_joined(member);
    } else if (const auto* stall = std::get_if<output::Stall>(&output)) {
      log.stalls.push_back(*stall);
    } else if (const auto* abort = std::get_if<output::Abort>(&output)) {
      log.abort = abort->message;
    }
  }

  std::mt19937_64 random_;
  Time now_ = Time() + std::chrono::hours(1);
  std::vector<std::unique_ptr<Negotiation>> members_;
  std::vector<int> parents_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> wires_;
  std::vector<Log> logs_;
  uint64_t messages_ = 0;
};

inline uint64_t base_seed() {
  const char* text = std::getenv("TEST_SEED");  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

inline Unit one(std::string name, Kind kind = Kind::kAllreduce, std::vector<int64_t> shape = {4}) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.kind = kind;
  tensor.dtype = DType::kF32;
  tensor.shape = std::move(shape);
  return {{tensor}};
}

inline Plan plan_for(std::mt19937_64& random, int members) {
  Plan plan;
  plan.members = members;
  const int hosts = std::uniform_int_distribution<int>(1, members)(random);
  for (int member = 0; member < members; ++member) {
    plan.host_of.push_back(std::uniform_int_distribution<int>(0, hosts - 1)(random));
  }
  constexpr size_t kCapacities[] = {0, 1, 3, 1024};
  plan.capacity = kCapacities[random() % 4];
  plan.threshold = random() % 2 == 0 ? 0 : 64;
  return plan;
}

}  // namespace horo::engine
