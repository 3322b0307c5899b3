#include "horo/collective/direct/protocol.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <system_error>

#include "horo/base/text.h"

namespace horo::collective::direct {

using transport::Arrival;
using transport::Kind;
using transport::Waited;

Protocol::Protocol(Space space, const Thresholds& thresholds) : space_(std::move(space)), thresholds_(thresholds) {
  HORO_CHECK(space_.own.size() > slots_bytes(), "a staging area holds the slots and room for large operations");
}

Status Protocol::stopped(const Call& call) const {
  if (late_) return late_->with_operation(call.number);
  return Status(Code::kStopped, "the group was revoked").with_operation(call.number);
}

Status Protocol::advance(const Call& call, Word& word, uint64_t count) const {
  return word.advance(count) ? Status() : stopped(call);
}

Status Protocol::wait_for(const Call& call, int member, Word& word, uint64_t count) const {
  switch (transport::await(space_, member, word, count, call.deadline)) {
    case Waited::kArrived:
      return {};
    case Waited::kRevoked:
      return stopped(call);
    case Waited::kTimeout:
      break;
  }
  late_ = Status(Code::kTimeout,
                 text("operation ", call.number, " (", call.signature.to_string(), ") still waits for rank ",
                      space_.names[static_cast<size_t>(member)], " at its deadline"))
              .with_operation(call.number);
  // Nobody may succeed with this member's share while it fails. What the words say when they are frozen they say to
  // everybody, so one that has come by now has come in time.
  space_.page.revoke({});
  return word.read().count() >= count ? Status() : *late_;
}

Status Protocol::gather(const Call& call, std::span<const std::byte> payload) {
  ++meeting_;
  Arrival& mine = arrival(rank());
  mine.signature = call.signature;
  if (!payload.empty()) std::memcpy(mine.payload.data(), payload.data(), payload.size());
  HORO_TRY(advance(call, mine.word, meeting_));
  for (int member = 0; member < size(); ++member) {
    if (member == rank()) continue;
    HORO_TRY(wait_for(call, member, arrival(member).word, meeting_));
  }
  return {};
}

Status Protocol::meet(const Call& call, std::span<const std::byte> payload) {
  HORO_TRY(gather(call, payload));
  return compare(call);
}

Status Protocol::compare(const Call& call) const {
  int odd = -1;
  for (int member = 0; member < size(); ++member) {
    const Arrival& theirs = arrival(member);
    if (theirs.signature == call.signature) continue;
    if (theirs.signature.kind == Kind::kRefused) {
      std::string why(reinterpret_cast<const char*>(theirs.payload.data()), transport::kInlineBytes);
      return Status(Code::kUnavailable, text("rank ", space_.names[static_cast<size_t>(member)],
                                             " cannot take part in operation ", call.number, ": ", why.c_str()))
          .with_operation(call.number);
    }
    if (odd < 0) odd = member;
  }
  if (odd < 0) return {};
  return Status(
             Code::kMismatch,
             text("operation ", call.number, " differs between ranks: rank ", space_.names[static_cast<size_t>(rank())],
                  " calls ", call.signature.beside(arrival(odd).signature), ", rank ",
                  space_.names[static_cast<size_t>(odd)], " calls ", arrival(odd).signature.beside(call.signature),
                  "; all ranks must make the same calls in the same order"))
      .with_operation(call.number);
}

Status Protocol::refuse(const Call& call, const Status& why) {
  Call refusal = call;
  refusal.signature.kind = Kind::kRefused;
  std::string reason = why.message().substr(0, transport::kInlineBytes - 1);
  reason.push_back('\0');
  HORO_TRY(gather(refusal, std::as_bytes(std::span(reason))));
  return why.with_operation(call.number);
}

Status Protocol::lies_outside(const Call& call, int member) const {
  return Status(Code::kCorrupt, text("rank ", space_.names[static_cast<size_t>(member)],
                                     " describes memory outside its segment in operation ", call.number))
      .with_operation(call.number);
}

// Most likely it was killed. Whoever watches it knows that soon, and freezes this member's words, too; all members
// wait for this one of them.
Status Protocol::cannot_read(const Call& call, int member, int error) const {
  constexpr auto kDeathShows = std::chrono::seconds(5);
  const Deadline soon = call.deadline.earlier(Deadline::after(kDeathShows));
  Word& own = words(rank()).copied.word;
  if (transport::await(space_, member, own, count(transport::kMaxSteps), soon) != Waited::kTimeout) {
    return stopped(call);
  }
  late_ = Status(Code::kCorrupt, text("operation ", call.number, " (", call.signature.to_string(), "): what rank ",
                                      space_.names[static_cast<size_t>(member)],
                                      " gives cannot be read in its memory: ", std::generic_category().message(error),
                                      "; with HORO_READ_PEERS=0 ranks copy it to memory that they share"))
              .with_operation(call.number);
  space_.page.revoke({});
  return *late_;
}

// All members came to the last meeting, so nobody reads what was brought to the one before it, in the next slot.
Status Protocol::exchange(const Call& call, std::span<const std::byte> mine, size_t bytes,
                          std::span<const std::byte> rest) {
  const bool small = bytes <= transport::kInlineBytes;
  if (small && rest.empty()) return meet(call, mine);
  std::array<std::byte, transport::kInlineBytes> inlined;
  std::byte* to = small ? inlined.data() : next_slot();
  if (!mine.empty()) std::memcpy(to, mine.data(), mine.size());
  if (!rest.empty()) std::memcpy(to + mine.size(), rest.data(), rest.size());
  return meet(call, std::span(inlined).first(small ? mine.size() + rest.size() : 0));
}

const std::byte* Protocol::contribution(int member, size_t bytes) const {
  if (bytes <= transport::kInlineBytes) return payload(member);
  return slot(member);
}

Status Protocol::commit(size_t bytes) {
  if (bytes <= committed_ || !space_.commit) return {};
  HORO_TRY(space_.commit(slots_bytes() + bytes));
  committed_ = bytes;
  return {};
}

std::optional<uint64_t> Protocol::offset_in_buffers(const std::byte* memory, size_t bytes) const {
  if (space_.own_buffers == nullptr || !space_.own_buffers->shows(memory, bytes)) return std::nullopt;
  return static_cast<uint64_t>(memory - space_.buffers[static_cast<size_t>(rank())].data());
}

bool Protocol::all_came() const {
  for (int member = 0; member < size(); ++member) {
    if (arrival(member).word.read().count() < meeting_) return false;
  }
  return true;
}

}  // namespace horo::collective::direct
