#include "horo/collective/direct/allreduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "horo/base/text.h"

namespace horo::collective::direct {

namespace {

constexpr int kMaxInline = 64;  // Members whose pointers fit on the stack.

/// Pointers to one range of everybody's data, in rank order.
class Pointers {
 public:
  explicit Pointers(int size) : size_(static_cast<size_t>(size)) {
    if (size > kMaxInline) heap_.resize(size_);
  }
  const std::byte*& operator[](int member) { return data()[member]; }
  std::span<const std::byte* const> span() { return {data(), size_}; }

 private:
  const std::byte** data() { return heap_.empty() ? stack_.data() : heap_.data(); }
  size_t size_;
  std::array<const std::byte*, kMaxInline> stack_;
  std::vector<const std::byte*> heap_;
};

Status exchanged(Protocol& protocol, const Call& call, const Reduction& reduction, size_t bytes) {
  HORO_TRY(protocol.exchange(call, {reduction.in, bytes}, bytes));
  if (reduction.out == nullptr) return {};
  Pointers inputs(protocol.size());
  for (int member = 0; member < protocol.size(); ++member) {
    inputs[member] = protocol.contribution(member, bytes);
  }
  inputs[protocol.rank()] = reduction.in;
  kernel::combine_many(reduction.dtype, reduction.op)(reduction.out, inputs.span(), reduction.count, reduction.scaling);
  return {};
}

/// What the arrival at a large operation carries: where peers find this member's data, as offsets in its segment.
struct Descriptor {
  uint64_t contribution = 0;
  uint64_t result = 0;
  uint8_t contribution_is_ready = 0;  ///< It lies in the caller's own buffer: nothing is copied in.
  uint8_t result_is_callers = 0;      ///< Peers read the result there: the caller must not return before they have.
};
static_assert(sizeof(Descriptor) <= transport::kInlineBytes);

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
  Status describe();
  Status check(const Descriptor& descriptor, int member) const;
  Status run_round(uint64_t index);
  Status copy_in(uint64_t step);
  Status reduce(uint64_t step);
  Status wait_until_decided();
  Status pull(uint64_t step);
  Status leave_round(uint64_t index);
  Range range(int member, uint64_t step) const;
  const std::byte* contribution(int member) const;
  const std::byte* result(int member) const;
  uint64_t count_after(uint64_t step) const { return protocol_.count(first_step_ + step + 1); }
  const Descriptor& descriptor(int member) const { return descriptors_[static_cast<size_t>(member)]; }

  Protocol& protocol_;
  const Call& call_;
  const Reduction& reduction_;
  const kernel::CombineManyFn combine_;
  const size_t element_;
  const int rank_, size_;
  const uint64_t round_elements_;
  const uint64_t rounds_;
  const uint64_t step_elements_;
  std::vector<Descriptor> descriptors_;
  bool anybody_reads_callers_result_ = false;
  bool wrote_callers_input_ = false;

