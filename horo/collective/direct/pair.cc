#include "horo/collective/direct/pair.h"

#include <algorithm>
#include <cstring>

#include "horo/collective/direct/pointers.h"

namespace horo::collective::direct {

Pair::Pair(Protocol& protocol, const Call& call, const Reduction& reduction, const Descriptor& mine,
           const Descriptor& theirs, const Round& round, const Kernels& kernels)
    : protocol_(protocol),
      call_(call),
      reduction_(reduction),
      mine_(mine),
      theirs_(theirs),
      round_(round),
      kernels_(kernels),
      element_(size_of(reduction.dtype)),
      rank_(static_cast<uint64_t>(protocol.rank())),
      peer_(1 - protocol.rank()),
      steps_(steps(round.elements, round.step)) {}

Status Pair::run() {
  Status status;
  const uint64_t turns = steps_ / 2;
  for (uint64_t turn = 0; status.ok() && turn <= turns; ++turn) {
    if (turn < turns) status = lead(turn);
    if (status.ok() && turn > 0) status = catch_up(turn - 1);
    if (status.ok() && turn < turns) status = follow(turn);
  }
  if (!status.ok() && mine_.contributions == Holding::kWhole) restore();
  return status;
}

Status Pair::lead(uint64_t turn) {
  const uint64_t place = 2 * turn;
  const Range part = range(place + rank_);
  kernel::copy(staged(place, part), input(part), part.count * element_, kernels_.staged);
  return say_copied(place);
}

Status Pair::follow(uint64_t turn) {
  const uint64_t place = 2 * turn + 1;
  const Range part = range(place - rank_);
  HORO_TRY(wait_for_peer(place - 1));
  const std::byte* theirs = peers(place - 1, part);
  if (kernels_.keeping != nullptr && takes()) {
    kernels_.keeping(output(part), staged(place, part), input(part), theirs, part.count, reduction_.scaling);
  } else {
    kernel::copy(staged(place, part), input(part), part.count * element_, kernels_.staged);
    add(part, theirs);
  }
  kept_ = 2 * turn + 2;
  return say_copied(place);
}

Status Pair::catch_up(uint64_t turn) {
  const uint64_t place = 2 * turn + 1;
  const Range part = range(2 * turn + rank_);
  HORO_TRY(wait_for_peer(place));
  add(part, peers(place, part));
  if (place + 1 < steps_) return {};
  return protocol_.advance(call_, protocol_.words(protocol_.rank()).taken.word, count_after(place));
}

void Pair::add(const Range& part, const std::byte* theirs) const {
  if (!takes()) return;
  Pointers inputs(2);
  inputs[protocol_.rank()] = input(part);
  inputs[peer_] = theirs;
  kernels_.combine(output(part), inputs.span(), part.count, reduction_.scaling);
}

void Pair::restore() const {
  if (!takes()) return;
  const uint64_t elements = std::min(round_.elements, kept_ * round_.step);
  std::memcpy(output({0, elements}), protocol_.staging().data(), elements * element_);
}

Status Pair::wait_for_peer(uint64_t place) const {
  return protocol_.wait_for(call_, peer_, protocol_.words(peer_).copied.word, count_after(place));
}

Status Pair::say_copied(uint64_t place) const {
  return protocol_.advance(call_, protocol_.words(protocol_.rank()).copied.word, count_after(place));
}

Pair::Range Pair::range(uint64_t step) const {
  const uint64_t begin = std::min(round_.elements, step * round_.step);
  return {begin, std::min(round_.step, round_.elements - begin)};
}

uint64_t Pair::offset(const Descriptor& whose, uint64_t place, const Range& part) const {
  return (whose.contributions == Holding::kRing ? place % whose.pair_ring * round_.step : part.begin) * element_;
}

std::byte* Pair::staged(uint64_t place, const Range& part) const {
  return protocol_.staging().data() + offset(mine_, place, part);
}

const std::byte* Pair::peers(uint64_t place, const Range& part) const {
  const std::byte* segment = protocol_.space().segments[static_cast<size_t>(peer_)].data();
  return segment + theirs_.contribution + offset(theirs_, place, part);
}

}  // namespace horo::collective::direct
