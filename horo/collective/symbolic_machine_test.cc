#include "horo/collective/symbolic_machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "horo/base/text.h"
#include "horo/collective/stage.h"

namespace horo::collective {

int Expressions::combined(std::vector<int> inner, bool any_order) {
  if (any_order && inner.size() == 2) std::sort(inner.begin(), inner.end());
  return keep({3, std::move(inner)});
}

int Expressions::keep(const Node& node) {
  auto [found, is_new] = numbers_.try_emplace(node, static_cast<int>(nodes_.size()));
  if (is_new) nodes_.push_back(node);
  return found->second;
}

std::vector<int> Expressions::ranks_of(int expression) const {
  const auto& [kind, inner] = nodes_[static_cast<size_t>(expression)];
  if (kind == 0) return inner;
  std::vector<int> ranks;
  for (int part : inner) {
    auto more = ranks_of(part);
    ranks.insert(ranks.end(), more.begin(), more.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string Expressions::text_of(int expression) const {
  if (expression < 0) return "nothing";
  const auto& [kind, inner] = nodes_[static_cast<size_t>(expression)];
  if (kind == 0) return text(inner[0]);
  std::string out = kind == 1 ? "pre(" : kind == 2 ? "post(" : "(";
  for (size_t i = 0; i < inner.size(); ++i) out += (i > 0 ? " + " : "") + text_of(inner[i]);
  return out + ")";
}

SymbolicMachine::SymbolicMachine(Expressions& expressions, const std::vector<Plan>& plans,
                                 const std::vector<uint64_t>& input_counts, const Shape& shape, Options options)
    : expressions_(expressions), shape_(shape), options_(options), random_(options.seed), members_(plans.size()) {
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    Member& member = members_[rank];
    member.plan = &plans[rank];
    auto& input = member.buffers[static_cast<size_t>(Buffer::kInput)];
    for (uint64_t i = 0; i < input_counts[rank]; ++i) input.push_back({expressions.leaf(static_cast<int>(rank)), i});
    uint64_t work = plans[rank].work_count;
    if (options.work_is_input) {
      input.resize(std::max(work, input_counts[rank]));
    } else {
      member.buffers[static_cast<size_t>(Buffer::kWork)].resize(work);
    }
    member.kept_for.resize(work, UINT32_MAX);
    for (const Overwrite& overwrite : plans[rank].overwrites) {
      auto begin = member.kept_for.begin() + static_cast<std::ptrdiff_t>(overwrite.range.place.offset);
      std::fill_n(begin, overwrite.range.count, overwrite.phase);
    }
    for (uint32_t phase = 0; phase < plans[rank].phases.size(); ++phase) {
      for (const Transfer& transfer : plans[rank].transfers_of(phase)) {
        if (!transfer.keeps) continue;
        auto begin = member.kept_for.begin() + static_cast<std::ptrdiff_t>(transfer.range.place.offset);
        std::fill_n(begin, transfer.range.count, phase);
      }
    }
    member.buffers[static_cast<size_t>(Buffer::kScratch)].resize(plans[rank].scratch_count);
  }
}

std::string SymbolicMachine::run() {
  for (const Member& member : members_) check_hazards(*member.plan);
  for (size_t rank = 0; rank < members_.size(); ++rank) enter_phase(rank);
  while (error_.empty()) {
    bool moved = false;
    switch (options_.schedule) {
      case Schedule::kTransfersFirst:
        moved = step_transfers() || step_works() || step_phases();
        break;
      case Schedule::kWorkFirst:
        moved = step_works() || step_phases() || step_transfers();
        break;
      case Schedule::kRandom: {
        for (size_t which : order(3)) {
          moved = moved || (which == 0 ? step_transfers() : which == 1 ? step_works() : step_phases());
        }
      }
    }
    if (!moved) break;
  }
  if (!error_.empty()) return error_;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (!finished(members_[rank])) return text("deadlock: rank ", rank, " waits in phase ", members_[rank].phase);
  }
  for (const auto& [ends, wire] : wires_) {
    if (!wire.sends.empty() || !wire.receives.empty()) {
      return text("messages left on the wire from ", ends.first, " to ", ends.second);
    }
  }
  return {};
}

std::vector<Value> SymbolicMachine::result(int rank) {
  Member& member = members_[static_cast<size_t>(rank)];
  while (member.delivered < member.plan->deliveries.size()) deliver_next(member);
  return member.output;
}

bool SymbolicMachine::may_deliver(const Member& member) const {
  const auto& deliveries = member.plan->deliveries;
  return options_.early && member.delivered < deliveries.size() && deliveries[member.delivered].phase <= member.phase;
}

void SymbolicMachine::deliver_next(Member& member) {
  const Delivery& delivery = member.plan->deliveries[member.delivered++];
  const auto& from = buffer(member, delivery.from.place.buffer);
  member.output.resize(std::max(member.output.size(), static_cast<size_t>(delivery.offset + delivery.from.count)));
  for (uint64_t i = 0; i < delivery.from.count; ++i) {
    member.output[delivery.offset + i] = from.at(delivery.from.place.offset + i);
  }
}

std::vector<Value>& SymbolicMachine::buffer(Member& member, Buffer which) {
  if (options_.work_is_input && which == Buffer::kWork) which = Buffer::kInput;
  return member.buffers[static_cast<size_t>(which)];
}

bool SymbolicMachine::before_closing(const Member& member) const {
  uint64_t closing = member.plan->needs_closing_barrier ? log2_ceil(members_.size()) : 0;
  return member.phase + closing < member.plan->phases.size();
}

void SymbolicMachine::enter_phase(size_t rank) {
  Member& member = members_[rank];
  member.works_done = member.transfers_done = 0;
  member.next_clock = member.clock;
  if (finished(member)) return;
  for (const Transfer& transfer : member.plan->transfers_of(member.phase)) {
    auto peer = static_cast<size_t>(transfer.peer);
    bool sends = transfer.action == TransferAction::kSend;
    Wire& wire = sends ? wires_[{rank, peer}] : wires_[{peer, rank}];
    (sends ? wire.sends : wire.receives).push_back({&transfer, member.clock});
  }
}

bool SymbolicMachine::step_transfers() {
  std::vector<std::pair<size_t, size_t>> ready;
  for (const auto& [ends, wire] : wires_) {
    if (!wire.sends.empty() && !wire.receives.empty()) ready.push_back(ends);
  }
  if (ready.empty()) return false;
  auto [from, to] = ready[options_.schedule == Schedule::kRandom ? random_() % ready.size() : 0];
  return meet(from, to);
}

bool SymbolicMachine::meet(size_t from, size_t to) {
  Wire& wire = wires_[{from, to}];
  Posted send = wire.sends.front();
  Posted receive = wire.receives.front();
  wire.sends.pop_front();
  wire.receives.pop_front();
  Member& sender = members_[from];
  Member& receiver = members_[to];
  const Transfer& into = *receive.transfer;
  uint64_t count = send.transfer->range.count;
  if (count != into.range.count) {
    fail(text("rank ", from, " sends ", count, " elements where rank ", to, " expects ", into.range.count));
    return true;
  }
  auto values = read(sender, send.transfer->range.place, count, "sends");
  uint64_t bytes = count * sender.plan->element_bytes();
  if (into.action == TransferAction::kReceiveCombine) {
    auto own = read(receiver, into.with, count, "combines with");
    for (uint64_t i = 0; error_.empty() && i < count; ++i) values[i] = combine(receiver, {own[i], values[i]}, false);
    receiver.account.reduced += 2 * bytes;
  }
  if (error_.empty()) write(receiver, into.range.place, values);
  if (before_closing(sender)) {
    sender.account.bytes += bytes;
    sender.account.messages += 1;
    bool remote = shape_.host_of(static_cast<int>(from)) != shape_.host_of(static_cast<int>(to));
    sender.account.remote_bytes += remote ? bytes : 0;
  }
  uint64_t done = std::max(send.clock, receive.clock) + 1;
  for (Member* member : {&sender, &receiver}) {
    member->next_clock = std::max(member->next_clock, done);
    member->transfers_done++;
  }
  return true;
}

bool SymbolicMachine::step_works() {
  for (size_t rank : order(members_.size())) {
    Member& member = members_[rank];
    if (finished(member)) continue;
    if (member.works_done == member.plan->works_of(member.phase).size()) {
      if (!may_deliver(member)) continue;
      deliver_next(member);
      return true;
    }
    do_work(rank, member.plan->works_of(member.phase)[member.works_done++]);
    return true;
  }
  return false;
}

void SymbolicMachine::do_work(size_t rank, const Work& work) {
  Member& member = members_[rank];
  uint64_t count = work.into.count;
  std::vector<std::vector<Value>> sources;
  for (Place place : member.plan->sources_of(work)) sources.push_back(read(member, place, count, "works on"));
  std::vector<Value> values(count);
  for (uint64_t i = 0; error_.empty() && i < count; ++i) {
    std::vector<Value> inner;
    for (const auto& source : sources) inner.push_back(source[i]);
    Value first = inner[0];
    bool has_after = !member.plan->arithmetic.after.none();
    switch (work.action) {
      case WorkAction::kCopy:
        values[i] = first;
        break;
      case WorkAction::kScaleBefore:
        values[i] = {expressions_.scaled_before(first.expression), first.element};
        break;
      case WorkAction::kScaleAfter:
        values[i] = {expressions_.scaled_after(first.expression), first.element};
        break;
      case WorkAction::kCombine:
        values[i] = combine(member, inner, work.scale_after && has_after);
    }
  }
  if (work.action == WorkAction::kCombine) {
    member.account.reduced += count * sources.size() * member.plan->element_bytes();
  }
  if (error_.empty()) write(member, work.into.place, values);
}

bool SymbolicMachine::step_phases() {
  for (size_t rank : order(members_.size())) {
    Member& member = members_[rank];
    if (finished(member) || member.works_done < member.plan->works_of(member.phase).size()) continue;
    if (may_deliver(member)) continue;
    if (member.transfers_done < member.plan->transfers_of(member.phase).size()) continue;
    member.clock = member.next_clock;
    if (before_closing(member)) member.account.clock = member.clock;
    member.phase++;
    enter_phase(rank);
    return true;
  }
  return false;
}

std::vector<Value> SymbolicMachine::read(Member& member, Place place, uint64_t count, const char* what) {
  const auto& values = buffer(member, place.buffer);
  if (place.offset + count > values.size()) {
    fail(text("rank ", member.plan->rank, " ", what, " elements beyond the end of a buffer"));
    return std::vector<Value>(count);
  }
  auto begin = values.begin() + static_cast<std::ptrdiff_t>(place.offset);
  std::vector<Value> out(begin, begin + static_cast<std::ptrdiff_t>(count));
  bool written = std::all_of(out.begin(), out.end(), [](const Value& value) { return value.expression >= 0; });
  if (!written) fail(text("rank ", member.plan->rank, " ", what, " an element before it is written"));
  return out;
}

void SymbolicMachine::write(Member& member, Place place, const std::vector<Value>& values) {
  auto& into = buffer(member, place.buffer);
  if (place.buffer == Buffer::kInput) return fail(text("rank ", member.plan->rank, " writes to its input"));
  if (place.offset + values.size() > into.size()) {
    return fail(text("rank ", member.plan->rank, " writes beyond the end of a buffer"));
  }
  for (uint64_t i = 0; place.buffer == Buffer::kWork && i < values.size(); ++i) {
    if (member.kept_for[place.offset + i] > member.phase) {
      return fail(text("rank ", member.plan->rank, " overwrites in phase ", member.phase, " what it has not kept"));
    }
  }
  std::copy(values.begin(), values.end(), into.begin() + static_cast<std::ptrdiff_t>(place.offset));
}

Value SymbolicMachine::combine(const Member& member, const std::vector<Value>& values, bool scale) {
  std::vector<int> inner;
  for (const Value& value : values) {
    inner.push_back(value.expression);
    if (value.element != values[0].element) fail(text("rank ", member.plan->rank, " combines different elements"));
  }
  const Arithmetic& arithmetic = member.plan->arithmetic;
  int expression = expressions_.combined(inner, commutes(arithmetic.dtype, arithmetic.op));
  return {scale ? expressions_.scaled_after(expression) : expression, values[0].element};
}

/// What runs concurrently must not touch what another writes: the transfers of a phase among each other, and with its
/// local work. (Local work runs in order.) Then the result is the same in every interleaving.
void SymbolicMachine::check_hazards(const Plan& plan) {
  struct Access {
    Range range;
    bool writes;
    size_t item;  ///< Transfers have their own; all local work is one.
  };
  auto same = [&](Buffer one, Buffer other) {
    auto folded = [&](Buffer b) { return options_.work_is_input && b == Buffer::kWork ? Buffer::kInput : b; };
    return folded(one) == folded(other);
  };
  for (size_t phase = 0; phase < plan.phases.size(); ++phase) {
    std::vector<Access> all;
    size_t item = 1;
    for (const Transfer& transfer : plan.transfers_of(phase)) {
      all.push_back({transfer.range, transfer.action != TransferAction::kSend, item});
      if (transfer.action == TransferAction::kReceiveCombine) {
        all.push_back({{transfer.with, transfer.range.count}, false, item});
      }
      ++item;
    }
    for (const Work& work : plan.works_of(phase)) {
      if (is_no_op(plan, work)) continue;
      all.push_back({work.into, true, 0});
      for (Place source : plan.sources_of(work)) all.push_back({{source, work.into.count}, false, 0});
    }
    for (const Delivery& delivery : plan.deliveries) {
      if (options_.early && delivery.phase <= phase) all.push_back({delivery.from, false, 0});
    }
    for (const Access& one : all) {
      for (const Access& other : all) {
        bool overlap = same(one.range.place.buffer, other.range.place.buffer) &&
                       one.range.place.offset < other.range.place.offset + other.range.count &&
                       other.range.place.offset < one.range.place.offset + one.range.count;
        if (overlap && one.writes && one.item != other.item) {
          fail(text("rank ", plan.rank, ", phase ", phase, ": what one transfer writes, another uses"));
        }
      }
    }
  }
}

/// A copy onto itself, as at the root of an in-place broadcast.
bool SymbolicMachine::is_no_op(const Plan& plan, const Work& work) const {
  return options_.work_is_input && work.action == WorkAction::kCopy && work.into.place.buffer == Buffer::kWork &&
         plan.sources_of(work)[0] == Place{Buffer::kInput, work.into.place.offset};
}

void SymbolicMachine::fail(const std::string& why) {
  if (error_.empty()) error_ = why;
}

std::vector<size_t> SymbolicMachine::order(size_t count) {
  std::vector<size_t> all(count);
  std::iota(all.begin(), all.end(), size_t{0});
  if (options_.schedule == Schedule::kRandom) std::shuffle(all.begin(), all.end(), random_);
  return all;
}

namespace {

Plan plan_of(int rank, const std::function<void(Draft&)>& write) {
  Draft draft;
  write(draft);
  Plan plan = std::move(draft).finish({DType::kF32, ReduceOp::kSum, {}, {}});
  plan.rank = rank;
  return plan;
}

std::string run_two(const std::function<void(Draft&)>& first, const std::function<void(Draft&)>& second) {
  Expressions expressions;
  std::vector<Plan> plans{plan_of(0, first), plan_of(1, second)};
  SymbolicMachine machine(expressions, plans, {4, 4}, Shape::on_one_host(2), {});
  return machine.run();
}

constexpr Place kIn{Buffer::kInput, 0};
constexpr Place kOut{Buffer::kWork, 0};

TEST(SymbolicMachine, FindsADeadlock) {
  auto waits_first = [](int peer) {
    return [peer](Draft& draft) {
      draft.receive(0, peer, {kOut, 4});
      draft.send(1, peer, {kIn, 4});
    };
  };
  EXPECT_NE(run_two(waits_first(1), waits_first(0)).find("deadlock"), std::string::npos);
}

TEST(SymbolicMachine, FindsReadsBeforeWrites) {
  auto sends = [](Draft& draft) { draft.send(0, 1, {kOut, 4}); };
  auto receives = [](Draft& draft) { draft.receive(0, 0, {kOut, 4}); };
  EXPECT_NE(run_two(
                [&](Draft& draft) {
                  sends(draft), draft.copy(1, {kOut, 4}, kIn);
                },
                receives)
                .find("before it is"),
            std::string::npos);
}

TEST(SymbolicMachine, FindsSizesThatDiffer) {
  auto sends = [](Draft& draft) { draft.send(0, 1, {kIn, 3}); };
  auto receives = [](Draft& draft) { draft.receive(0, 0, {kOut, 4}); };
  EXPECT_NE(run_two(sends, receives).find("expects"), std::string::npos);
}

TEST(SymbolicMachine, FindsMessagesNobodyReceives) {
  auto sends = [](Draft& draft) { draft.send(0, 1, {kIn, 3}); };
  EXPECT_NE(run_two(sends, [](Draft&) {}).find("deadlock"), std::string::npos);
}

TEST(SymbolicMachine, FindsWorkOnWhatIsStillInFlight) {
  auto sends = [](Draft& draft) { draft.send(0, 1, {kIn, 4}); };
  auto receives = [](Draft& draft) {
    draft.receive(0, 0, {kOut, 4});
    draft.combine(0, {kOut, 4}, kOut, kIn);
  };
  EXPECT_NE(run_two(sends, receives).find("another uses"), std::string::npos);
}

TEST(SymbolicMachine, FindsWritesToTheInput) {
  auto sends = [](Draft& draft) { draft.send(0, 1, {kIn, 4}); };
  auto receives = [](Draft& draft) { draft.receive(0, 0, {kIn, 4}); };
  EXPECT_NE(run_two(sends, receives).find("writes to its input"), std::string::npos);
}

}  // namespace

}  // namespace horo::collective