  // Of the current round: its first element, its elements, elements per slice, steps, steps of earlier rounds.
  uint64_t first_ = 0, elements_ = 0, slice_ = 0, steps_ = 0, first_step_ = 0;
};

constexpr uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

Sliced::Sliced(Protocol& protocol, const Call& call, const Reduction& reduction)
    : protocol_(protocol),
      call_(call),
      reduction_(reduction),
      combine_(kernel::combine_many(reduction.dtype, reduction.op)),
      element_(size_of(reduction.dtype)),
      rank_(protocol.rank()),
      size_(protocol.size()),
      round_elements_(std::min<uint64_t>(reduction.count, protocol.staging().size() / element_)),
      rounds_(divide_up(reduction.count, round_elements_)),
      step_elements_(std::max<uint64_t>(1, protocol.thresholds().step_bytes / element_)) {}

Status Sliced::run() {
  HORO_TRY(describe());
  for (uint64_t index = 0; index < rounds_; ++index) {
    Status status = run_round(index);
    if (!status.ok()) return wrote_callers_input_ ? status.with_contents_lost() : status;
  }
  return {};
}

// Staging holds a round of the tensor in the caller's layout. A rank whose buffers lie in its segment needs none.
Status Sliced::describe() {
  const size_t bytes = reduction_.count * element_;
  auto in = protocol_.offset_in_segment(reduction_.in, bytes);
  auto out = takes() ? protocol_.offset_in_segment(reduction_.out, bytes) : std::nullopt;
  if (!in || !out) {
    Status committed = protocol_.commit(round_elements_ * element_);
    if (!committed.ok()) return protocol_.refuse(call_, committed);
  }
  const std::byte* segment = protocol_.space().segments[static_cast<size_t>(rank_)].data();
  const auto stage = static_cast<uint64_t>(protocol_.staging().data() - segment);
  Descriptor mine{in.value_or(stage), out.value_or(stage), in.has_value(), out.has_value()};
  HORO_TRY(protocol_.meet(call_, std::as_bytes(std::span(&mine, 1))));
  descriptors_.resize(static_cast<size_t>(size_));
  for (int member = 0; member < size_; ++member) {
    Descriptor& theirs = descriptors_[static_cast<size_t>(member)];
    std::memcpy(&theirs, protocol_.payload(member), sizeof theirs);
    HORO_TRY(check(theirs, member));
    anybody_reads_callers_result_ |= theirs.result_is_callers != 0;
  }
  return {};
}

Status Sliced::check(const Descriptor& descriptor, int member) const {
  const uint64_t room = protocol_.space().segments[static_cast<size_t>(member)].size();
  const uint64_t in_bytes = (descriptor.contribution_is_ready != 0 ? reduction_.count : round_elements_) * element_;
  const uint64_t out_bytes = (descriptor.result_is_callers != 0 ? reduction_.count : round_elements_) * element_;
  if (in_bytes <= room && descriptor.contribution <= room - in_bytes && out_bytes <= room &&
      descriptor.result <= room - out_bytes) {
    return {};
  }
  return Status(Code::kCorrupt, text("rank ", protocol_.space().names[static_cast<size_t>(member)],
                                     " describes memory outside its segment in operation ", call_.number));
}

Status Sliced::run_round(uint64_t index) {
  first_ = index * round_elements_;
  elements_ = std::min(round_elements_, reduction_.count - first_);
  // Slices begin on cache lines, so that no two members write the same line.
  const uint64_t line = transport::kCacheLine / element_;
  slice_ = divide_up(divide_up(elements_, static_cast<uint64_t>(size_)), line) * line;
  first_step_ += steps_;
  steps_ = divide_up(slice_, step_elements_);

  // Until the operation is decided an in-place caller's memory is only read. A buffer made by the library gives that up:
  // its slices are replaced as they are done.
  const bool early = takes() && (reduction_.in != reduction_.out || descriptor(rank_).contribution_is_ready != 0);
  const uint64_t lag = early ? 2 : steps_ + 1;
  for (uint64_t step = 0; step < steps_ + lag; ++step) {
    if (step < steps_) HORO_TRY(copy_in(step));
    if (step >= 1 && step - 1 < steps_) HORO_TRY(reduce(step - 1));
    if (step == steps_) HORO_TRY(early ? Status() : wait_until_decided());
    if (step >= lag && takes()) HORO_TRY(pull(step - lag));
  }
  return leave_round(index);
}

Status Sliced::copy_in(uint64_t step) {
  if (descriptor(rank_).contribution_is_ready != 0) return {};
  for (int member = 0; member < size_; ++member) {
    if (member == rank_) continue;  // Nobody else reads this member's share of its own slice.
    const Range part = range(member, step);
    kernel::copy(protocol_.staging().data() + part.begin * element_, reduction_.in + (first_ + part.begin) * element_,
                 part.count * element_);
  }
  return protocol_.advance(call_, protocol_.words(rank_).copied.word, count_after(step));
}

Status Sliced::reduce(uint64_t step) {
  const Range part = range(rank_, step);
  Pointers inputs(size_);
  for (int member = 0; member < size_; ++member) {
    inputs[member] = contribution(member) + part.begin * element_;
    if (member == rank_ || descriptor(member).contribution_is_ready != 0) continue;
    HORO_TRY(protocol_.wait_for(call_, member, protocol_.words(member).copied.word, count_after(step)));
  }
  std::byte* out = descriptor(rank_).result_is_callers != 0 ? reduction_.out + first_ * element_ : protocol_.staging().data();
  wrote_callers_input_ |= out == reduction_.in;
  combine_(out + part.begin * element_, inputs.span(), part.count, reduction_.scaling);
  return protocol_.advance(call_, protocol_.words(rank_).reduced.word, count_after(step));
}

Status Sliced::wait_until_decided() {
  for (int member = 0; member < size_; ++member) {
    HORO_TRY(protocol_.wait_for(call_, member, protocol_.words(member).reduced.word, count_after(steps_ - 1)));
  }
  return {};
}

Status Sliced::pull(uint64_t step) {
  for (int i = 0; i < size_; ++i) {
    const int member = (rank_ + i) % size_;  // Everybody begins elsewhere.
    const Range part = range(member, step);
    HORO_TRY(protocol_.wait_for(call_, member, protocol_.words(member).reduced.word, count_after(step)));
    std::byte* to = reduction_.out + (first_ + part.begin) * element_;
    const std::byte* from = result(member) + part.begin * element_;
    if (to != from) kernel::copy(to, from, part.count * element_);
  }
  return {};
}

Status Sliced::leave_round(uint64_t index) {
  const bool more = index + 1 < rounds_;
  wrote_callers_input_ |= more && reduction_.in == reduction_.out;
  if (!more && !anybody_reads_callers_result_) return {};
  const uint64_t done = protocol_.count(index + 1);
  HORO_TRY(protocol_.advance(call_, protocol_.words(rank_).taken.word, done));
  if (!more && descriptor(rank_).result_is_callers == 0) return {};
  // At the end the outcome is decided: a member that is gone reads nothing any more, and one that is slow must not find
  // the caller's next values.
  Call patient = call_;
  if (!more) patient.deadline = Deadline::never();
  for (int member = 0; member < size_; ++member) {
    Status taken = protocol_.wait_for(patient, member, protocol_.words(member).taken.word, done);
    if (!taken.ok() && more) return taken;
  }
  return {};
}

Sliced::Range Sliced::range(int member, uint64_t step) const {
  const uint64_t begin = std::min(elements_, static_cast<uint64_t>(member) * slice_);
  const uint64_t end = std::min(elements_, begin + slice_);
  const uint64_t from = std::min(end, begin + step * step_elements_);
  return {from, std::min(step_elements_, end - from)};
}

const std::byte* Sliced::contribution(int member) const {
  if (member == rank_) return reduction_.in + first_ * element_;
  const Descriptor& theirs = descriptor(member);
  const std::byte* base = protocol_.space().segments[static_cast<size_t>(member)].data() + theirs.contribution;
  return theirs.contribution_is_ready != 0 ? base + first_ * element_ : base;
}

const std::byte* Sliced::result(int member) const {
  const Descriptor& theirs = descriptor(member);
  const std::byte* base = protocol_.space().segments[static_cast<size_t>(member)].data() + theirs.result;
  return theirs.result_is_callers != 0 ? base + first_ * element_ : base;
}

}  // namespace

Status allreduce(Protocol& protocol, const Call& call, const Reduction& reduction) {
  const size_t bytes = reduction.count * size_of(reduction.dtype);
  const Thresholds& limits = protocol.thresholds();
  if (bytes <= (protocol.size() <= 2 ? limits.slot_bytes : limits.slot_bytes_many)) {
    return exchanged(protocol, call, reduction, bytes);
  }
  return Sliced(protocol, call, reduction).run();
}

}  // namespace horo::collective::direct
