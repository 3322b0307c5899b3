// Which algorithm runs an operation: a pure function of things that all members hold alike, so that they choose alike.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "horo/collective/algorithm.h"

namespace horo::collective {

/// Algorithms that the user asked for by name, per kind of operation. Empty: the selector is free.
class Forced {
 public:
  Forced() = default;
  /// "ring": for every operation it can do. "allreduce=ring,broadcast=chain": for these. Empty: nothing.
  static Result<Forced> parse(std::string_view words);
  /// For one kind, by a name of the registry.
  Status set(Kind kind, std::string_view algorithm);
  /// Null where the selector is free.
  const Algorithm* of(Kind kind) const { return by_kind_[static_cast<size_t>(kind)]; }

  /// Whether a kind passes in two levels, hosts and what is between them, where a group has both.
  enum class Levels : uint8_t { kFree, kOne, kTwo };
  void set_levels(Kind kind, Levels levels) { levels_[static_cast<size_t>(kind)] = levels; }
  Levels levels(Kind kind) const { return levels_[static_cast<size_t>(kind)]; }

 private:
  std::array<const Algorithm*, transport::kKindCount> by_kind_{};
  std::array<Levels, transport::kKindCount> levels_{};
};

/// What the model expects an algorithm to take, in seconds.
double expected_seconds(const Cost& cost, const Shape& shape, const Table& table);

/// The order in which floats are combined in this group when that must not depend on sizes. Orders for which there is
/// no algorithm are passed over by select().
std::vector<Order> preferred_orders(const Shape& shape, const Table& table);

/// The ways other than the usual one that a kind can take on wires: algorithms that the selector might have chosen, for
/// they keep the order of combination where it must be kept.
std::vector<Way> other_ways(Kind kind, const Shape& shape, const Table& table, const Forced& forced);

/// The applicable algorithm with the lowest expected time. Where the order of combination shows in the bits and
/// Table::deterministic holds, only algorithms of one order, which the group's shape decides, are compared: so the bits
/// of an element depend neither on the size of the call nor on what it was fused with. Operation::way is followed where
/// it names one of these. A forced algorithm is taken, or
/// refused with the reason and the names that would do.
Result<const Algorithm*> select(const Operation& operation, const Shape& shape, const Table& table,
                                const Forced& forced = {});

}  // namespace horo::collective
