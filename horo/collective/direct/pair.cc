#include "horo/collective/direct/pair.h"

#include <algorithm>
#include <array>
#include <cstring>

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
  Status status = kernels_.in_turns ? in_turns() : abreast();
  if (status.ok()) status = say_taken();
  if (!status.ok() && in_place()) restore();
  return status;
}

Status Pair::abreast() {
  for (uint64_t step = 0; step <= steps_; ++step) {
    if (step < steps_) HORO_TRY(copy(step, range(step)));
    if (!keeps_late()) kept_ = step;
    if (step > 0) HORO_TRY(take(step - 1, range(step - 1)));
    if (keeps_late()) kept_ = step;
  }
  return {};
}

Status Pair::in_turns() {
  for (uint64_t first = 0; first <= steps_; first += 2) {
    if (first < steps_) HORO_TRY(copy(first, range(first + rank_)));
    if (first > 0) HORO_TRY(take(first - 1, range(first - 2 + rank_)));
    if (first < steps_) HORO_TRY(follow(first + 1, range(first + 1 - rank_)));
  }
  return {};
}

Status Pair::copy(uint64_t place, const Range& part) const {
  kernel::copy(staged(place, part), input(part), part.count * element_, kernels_.staged);
  return say_copied(place);
}

Status Pair::take(uint64_t place, const Range& part) const {
  HORO_TRY(wait_for_peer(place));
  if (!takes()) return {};
  if (keeps_late()) {
    add_and_keep(place, part);
  } else {
    kernels_.combine(output(part), inputs(place, part), part.count, reduction_.scaling);
  }
  return {};
}

void Pair::add_and_keep(uint64_t place, const Range& part) const {
  std::byte* kept = protocol_.staging().data() + part.begin * element_;
  const Range after = range(place + 2);  // The one before that has been copied.
  const std::byte* next = after.count == part.count ? input(after) : nullptr;
  if (kernels_.keeping != nullptr) {
    kernels_.keeping(output(part), kept, input(part), peers(place, part), next, part.count, reduction_.scaling);
  } else {
    kernel::combine_and_keep(kernels_.combine, reduction_.dtype, output(part), kept, rank_, inputs(place, part),
                             part.count, reduction_.scaling, next);
  }
}

Status Pair::follow(uint64_t place, const Range& part) {
  HORO_TRY(wait_for_peer(place - 1));
  if (!takes()) return copy(place, part);
  kernels_.keeping(output(part), staged(place, part), input(part), peers(place - 1, part), nullptr, part.count,
                   reduction_.scaling);
  kept_ = place + 1;
  return say_copied(place);
}

void Pair::restore() const {
  const uint64_t elements = std::min(round_.elements, kept_ * round_.step);
  std::memcpy(output({0, elements}), protocol_.staging().data(), elements * element_);
}

Status Pair::wait_for_peer(uint64_t place) const {
  return protocol_.wait_for(call_, peer_, protocol_.words(peer_).copied.word, count_after(place));
}

Status Pair::say_copied(uint64_t place) const {
  return protocol_.advance(call_, protocol_.words(protocol_.rank()).copied.word, count_after(place));
}

Status Pair::say_taken() const {
  return protocol_.advance(call_, protocol_.words(protocol_.rank()).taken.word, count_after(steps_ - 1));
}

Pair::Range Pair::range(uint64_t step) const {
  const uint64_t begin = std::min(round_.elements, step * round_.step);
  return {begin, std::min(round_.step, round_.elements - begin)};
}

uint64_t Pair::offset(const Descriptor& whose, uint64_t place, const Range& part) const {
  return (whose.contributions == Holding::kRing ? place % whose.pair_ring * round_.step : part.begin) * element_;
}

std::array<const std::byte*, 2> Pair::inputs(uint64_t place, const Range& part) const {
  if (rank_ == 0) return {input(part), peers(place, part)};
  return {peers(place, part), input(part)};
}

std::byte* Pair::staged(uint64_t place, const Range& part) const {
  return protocol_.staging().data() + round_.staged_at + offset(mine_, place, part);
}

const std::byte* Pair::peers(uint64_t place, const Range& part) const {
  const std::byte* segment = protocol_.space().segments[static_cast<size_t>(peer_)].data();
  return segment + theirs_.contribution + offset(theirs_, place, part);
}

}  // namespace horo::collective::direct
