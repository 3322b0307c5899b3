// Small messages between the members of a group: in order per pair, and never a wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/group/bell.h"
#include "horo/group/post_ring.h"
#include "horo/group/post_stream.h"
#include "horo/group/post_wire.h"

namespace horo::group {

class Engine;
class Group;

struct Letter {
  int from = 0;  ///< Member of the group.
  std::vector<std::byte> bytes;
};

/// Members that share memory write into rings in their own segments and ring the reader's bell; all others use the
/// control connections. Either way a sender may be only so far ahead of its reader (kRingBytes, kWireWindow); what it
/// sends beyond that waits in its own memory until pump() can move it, up to kMostQueued for each member.
///
/// Used by one thread at a time: the one that drives the loop. The engine's bell rings when there may be a letter, when
/// pump() may have something to do, and when the group is over; letters that came before that can still be received.
/// What is no letter (damage in shared memory, a peer that sends beyond its window) ends the group: Group::over()
/// tells.
///
///   while (true) {
///     const uint32_t seen = engine.bell().look();
///     post->pump();
///     while (auto letter = post->receive()) ...
///     if (auto why = group->over()) ...
///     engine.bell().wait(seen, deadline, may_spin);
///   }
///
/// Must be gone before its engine. One per group at a time.
class Post {
 public:
  static constexpr size_t kMostBytes = kMostLetterBytes;  ///< Of one message: 64 MiB.
  static constexpr size_t kMostQueued = size_t{256} << 20;
  static constexpr size_t kRingBytes = size_t{64} << 10;

  /// Called by all members, where they make the same calls in the same order: it runs an operation of the group.
  static Result<std::unique_ptr<Post>> open(Engine& engine, const std::shared_ptr<Group>& group,
                                            Deadline deadline = Deadline::never());
  ~Post();
  Post(const Post&) = delete;
  Post& operator=(const Post&) = delete;

  /// Never blocks. To a member that is gone it succeeds: the loss shows in Group::over(). kInvalidArgument for a member
  /// that does not exist or a message that is too long, kUnavailable when there is no memory for it or too much waits
  /// for this member, kForked in a forked child.
  Status send(int member, std::span<const std::byte> message);
  /// The next letter that is here. From one sender in the order of its calls; between senders fair, in any order.
  std::optional<Letter> receive();
  /// Moves what waits, as far as there is room now.
  void pump();

  /// Bytes that wait for room, to all members together, and to one.
  size_t queued() const;
  size_t queued(int member) const { return pairs_[static_cast<size_t>(member)].queue.bytes(); }
  /// "shm", "control", or "none" for this member itself.
  std::string_view transport_name(int member) const;

 private:
  /// What belongs to one member.
  struct Pair {
    std::optional<RingReader> in;  ///< Where memory is shared.
    std::unique_ptr<Outlet> out;   ///< Made by the first letter.
    Assembler assembler;
    OutQueue queue;
  };

  Post(Engine& engine, std::shared_ptr<Group> group);
  Status take_area();
  Status exchange_places(Deadline deadline);
  Status connect_ring(int member, uint64_t place);
  Result<Outlet*> outlet(int member);
  Result<size_t> move(Outlet& out, std::span<const std::byte> prefix, std::span<const std::byte> message);
  Status drain(int member);
  std::optional<Letter> from_ring(int member);
  std::optional<Letter> from_wire();
  std::optional<Letter> from_here();
  void fail(int member, const Status& why);

  RingSlot& slot(int member) const;
  std::span<std::byte> ring(int member) const;

  Engine& engine_;
  const std::shared_ptr<Group> group_;
  const std::shared_ptr<Mailbox> mailbox_;
  std::span<std::byte> area_;  ///< In this rank's segment: slots, then rings, one for each member. Empty: none shared.
  std::vector<uint64_t> places_;  ///< Of the members' areas in their segments.
  std::vector<Pair> pairs_;       ///< By member.
  std::vector<int> local_;        ///< Members that share memory with this one.
  std::deque<Letter> here_;       ///< To itself, and what was left of a piece from the wire.
  std::vector<int> waiting_;      ///< Members with a queue.
  size_t turn_ = 0;               ///< Whose turn it is to be received from.
  bool broken_ = false;
};

}  // namespace horo::group
