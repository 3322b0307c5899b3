#include "horo/collective/direct/stream.h"

#include <algorithm>
#include <cstring>

#include "horo/base/text.h"

namespace horo::collective::direct {

namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kShortSteps = 16;
constexpr uint64_t kDone = transport::kMaxSteps;  // More than any step: "nothing more comes", "nothing more is needed".

}  // namespace

uint64_t piece_bytes(const Protocol& protocol, bool per_taker) {
  const uint64_t step = protocol.thresholds().step_bytes;
  if (!per_taker) return step;
  const uint64_t share = step / static_cast<uint64_t>(std::max(1, protocol.size() - 1));
  return std::max<uint64_t>(share / 4096 * 4096, 4096);
}

uint64_t short_piece_bytes(const Protocol& protocol, uint64_t bytes) {
  const Thresholds& limits = protocol.thresholds();
  const uint64_t least = std::min(limits.step_bytes, limits.least_step_bytes);
  return std::clamp(bytes / kShortSteps / kLine * kLine, least, limits.step_bytes);
}

Stream::Stream(Protocol& protocol, const Call& call, const Flow& flow)
    : protocol_(protocol),
      call_(call),
      flow_(flow),
      piece_(flow.piece != 0 ? flow.piece : piece_bytes(protocol, flow.per_taker)),
      slot_(flow.per_taker ? piece_ * static_cast<uint64_t>(protocol.size()) : piece_) {
  for (const auto& block : flow.give) {
    give_steps_ = std::max(give_steps_, steps_of(block.size()));
    given_ += block.size();
  }
  for (uint64_t bytes : flow.take) {
    take_steps_ = std::max(take_steps_, steps_of(bytes));
    taken_ += bytes;
  }
  const Thresholds& limits = protocol.thresholds();
  landing_ = taken_ >= limits.stream_bytes() ? kernel::Placement::kStreamed : limits.near();
  pieces_.resize(static_cast<size_t>(protocol.size()));
}

// The ring's length shows to others only in the descriptor, so that it may depend on this core's cache.
Status Stream::choose_ring(Descriptor& mine) {
  const Thresholds& limits = protocol_.thresholds();
  uint64_t wanted = kShortRing * std::max<uint64_t>(1, limits.step_bytes / slot_);
  placement_ = limits.near();
  if (limits.far_rings && std::max(given_, taken_) >= limits.stream_bytes()) {
    placement_ = kernel::Placement::kStreamed;
    wanted = std::max(wanted, limits.far_ring_bytes() / slot_);
  }
  const uint64_t room = protocol_.staging().size() / slot_;
  mine.ring = std::max<uint64_t>(1, std::min({wanted, room, give_steps_}));
  // Who waits for itself to take the last step before it gives the next one waits for ever.
  if (mine.ring == 1 && (give_steps_ > 1 || room == 0)) {
    return Status(Code::kUnavailable, "HORO_STAGING is too small for so many ranks");
  }
  return protocol_.commit(slot_ * mine.ring);
}

bool Stream::votes_for_reading() const {
  if (flow_.begins.empty() || protocol_.space().processes.empty()) return false;
  if (taken_ * static_cast<uint64_t>(protocol_.size()) > protocol_.thresholds().read_bytes) return false;
  return given_ == 0 || transport::can_be_read({flow_.give.front().data(), given_});
}

Status Stream::check(const Descriptor& theirs, int member) const {
  const auto at = static_cast<size_t>(member);
  const uint64_t room =
      theirs.in_place != 0 ? protocol_.space().buffers[at].size() : protocol_.space().segments[at].size();
  const uint64_t bytes = theirs.in_place != 0 ? flow_.take[at] : slot_ * std::min(theirs.ring, room / slot_ + 1);
  if (theirs.ring > 0 && bytes <= room && theirs.offset <= room - bytes) return {};
  return protocol_.lies_outside(call_, member);
}

Status Stream::meet() {
  if (std::max(give_steps_, take_steps_) >= kDone) {
    return protocol_.refuse(call_, Status(Code::kUnavailable, text("a block of more than ", bytes_text(kDone * piece_),
                                                                   " in one operation; divide it among several")));
  }
  Descriptor mine;
  const std::byte* segment = protocol_.space().segments[static_cast<size_t>(protocol_.rank())].data();
  if (!flow_.give.empty()) {
    std::optional<uint64_t> place;
    if (!flow_.per_taker) place = protocol_.offset_in_buffers(flow_.give[0].data(), flow_.give[0].size());
    mine.in_place = place.has_value() ? 1 : 0;
    mine.offset = place.value_or(static_cast<uint64_t>(protocol_.staging().data() - segment));
    mine.address = reinterpret_cast<uintptr_t>(flow_.give.front().data());
    Status room = place ? Status() : choose_ring(mine);
    if (!room.ok()) return protocol_.refuse(call_, room);
  }
  mine.reads = mine.in_place == 0 && votes_for_reading() ? 1 : 0;
  HORO_TRY(protocol_.meet(call_, std::as_bytes(std::span(&mine, 1))));
  descriptors_.resize(static_cast<size_t>(protocol_.size()));
  reads_ = true;
  for (int member = 0; member < protocol_.size(); ++member) {
    Descriptor& theirs = descriptors_[static_cast<size_t>(member)];
    std::memcpy(&theirs, protocol_.payload(member), sizeof theirs);
    reads_ = reads_ && theirs.reads != 0;
    if (flow_.contributes[static_cast<size_t>(member)]) HORO_TRY(check(theirs, member));
  }
  return {};
}

