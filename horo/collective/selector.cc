#include "horo/collective/selector.h"

#include <algorithm>

#include "horo/base/text.h"

namespace horo::collective {

namespace {

std::string names_of(const std::vector<const Algorithm*>& algorithms) {
  std::string names;
  for (const Algorithm* algorithm : algorithms) names += text(names.empty() ? "" : ", ", algorithm->name);
  return names;
}

Result<const Algorithm*> named(std::string_view name) {
  if (const Algorithm* found = find_algorithm(name)) return found;
  std::vector<std::string_view> words;
  std::vector<const Algorithm*> all;
  for (const Algorithm& algorithm : registry()) {
    words.push_back(algorithm.name);
    all.push_back(&algorithm);
  }
  auto nearest = nearest_word(name, words);
  return Status(Code::kInvalidArgument,
                text("there is no algorithm '", name, "'",
                     nearest.empty() ? "" : text(" (did you mean ", nearest, "?)"), "; the names are ", names_of(all)));
}

Result<Kind> kind_named(std::string_view word) {
  std::string names;
  for (int kind = 0; kind <= static_cast<int>(Kind::kSendRecv); ++kind) {
    auto name = transport::name(static_cast<Kind>(kind));
    if (name == word) return static_cast<Kind>(kind);
    names += text(names.empty() ? "" : ", ", name);
  }
  return Status(Code::kInvalidArgument, text("there is no operation '", word, "'; the names are ", names));
}

/// Whether an algorithm can do a kind at all, in some group: asked of a group with two levels.
bool does(const Algorithm& algorithm, Kind kind) {
  Operation operation;
  operation.kind = kind;
  operation.dtype = DType::kF32;
  return algorithm.refusal(operation, Shape({0, 0, 1, 1})).empty();
}

std::vector<const Algorithm*> applicable(const Operation& operation, const Shape& shape) {
  std::vector<const Algorithm*> fitting;
  for (const Algorithm& algorithm : registry()) {
    if (algorithm.refusal(operation, shape).empty()) fitting.push_back(&algorithm);
  }
  return fitting;
}

/// Those with as many levels as the user wants, if there are any.
void keep_levels(std::vector<const Algorithm*>& candidates, Forced::Levels levels) {
  if (levels == Forced::Levels::kFree) return;
  std::vector<const Algorithm*> fitting;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(fitting), [&](const Algorithm* algorithm) {
    return (algorithm->order == Order::kHost) == (levels == Forced::Levels::kTwo);
  });
  if (!fitting.empty()) candidates = std::move(fitting);
}

/// Where the order shows in the bits, only the algorithms of one order are compared.
void keep_order(std::vector<const Algorithm*>& candidates, const Operation& operation, const Shape& shape,
                const Table& table) {
  if (!order_matters(operation) || !table.deterministic) return;
  for (Order order : preferred_orders(shape, table)) {
    std::vector<const Algorithm*> fitting;
    std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(fitting),
                 [&](const Algorithm* algorithm) { return algorithm->order == order; });
    if (fitting.empty()) continue;
    candidates = std::move(fitting);
    return;
  }
}

/// What the members of an alltoall know alike: that there is one. Its counts differ from member to member.
Operation as_all_members_see_it(const Operation& operation, const Shape& shape) {
  Operation common = operation;
  if (operation.kind == Kind::kAlltoall) common.counts.assign(static_cast<size_t>(shape.ranks()), 1);
  return common;
}

}  // namespace

Result<Forced> Forced::parse(std::string_view words) {
  Forced forced;
  while (!words.empty()) {
    auto word = words.substr(0, words.find(','));
    words.remove_prefix(std::min(words.size(), word.size() + 1));
    auto equals = word.find('=');
    if (equals != std::string_view::npos) {
      HORO_ASSIGN(Kind kind, kind_named(word.substr(0, equals)));
      HORO_TRY(forced.set(kind, word.substr(equals + 1)));
      continue;
    }
    HORO_ASSIGN(const Algorithm* algorithm, named(word));
    for (int kind = 0; kind <= static_cast<int>(Kind::kSendRecv); ++kind) {
      if (does(*algorithm, static_cast<Kind>(kind))) forced.by_kind_[static_cast<size_t>(kind)] = algorithm;
    }
  }
  return forced;
}

