#include "horo/collective/direct/sliced.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "horo/collective/direct/descriptor.h"
#include "horo/collective/direct/pair.h"
#include "horo/collective/direct/pointers.h"
#include "horo/collective/direct/push.h"

namespace horo::collective::direct {

namespace {

constexpr uint64_t kShortRing = 4;  // Steps. Two are enough not to wait for oneself; four let members drift a little.
constexpr uint64_t kShortPairRing = 12;  // Of the shorter steps of a pair.

constexpr uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

/// One large allreduce. Elements are counted from the beginning of the current round; there is one round unless the
/// tensor is larger than staging.
class Sliced {
 public:
  Sliced(Protocol& protocol, const Call& call, const Reduction& reduction);
  Status run();

 private:
  struct Range {
    uint64_t begin, count;
  };

  bool takes() const { return reduction_.out != nullptr; }
  bool in_place() const { return reduction_.out == reduction_.in; }
  /// Caller's memory is both input and output and nobody else reads it: what is overwritten can be put back.
  bool restorable() const { return in_place() && mine().results == Holding::kWhole; }
  /// What is overwritten is kept only then, as others read a ring.
  bool keeps_late() const { return restorable() && mine().contributions == Holding::kRing; }
  Status describe();
  Status check(const Descriptor& descriptor, int member) const;
  bool is_paired() const;
  bool all_take_pushes() const;
  Status run_pushes();
  const std::byte* base(int member, Holding holding) const;
  kernel::Placement reduced_placement() const;
  Status run_round(uint64_t index);
  Status run_steps();
  Status run_pair();
  Status copy_in(uint64_t step);
  Status reduce(uint64_t step);
  Status pull(uint64_t step);
  /// Everybody begins elsewhere, and ends with itself.
  int nth_pulled(uint64_t i) const { return (rank_ + 1 + static_cast<int>(i)) % size_; }
  void pull_own_slice();
  void restore();
  Status leave_round(bool more);
  Status wait_for_all(Word& (*word)(transport::MemberWords&), uint64_t count, bool patient = false);

  Range range(int member, uint64_t step) const;
  const std::byte* contribution(int member, uint64_t step) const;
  const std::byte* result(int member, uint64_t step) const;
  std::byte* stage(uint64_t offset) const { return protocol_.staging().data() + offset; }
  bool keeps_apart(uint64_t ring) const;
  uint64_t choose_ring() const;
  uint64_t choose_pair_ring(uint64_t ring) const;
  /// The ring has room for a piece per taker and one result in each step. Pairs put one piece of their shorter steps
  /// after the other.
  uint64_t pieces() const { return static_cast<uint64_t>(size_) + 1; }
  uint64_t whole_bytes() const {
    return divide_up(round_elements_ * element_, transport::kCacheLine) * transport::kCacheLine;
  }
  uint64_t ring_bytes(uint64_t steps) const { return steps * pieces() * step_elements_ * element_; }
  uint64_t ring_slot(const Descriptor& whose, uint64_t step, int piece) const {
    return (step % whose.ring * pieces() + static_cast<uint64_t>(piece)) * step_elements_ * element_;
  }
  uint64_t count_after(uint64_t step) const { return protocol_.count(first_step_ + step + 1); }
  const Descriptor& descriptor(int member) const { return descriptors_[static_cast<size_t>(member)]; }
  const Descriptor& mine() const { return descriptor(rank_); }

  Protocol& protocol_;
  const Call& call_;
  const Reduction& reduction_;
  const size_t element_;
  const int rank_, size_;
  const uint64_t step_elements_;
  const uint64_t pair_elements_;  ///< Of a step of a pair.
  const uint64_t round_elements_;
  const uint64_t rounds_;
  std::vector<Descriptor> descriptors_;
  const bool far_;       ///< The tensor lies in memory rather than in a core's cache, and passes the caches by.
  const bool far_ring_;  ///< Contributions do so, too.
  const kernel::Placement near_;
  const kernel::Placement staged_ = far_ring_ ? kernel::Placement::kStreamed : near_;
  /// Results that others reduced; only the caller reads them.
  const kernel::Placement pulled_to_ = far_ ? kernel::Placement::kReplacing : near_;
  uint64_t ring_at_ = 0;  ///< In staging; before it lies what is kept whole.
  bool paired_ = false;   ///< Two ranks that add fast, without library buffers: everybody reduces everything.
  kernel::CombineManyFn combine_ = nullptr;
  kernel::CombineKeepingFn keeping_ = nullptr;  ///< Of a pair; null: there is none.
  bool in_turns_ = false;                       ///< A pair, both of which keep while they add.
  bool contents_lost_ = false;
  std::optional<Offer> offered_;  ///< Where others may write this member's result.