// Step w is contributed before step w - 1 is taken. The slowest member is never waited for by itself: all others have
// taken w - 2 and contributed w - 1 when it comes to step w, which is all it asks of them with a ring of two or more.
Status Stream::run() {
  if (reads_) return read();
  const uint64_t steps = std::max(give_steps_, take_steps_);
  if (take_steps_ == 0) HORO_TRY(protocol_.advance(call_, words(protocol_.rank()).taken.word, count(kDone)));
  for (uint64_t step = 0; step <= steps; ++step) {
    if (step < give_steps_) HORO_TRY(contribute(step));
    if (step >= 1 && step - 1 < take_steps_) HORO_TRY(take(step - 1));
  }
  return finish();
}

Status Stream::contribute(uint64_t step) {
  const int rank = protocol_.rank();
  const Descriptor& mine = descriptors_[static_cast<size_t>(rank)];
  if (mine.in_place != 0 || !flow_.for_others) return {};
  for (int member = 0; step >= mine.ring && member < protocol_.size(); ++member) {
    if (member == rank) continue;
    HORO_TRY(protocol_.wait_for(call_, member, words(member).taken.word, count(step - mine.ring + 1)));
  }
  std::byte* slot = protocol_.staging().data() + (step % mine.ring) * slot_;
  for (size_t taker = 0; taker < flow_.give.size(); ++taker) {
    const auto& block = flow_.give[taker];
    const uint64_t offset = step * piece_;
    if (offset >= block.size() || (flow_.per_taker && static_cast<int>(taker) == rank)) continue;
    kernel::copy(slot + taker * piece_, block.data() + offset, std::min(piece_, block.size() - offset), placement_);
  }
  return protocol_.advance(call_, words(rank).copied.word, count(step + 1));
}

const std::byte* Stream::piece(int member, uint64_t step) const {
  const uint64_t offset = step * piece_;
  const auto rank = static_cast<size_t>(protocol_.rank());
  if (member == protocol_.rank()) return flow_.give[flow_.per_taker ? rank : 0].data() + offset;
  const Descriptor& theirs = descriptors_[static_cast<size_t>(member)];
  const auto at = static_cast<size_t>(member);
  if (theirs.in_place != 0) return protocol_.space().buffers[at].data() + theirs.offset + offset;
  const std::byte* base = protocol_.space().segments[at].data() + theirs.offset;
  return base + (step % theirs.ring) * slot_ + (flow_.per_taker ? rank * piece_ : 0);
}

Status Stream::take(uint64_t step) {
  // The own piece first: it is there.
  for (int i = 0; i < protocol_.size(); ++i) {
    const int member = (protocol_.rank() + i) % protocol_.size();
    const auto at = static_cast<size_t>(member);
    const bool present = step * piece_ < flow_.take[at];
    pieces_[at] = present ? piece(member, step) : nullptr;
    if (!present) continue;
    if (i > 0 && descriptors_[at].in_place == 0) {
      HORO_TRY(protocol_.wait_for(call_, member, words(member).copied.word, count(step + 1)));
    }
    if (!flow_.to.empty()) land(member, step);
  }
  if (flow_.to.empty()) flow_.consume(step * piece_, pieces_);
  const uint64_t taken = step + 1 == take_steps_ ? kDone : step + 1;
  return protocol_.advance(call_, words(protocol_.rank()).taken.word, count(taken));
}

void Stream::land(int member, uint64_t step) {
  const auto at = static_cast<size_t>(member);
  const uint64_t offset = step * piece_;
  if (pieces_[at] == flow_.to[at] + offset) return;
  kernel::copy(flow_.to[at] + offset, pieces_[at], std::min(piece_, flow_.take[at] - offset), landing_);
}

// A word that is frozen before this member has read everything fails the operation for all: from then on the others use
// their memory again, and what was read of it may be anything.
Status Stream::read() {
  const int rank = protocol_.rank();
  for (int i = 0; i < protocol_.size(); ++i) {
    const int member = (rank + i) % protocol_.size();
    const auto at = static_cast<size_t>(member);
    const std::span<std::byte> block(flow_.to[at], flow_.take[at]);
    if (block.empty()) continue;
    if (member == rank) {
      const std::byte* own = flow_.give[flow_.per_taker ? at : 0].data();
      if (own != block.data()) kernel::copy(block.data(), own, block.size(), kernel::Placement::kCached);
      continue;
    }
    const int error = protocol_.space().processes[at]->read(block, descriptors_[at].address + flow_.begins[at]);
    if (error != 0) return protocol_.cannot_read(call_, member, error);
  }
  HORO_TRY(protocol_.advance(call_, words(rank).copied.word, count(kDone)));
  for (int member = 0; member < protocol_.size(); ++member) {
    HORO_TRY(protocol_.wait_for(call_, member, words(member).copied.word, count(kDone)));
  }
  return {};
}

// Says that all is given; waits until all contributions are complete, which decides the operation; and, when peers read
// the caller's own buffer, until they have.
Status Stream::finish() {
  const int rank = protocol_.rank();
  // Only a contributor's word decides anything; another's may be frozen though everything is there.
  if (flow_.contributes[static_cast<size_t>(rank)]) {
    HORO_TRY(protocol_.advance(call_, words(rank).copied.word, count(kDone)));
  }
  for (int member = 0; member < protocol_.size(); ++member) {
    if (!flow_.contributes[static_cast<size_t>(member)]) continue;
    HORO_TRY(protocol_.wait_for(call_, member, words(member).copied.word, count(kDone)));
  }
  if (descriptors_[static_cast<size_t>(rank)].in_place == 0) return {};
  Call patient = call_;
  patient.deadline = Deadline::never();
  for (int member = 0; member < protocol_.size(); ++member) {
    // A member that is gone reads nothing any more; the operation is decided.
    (void)protocol_.wait_for(patient, member, words(member).taken.word, count(kDone)).ok();
  }
  return {};
}

}  // namespace horo::collective::direct