Status Forced::set(Kind kind, std::string_view algorithm) {
  HORO_ASSIGN(const Algorithm* found, named(algorithm));
  if (!does(*found, kind)) return {Code::kInvalidArgument, unsupported(found->name, kind)};
  by_kind_[static_cast<size_t>(kind)] = found;
  return {};
}

double expected_seconds(const Cost& cost, const Shape& shape, const Table& table) {
  auto figure = [](uint64_t value) { return static_cast<double>(value); };
  double seconds = figure(cost.steps - cost.remote_steps) * table.local_step;
  seconds += figure(cost.remote_steps) * table.remote_step;
  seconds += figure(cost.messages) * table.message;
  seconds += figure(cost.bytes - cost.remote_bytes) * table.local_byte;
  // The members of a host share its link.
  seconds += figure(cost.remote_bytes) * table.remote_byte * shape.most_per_host();
  return seconds + figure(cost.reduced) * table.reduced_byte;
}

std::vector<Order> preferred_orders(const Shape& shape, const Table& table) {
  std::vector<Order> orders;
  if (shape.hosts().size() > 1 && shape.most_per_host() > 1) orders.push_back(Order::kHost);
  bool few = static_cast<uint32_t>(shape.ranks()) <= table.rank_order_limit;
  orders.push_back(few ? Order::kRank : Order::kTree);
  orders.push_back(few ? Order::kTree : Order::kRank);
  return orders;
}

std::vector<Way> other_ways(Kind kind, const Shape& shape, const Table& table, const Forced& forced) {
  std::vector<Way> ways;
  if (forced.of(kind) != nullptr) return ways;
  Operation operation;
  operation.kind = kind;
  operation.dtype = DType::kF32;
  operation.counts.assign(static_cast<size_t>(shape.ranks()), 1);
  std::vector<const Algorithm*> candidates = applicable(operation, shape);
  keep_levels(candidates, forced.levels(kind));
  keep_order(candidates, operation, shape, table);
  if (candidates.size() < 2) return ways;
  for (const Algorithm* algorithm : candidates) {
    const auto index = algorithm - registry().data();
    ways.push_back({.algorithm = static_cast<uint8_t>(index + 1)});
  }
  return ways;
}

Result<const Algorithm*> select(const Operation& operation, const Shape& shape, const Table& table,
                                const Forced& forced) {
  auto candidates = applicable(operation, shape);
  if (const Algorithm* wanted = forced.of(operation.kind)) {
    std::string refusal = wanted->refusal(operation, shape);
    if (refusal.empty()) return wanted;
    return Status(Code::kInvalidArgument,
                  text("the algorithm asked for cannot run here: ", refusal, "; possible are ", names_of(candidates)));
  }
  HORO_CHECK(!candidates.empty(), "every operation has an algorithm");
  keep_levels(candidates, forced.levels(operation.kind));
  keep_order(candidates, operation, shape, table);
  const size_t way = operation.way.algorithm;
  const Algorithm* tuned = way > 0 && way <= registry().size() ? &registry()[way - 1] : nullptr;
  if (std::find(candidates.begin(), candidates.end(), tuned) != candidates.end()) return tuned;
  if (shape.ranks() == 1 || operation.total() == 0) return candidates.front();
  Operation common = as_all_members_see_it(operation, shape);
  auto seconds = [&](const Algorithm* algorithm) {
    return expected_seconds(algorithm->cost(common, shape, table), shape, table);
  };
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](const Algorithm* one, const Algorithm* other) { return seconds(one) < seconds(other); });
}

}  // namespace horo::collective
