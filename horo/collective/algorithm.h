// What an algorithm is: a name, what it can do, what it costs and how its plan is drafted.
//
// One folder per algorithm family, each with an algorithm.cc that defines algorithms(); the build collects the folders
// (module.cmake), so that a new one touches nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horo/collective/operation.h"
#include "horo/collective/plan.h"
#include "horo/collective/table.h"

namespace horo::collective {

/// In which order an element's summands are combined.
enum class Order : uint8_t {
  kNone,   ///< Nothing is combined.
  kRank,   ///< ((0 + 1) + 2) + 3, rounded once at the end.
  kTree,   ///< (0 + 1) + (2 + 3): see TreeShape.
  kHost,   ///< Rank order within each host, then host order.
  kSlice,  ///< Depends on where the element lies: float sums only on request.
};

std::string_view name(Order order);

/// What the busiest rank does, without the closing barrier.
struct Cost {
  uint64_t steps = 0;         ///< Phases with transfers, one after the other.
  uint64_t remote_steps = 0;  ///< Those of them that cross hosts.
  uint64_t messages = 0;      ///< Sent.
  uint64_t bytes = 0;         ///< Sent.
  uint64_t remote_bytes = 0;  ///< Those of them that cross hosts.
  uint64_t reduced = 0;       ///< Bytes read by reductions.
};

/// Everything a draft depends on.
struct Request {
  const Operation& operation;
  const Shape& shape;
  const Table& table;
  const Arithmetic& arithmetic;
  int rank = 0;
  Place source;      ///< Where this member's input begins: the caller's memory, or a prescaled copy.
  size_t start = 0;  ///< The first phase that may be used.

  size_t element_bytes() const { return size_of(operation.dtype); }
};

struct Algorithm {
  std::string_view name;
  Order order = Order::kNone;
  /// Why it cannot do this; empty when it can. Never depends on the number of elements.
  std::string (*refusal)(const Operation& operation, const Shape& shape);
  /// For at least two ranks and one element.
  Cost (*cost)(const Operation& operation, const Shape& shape, const Table& table);
  /// Leaves the result of this member at the beginning of work. Only for at least two ranks and one element.
  void (*draft)(const Request& request, Draft& draft);
};

/// All algorithms of this build, in the order of their folders' names.
std::span<const Algorithm> registry();
const Algorithm* find_algorithm(std::string_view name);

/// The plan of member `rank`. Validates the operation, and adds what is the same for all algorithms: one rank, nothing
/// to move, prescaling, the closing barrier, delivery.
Result<Plan> build_plan(const Algorithm& algorithm, const Operation& operation, const Shape& shape, int rank,
                        const Table& table);

/// "pairwise does not do barrier": the usual refusal.
std::string unsupported(std::string_view algorithm, Kind kind);

/// Completes the remote part of an algorithm that pays no attention to hosts: each rank's traffic goes to other hosts
/// in proportion to the ranks there.
Cost spread_over_hosts(Cost cost, const Shape& shape);

}  // namespace horo::collective
