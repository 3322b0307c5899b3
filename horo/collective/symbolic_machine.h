// For tests: runs the plans of all members without data. Every element is an expression over the members' inputs, every
// transfer a meeting of two posted ends (nothing is buffered), in an order that the test chooses.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "horo/collective/algorithm.h"

namespace horo::collective {

/// Expressions, each kept once, so that equal ones have equal numbers. What an expression looks like is apart from the
/// element it is about: the same bracketing at two offsets is the same expression.
class Expressions {
 public:
  int leaf(int rank) { return keep({0, {rank}}); }
  int scaled_before(int inner) { return keep({1, {inner}}); }
  int scaled_after(int inner) { return keep({2, {inner}}); }
  /// With `any_order` a combination of two is the same both ways.
  int combined(std::vector<int> inner, bool any_order);
  /// The ranks whose inputs take part, as often as they do, sorted.
  std::vector<int> ranks_of(int expression) const;
  std::string text_of(int expression) const;

 private:
  using Node = std::pair<int, std::vector<int>>;
  int keep(const Node& node);

  std::map<Node, int> numbers_;
  std::vector<Node> nodes_;
};

struct Value {
  int expression = -1;  ///< -1: never written.
  uint64_t element = 0;
  friend bool operator==(const Value&, const Value&) = default;
};

/// In which order things happen that may happen in any order.
enum class Schedule { kTransfersFirst, kWorkFirst, kRandom };

class SymbolicMachine {
 public:
  struct Options {
    Schedule schedule = Schedule::kTransfersFirst;
    uint64_t seed = 0;
    bool work_is_input = false;  ///< As in an in-place call without staging.
    bool early = false;          ///< What is complete is delivered while the rest is on its way.
  };
  /// What a member did before its closing barrier.
  struct Account {
    uint64_t bytes = 0;
    uint64_t messages = 0;
    uint64_t reduced = 0;
    uint64_t remote_bytes = 0;
    uint64_t clock = 0;  ///< Length of the longest chain of messages that it waited for.
  };

  SymbolicMachine(Expressions& expressions, const std::vector<Plan>& plans, const std::vector<uint64_t>& input_counts,
                  const Shape& shape, Options options);

  /// Empty when all went well; else the first thing that went wrong.
  std::string run();
  /// Delivers what is left, and returns the output.
  std::vector<Value> result(int rank);
  const Account& account(int rank) const { return members_[static_cast<size_t>(rank)].account; }

 private:
  struct Posted {
    const Transfer* transfer = nullptr;
    uint64_t clock = 0;
  };
  struct Member {
    const Plan* plan = nullptr;
    std::vector<Value> buffers[3];
    std::vector<uint32_t> kept_for;  ///< Of each element of work: the phase before which its old content is kept.
    std::vector<Value> output;
    size_t delivered = 0;
    size_t phase = 0;
    size_t works_done = 0;
    size_t transfers_done = 0;
    uint64_t clock = 0;
    uint64_t next_clock = 0;
    Account account;
  };
  struct Wire {
    std::deque<Posted> sends;
    std::deque<Posted> receives;
  };

  std::vector<Value>& buffer(Member& member, Buffer which);
  bool finished(const Member& member) const { return member.phase == member.plan->phases.size(); }
  bool before_closing(const Member& member) const;
  void enter_phase(size_t rank);
  bool step_transfers();
  bool step_works();
  bool step_phases();
  bool meet(size_t from, size_t to);
  void do_work(size_t rank, const Work& work);
  bool may_deliver(const Member& member) const;
  void deliver_next(Member& member);
  std::vector<Value> read(Member& member, Place place, uint64_t count, const char* what);
  void write(Member& member, Place place, const std::vector<Value>& values);
  Value combine(const Member& member, const std::vector<Value>& values, bool scale);
  void check_hazards(const Plan& plan);
  bool is_no_op(const Plan& plan, const Work& work) const;
  void fail(const std::string& why);
  std::vector<size_t> order(size_t count);

  Expressions& expressions_;
  Shape shape_;
  Options options_;
  std::mt19937_64 random_;
  std::vector<Member> members_;
  std::map<std::pair<size_t, size_t>, Wire> wires_;
  std::string error_;
};

}  // namespace horo::collective