  // Of the current round: its first element, its elements, elements per slice, steps, steps of earlier rounds, and how
  // many pieces of the others' slices have been pulled.
  uint64_t first_ = 0, elements_ = 0, slice_ = 0, steps_ = 0, first_step_ = 0, pulled_ = 0;
};

// Steps of an operation are counted in 20 bits; very long tensors are cut into longer steps.
uint64_t step_length(size_t bytes, const Reduction& reduction) {
  const uint64_t wanted = std::max<uint64_t>(64, bytes / size_of(reduction.dtype));
  const uint64_t least = divide_up(reduction.count, transport::kMaxSteps / 2);
  return std::max(wanted, divide_up(least, 64) * 64);
}

// Without instructions for it each element of 16 bits takes ten and more to add: 64 Mi elements of bf16 between two
// cores with NEON take 54 ms where both add everything, 36 ms where each adds a half (f32: 45 ms).
bool adds_fast(DType dtype) {
  const kernel::Isa isa = kernel::best();
  const bool converts = isa != kernel::Isa::kGeneric && isa != kernel::Isa::kNeon;
  return converts || (dtype != DType::kF16 && dtype != DType::kBF16);
}

/// Of staging, for one round.
size_t room_of(const Protocol& protocol) {
  const size_t all = protocol.staging().size();
  return all - std::min(all / 2, ring_room(protocol.thresholds(), protocol.size()));
}

Sliced::Sliced(Protocol& protocol, const Call& call, const Reduction& reduction)
    : protocol_(protocol),
      call_(call),
      reduction_(reduction),
      element_(size_of(reduction.dtype)),
      rank_(protocol.rank()),
      size_(protocol.size()),
      step_elements_(step_length(protocol.thresholds().step_bytes, reduction)),
      pair_elements_(step_length(protocol.thresholds().pair_step_bytes, reduction)),
      round_elements_(std::min<uint64_t>(reduction.count, room_of(protocol) / element_)),
      rounds_(divide_up(reduction.count, round_elements_)),
      far_(reduction.count * element_ >= protocol.thresholds().far_bytes()),
      far_ring_(far_ && protocol.thresholds().far_rings),
      near_(protocol.thresholds().near()) {}

Status Sliced::run() {
  Status described = describe();
  if (!described.ok()) return offered_ ? end_pushes(protocol_, reduction_, *offered_, described) : described;
  if (all_take_pushes()) return run_pushes();
  for (uint64_t index = 0; index < rounds_; ++index) {
    Status status = run_round(index);
    if (!status.ok()) return contents_lost_ ? status.with_contents_lost() : status;
  }
  return {};
}

// Out of place, contributions and results pass through a ring. In place, contributions are kept whole, so that what was
// overwritten can be put back if the operation fails. A caller's buffer in the segment is used as it is.
Status Sliced::describe() {
  const size_t bytes = reduction_.count * element_;
  const auto in = protocol_.offset_in_buffers(reduction_.in, bytes);
  const auto out = takes() ? protocol_.offset_in_buffers(reduction_.out, bytes) : std::nullopt;
  const std::byte* segment = protocol_.space().segments[static_cast<size_t>(rank_)].data();
  offered_ = offer_of(protocol_, call_, reduction_);
  const auto stage_at = static_cast<uint64_t>(stage(0) - segment);
  const Holding staged = in_place() ? Holding::kWhole : Holding::kRing;
  const uint64_t ring = choose_ring();
  const bool apart = keeps_apart(ring);
  ring_at_ = apart ? whole_bytes() : 0;
  keeping_ = kernel::combine_keeping(reduction_.dtype, reduction_.op);
  Descriptor mine{.contribution = in.value_or(stage_at + ring_at_),
                  .result = out.value_or(stage_at),
                  .ring = ring,
                  .pair_ring = choose_pair_ring(ring),
                  .contributions = in      ? Holding::kCallers
                                   : apart ? Holding::kRing
                                           : staged,
                  .results = out ? Holding::kCallers : staged,
                  .takes_pushes = static_cast<uint8_t>(offered_.has_value()),
                  .adds_fast = static_cast<uint8_t>(adds_fast(reduction_.dtype)),
                  .keeps = static_cast<uint8_t>(far_ring_ && keeping_ != nullptr)};
  const bool needs_ring = mine.contributions == Holding::kRing || mine.results == Holding::kRing;
  const bool needs_whole = mine.contributions == Holding::kWhole;
  const uint64_t staged_bytes =
      std::max(needs_ring ? ring_at_ + ring_bytes(mine.ring) : 0, needs_whole ? whole_bytes() : 0);
  Status room = staged_bytes <= protocol_.staging().size()
                    ? protocol_.commit(staged_bytes)
                    : Status(Code::kUnavailable, "HORO_STAGING is too small for so many ranks");
  if (!room.ok()) return protocol_.refuse(call_, room);
  HORO_TRY(protocol_.meet(call_, std::as_bytes(std::span(&mine, 1))));
  descriptors_.resize(static_cast<size_t>(size_));
  for (int member = 0; member < size_; ++member) {
    Descriptor& theirs = descriptors_[static_cast<size_t>(member)];
    std::memcpy(&theirs, protocol_.payload(member), sizeof theirs);
    HORO_TRY(check(theirs, member));
  }
  paired_ = is_paired();
  combine_ = kernel::combine_many(reduction_.dtype, reduction_.op, kernel::best(), reduced_placement());
  in_turns_ =
      std::all_of(descriptors_.begin(), descriptors_.end(), [](const Descriptor& one) { return one.keeps != 0; });
  return {};
}

bool Sliced::keeps_apart(uint64_t ring) const {
  const bool fits = whole_bytes() + ring_bytes(ring) <= protocol_.staging().size();
  return in_place() && far_ && !far_ring_ && fits;
}

// Shows to others only in the descriptor, so that it may depend on this core's cache.
uint64_t Sliced::choose_ring() const {
  const uint64_t one = ring_bytes(1);
  const uint64_t steps = divide_up(divide_up(round_elements_, static_cast<uint64_t>(size_)), step_elements_) + 1;
  const uint64_t room = protocol_.staging().size() / one;
  const uint64_t wanted = far_ring_ ? std::min(room, protocol_.thresholds().far_ring_bytes() / one) : kShortRing;
  return std::min(steps, std::max(wanted, kShortRing));
}

// Six steps at least; Pair needs four.
uint64_t Sliced::choose_pair_ring(uint64_t ring) const {
  const uint64_t room = ring_bytes(ring) / (pair_elements_ * element_);
  return far_ring_ ? room : std::min(room, kShortPairRing);
}

Status Sliced::check(const Descriptor& descriptor, int member) const {
  const uint64_t segment = protocol_.space().segments[static_cast<size_t>(member)].size();
  const uint64_t buffers = protocol_.space().buffers[static_cast<size_t>(member)].size();
  const uint64_t ring = ring_bytes(std::min(descriptor.ring, segment / ring_bytes(1) + 1));
  const auto fits = [&](Holding holding, uint64_t offset) {
    const uint64_t room = holding == Holding::kCallers ? buffers : segment;
    const uint64_t bytes = holding == Holding::kCallers ? reduction_.count * element_
                           : holding == Holding::kWhole ? round_elements_ * element_
                                                        : ring;
    return holding <= Holding::kCallers && bytes <= room && offset <= room - bytes;
  };
  const bool counted =
      descriptor.ring > 0 && descriptor.pair_ring > 0 && descriptor.pair_ring <= ring / (pair_elements_ * element_);
  if (counted && fits(descriptor.contributions, descriptor.contribution) &&
      fits(descriptor.results, descriptor.result)) {
    return {};
  }
  return protocol_.lies_outside(call_, member);
}

Status Sliced::run_round(uint64_t index) {
  first_ = index * round_elements_;
  elements_ = std::min(round_elements_, reduction_.count - first_);
  // Slices begin on cache lines, so that no two members write the same line.
  const uint64_t line = transport::kCacheLine / element_;
  slice_ = divide_up(divide_up(elements_, static_cast<uint64_t>(size_)), line) * line;
  first_step_ += steps_;
  steps_ = paired_ ? Pair::steps(elements_, pair_elements_) : divide_up(slice_, step_elements_);
  pulled_ = 0;
  if (paired_) {
    HORO_TRY(run_pair());
    return leave_round(index + 1 < rounds_);
  }
  Status status = run_steps();
  if (!status.ok()) {
    if (restorable()) restore();
    return status;
  }
  if (restorable()) pull_own_slice();
  return leave_round(index + 1 < rounds_);
}

// Pairs write results straight to the caller, where nobody else reads them. A large separate output is in no cache.
kernel::Placement Sliced::reduced_placement() const {
  const size_t bytes = reduction_.count * element_;
  const bool straight = size_ == 2 && takes() && !protocol_.offset_in_buffers(reduction_.out, 1);
  if (straight && !in_place() && bytes >= protocol_.thresholds().stream_bytes()) return kernel::Placement::kStreamed;
  if (!far_) return paired_ ? near_ : kernel::Placement::kCached;
  return paired_ && in_place() ? kernel::Placement::kReplacing : kernel::Placement::kFetched;
}

bool Sliced::is_paired() const {
  return size_ == 2 && std::all_of(descriptors_.begin(), descriptors_.end(), [](const Descriptor& one) {
           return one.contributions != Holding::kCallers && one.results != Holding::kCallers && one.adds_fast != 0;
         });
}

bool Sliced::all_take_pushes() const {
  return std::all_of(descriptors_.begin(), descriptors_.end(), [](const Descriptor& one) {
    return one.takes_pushes != 0 && one.contributions == Holding::kCallers && one.results == Holding::kCallers;
  });
}

Status Sliced::run_pushes() {
  std::vector<Offer> offers;
  for (const Descriptor& theirs : descriptors_) offers.push_back({theirs.contribution, theirs.result});
  return end_pushes(protocol_, reduction_, *offered_, push(protocol_, call_, reduction_, offers, combine_));
}

Status Sliced::run_pair() {
  const Pair::Round round{first_, elements_, pair_elements_, first_step_, ring_at_};
  const Pair::Kernels kernels{combine_, keeping_, in_turns_, staged_};
  return Pair(protocol_, call_, reduction_, mine(), descriptor(1 - rank_), round, kernels).run();
}

// Step t is copied in while the others reduce step t - 1 and pull step t - 2. The slowest member never waits for
// itself: all others have reduced w - 2 and taken w - 3 when it comes to step w.
Status Sliced::run_steps() {
  for (uint64_t step = 0; step < steps_ + 2; ++step) {
    if (step < steps_) HORO_TRY(copy_in(step));
    if (step >= 1 && step - 1 < steps_) HORO_TRY(reduce(step - 1));
    if (step >= 2) HORO_TRY(pull(step - 2));
  }
  // Decided when all slices are reduced, whoever takes them.
  return wait_for_all([](transport::MemberWords& words) -> Word& { return words.reduced.word; },
                      count_after(steps_ - 1));
}

Status Sliced::wait_for_all(Word& (*word)(transport::MemberWords&), uint64_t count, bool patient) {
  Call call = call_;
  if (patient) call.deadline = Deadline::never();
  for (int member = 0; member < size_; ++member) {
    if (member == rank_) continue;
    Status status = protocol_.wait_for(call, member, word(protocol_.words(member)), count);
    if (!status.ok() && !patient) return status;
  }
  return {};
}

Status Sliced::copy_in(uint64_t step) {
  if (mine().contributions == Holding::kCallers) return {};
  const bool ring = mine().contributions == Holding::kRing;
  if (ring && step >= mine().ring) {
    HORO_TRY(wait_for_all([](transport::MemberWords& words) -> Word& { return words.reduced.word; },
                          count_after(step - mine().ring)));
  }
  for (int member = 0; member < size_; ++member) {
    if (member == rank_) continue;  // Nobody else reads this member's share of its own slice.
    const Range part = range(member, step);
    std::byte* to = stage(ring ? ring_at_ + ring_slot(mine(), step, member) : part.begin * element_);
    kernel::copy(to, reduction_.in + (first_ + part.begin) * element_, part.count * element_, staged_);
  }
  return protocol_.advance(call_, protocol_.words(rank_).copied.word, count_after(step));
}

Status Sliced::reduce(uint64_t step) {
  if (mine().results == Holding::kRing && step >= mine().ring) {
    HORO_TRY(wait_for_all([](transport::MemberWords& words) -> Word& { return words.taken.word; },
                          count_after(step - mine().ring)));
  }
  const Range part = range(rank_, step);
  Pointers inputs(size_);
  for (int member = 0; member < size_; ++member) {
    inputs[member] = contribution(member, step);
    if (member == rank_ || descriptor(member).contributions == Holding::kCallers) continue;
    HORO_TRY(protocol_.wait_for(call_, member, protocol_.words(member).copied.word, count_after(step)));
  }
  auto* out = const_cast<std::byte*>(result(rank_, step));  // Our own segment, or the caller's output.
  contents_lost_ |= in_place() && mine().results == Holding::kCallers;
  combine_(out, inputs.span(), part.count, reduction_.scaling);
  return protocol_.advance(call_, protocol_.words(rank_).reduced.word, count_after(step));
}

Status Sliced::pull(uint64_t step) {
  for (uint64_t i = 0; takes() && i < static_cast<uint64_t>(size_); ++i) {
    const int member = nth_pulled(i);
    if (member == rank_ && restorable()) continue;
    const Range part = range(member, step);
    HORO_TRY(protocol_.wait_for(call_, member, protocol_.words(member).reduced.word, count_after(step)));
    std::byte* to = reduction_.out + (first_ + part.begin) * element_;
    const std::byte* from = result(member, step);
    const size_t bytes = part.count * element_;
    if (keeps_late()) {
      kernel::replace(to, stage(part.begin * element_), from, bytes);
    } else if (to != from) {
      kernel::copy(to, from, bytes, pulled_to_);
    }
    ++pulled_;
  }
  return protocol_.advance(call_, protocol_.words(rank_).taken.word, count_after(step));
}

// The one slice whose input is nowhere else is written last, when nothing can fail any more.
void Sliced::pull_own_slice() {
  const Range first = range(rank_, 0);
  const uint64_t end = std::min(elements_, first.begin + slice_);
  kernel::copy(reduction_.out + (first_ + first.begin) * element_, result(rank_, 0), (end - first.begin) * element_);
}

// Puts the caller's input back: everything that was overwritten lies in our own staging.
void Sliced::restore() {
  const auto others = static_cast<uint64_t>(size_ - 1);
  for (uint64_t piece = 0; piece < pulled_; ++piece) {
    const Range part = range(nth_pulled(piece % others), piece / others);
    std::memcpy(reduction_.out + (first_ + part.begin) * element_, stage(part.begin * element_), part.count * element_);
  }
}

// Between rounds staging is used again. At the end the outcome is decided: a member that is gone reads nothing any
// more, and one that is slow must not find the caller's next values.
Status Sliced::leave_round(bool more) {
  contents_lost_ |= more && in_place();
  auto taken = [](transport::MemberWords& words) -> Word& { return words.taken.word; };
  if (more) return wait_for_all(taken, count_after(steps_ - 1));
  if (mine().results == Holding::kCallers) return wait_for_all(taken, count_after(steps_ - 1), true);
  return {};
}

Sliced::Range Sliced::range(int member, uint64_t step) const {
  const uint64_t begin = std::min(elements_, static_cast<uint64_t>(member) * slice_);
  const uint64_t end = std::min(elements_, begin + slice_);
  const uint64_t from = std::min(end, begin + step * step_elements_);
  return {from, std::min(step_elements_, end - from)};
}

const std::byte* Sliced::base(int member, Holding holding) const {
  const auto at = static_cast<size_t>(member);
  const Space& space = protocol_.space();
  return holding == Holding::kCallers ? space.buffers[at].data() : space.segments[at].data();
}

const std::byte* Sliced::contribution(int member, uint64_t step) const {
  const uint64_t begin = range(rank_, step).begin;
  if (member == rank_) return reduction_.in + (first_ + begin) * element_;
  const Descriptor& theirs = descriptor(member);
  const std::byte* base = this->base(member, theirs.contributions) + theirs.contribution;
  if (theirs.contributions == Holding::kRing) return base + ring_slot(theirs, step, rank_);
  return base + ((theirs.contributions == Holding::kCallers ? first_ : 0) + begin) * element_;
}

const std::byte* Sliced::result(int member, uint64_t step) const {
  const uint64_t begin = range(member, step).begin;
  const Descriptor& theirs = descriptor(member);
  const std::byte* base = this->base(member, theirs.results) + theirs.result;
  if (theirs.results == Holding::kRing) return base + ring_slot(theirs, step, size_);
  return base + ((theirs.results == Holding::kCallers ? first_ : 0) + begin) * element_;
}

}  // namespace

size_t ring_room(const Thresholds& thresholds, int members) {
  return kShortRing * (static_cast<size_t>(members) + 1) * thresholds.step_bytes;
}

Status allreduce_by_slices(Protocol& protocol, const Call& call, const Reduction& reduction) {
  return Sliced(protocol, call, reduction).run();
}

}  // namespace horo::collective::direct
