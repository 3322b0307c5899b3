#include "horo/collective/direct/allreduce.h"

#include <array>
#include <cstring>
#include <optional>

#include "horo/collective/direct/pointers.h"
#include "horo/collective/direct/push.h"
#include "horo/collective/direct/sliced.h"

namespace horo::collective::direct {

namespace {

kernel::CombineManyFn combine_of(const Reduction& reduction) {
  return kernel::combine_many(reduction.dtype, reduction.op);
}

/// After everybody's inputs were exchanged.
void combine_all(Protocol& protocol, const Reduction& reduction, size_t bytes) {
  if (reduction.out == nullptr) return;
  Pointers inputs(protocol.size());
  for (int member = 0; member < protocol.size(); ++member) {
    inputs[member] = protocol.contribution(member, bytes);
  }
  inputs[protocol.rank()] = reduction.in;
  combine_of(reduction)(reduction.out, inputs.span(), reduction.count, reduction.scaling);
}

Status exchanged(Protocol& protocol, const Call& call, const Reduction& reduction, size_t bytes) {
  HORO_TRY(protocol.exchange(call, {reduction.in, bytes}, bytes));
  combine_all(protocol, reduction, bytes);
  return {};
}

/// What the arrival of one of two members carries, if the inputs would fit into slots.
struct Bid {
  Offer offer;
  uint64_t made = 0;  ///< Then nothing lies in its slot.
};
static_assert(sizeof(Bid) <= transport::kInlineBytes);

// Nobody knows before the meeting what the other brings. So if only one has offered, they exchange in a second one.
Status pushed_or_exchanged(Protocol& protocol, const Call& call, const Reduction& reduction, size_t bytes) {
  const std::optional<Offer> offer = offer_of(protocol, call, reduction);
  if (!offer) std::memcpy(protocol.next_slot(), reduction.in, bytes);
  const Bid mine{offer.value_or(Offer{}), offer ? uint64_t{1} : uint64_t{0}};
  Status met = protocol.meet(call, std::as_bytes(std::span(&mine, 1)));
  if (!met.ok()) return offer ? end_pushes(protocol, reduction, *offer, met) : met;
  Bid theirs;
  std::memcpy(&theirs, protocol.payload(1 - protocol.rank()), sizeof theirs);
  if (theirs.made != mine.made) return exchanged(protocol, call, reduction, bytes);
  if (!offer) {
    combine_all(protocol, reduction, bytes);
    return {};
  }
  std::array<Offer, 2> offers = {theirs.offer, theirs.offer};
  offers[static_cast<size_t>(protocol.rank())] = *offer;
  return end_pushes(protocol, reduction, *offer, push(protocol, call, reduction, offers, combine_of(reduction)));
}

}  // namespace

Status allreduce(Protocol& protocol, const Call& call, const Reduction& reduction) {
  const size_t bytes = reduction.count * size_of(reduction.dtype);
  const Thresholds& limits = protocol.thresholds();
  if (bytes > (protocol.size() <= 2 ? limits.slot_bytes : limits.slot_bytes_many)) {
    return allreduce_by_slices(protocol, call, reduction);
  }
  if (protocol.size() == 2 && bytes > limits.slot_bytes_many) {
    return pushed_or_exchanged(protocol, call, reduction, bytes);
  }
  return exchanged(protocol, call, reduction, bytes);
}

}  // namespace horo::collective::direct
