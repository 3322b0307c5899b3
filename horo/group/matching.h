// Which message is whose: by group, sender and tag, and among equals in the order in which they were sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"

namespace horo::group {

/// What two members tell each other about messages.
struct MessageNote {
  enum class Kind : uint8_t {
    kWhole = 1,     ///< A small message, all of it.
    kOffer = 2,     ///< A large one waits at its sender.
    kAccept = 3,    ///< Its receiver has a place for it.
    kPiece = 4,     ///< The next bytes of one that was accepted.
    kWithdraw = 5,  ///< Its sender gave it up.
    kRefuse = 6,    ///< Its receiver does not take it; `bytes` is what it has room for.
  };
  Kind kind = Kind::kWhole;
  uint64_t number = 0;   ///< Of the message, at its sender.
  uint64_t context = 0;  ///< The group.
  uint64_t tag = 0;
  uint64_t bytes = 0;  ///< Of the message.
  std::span<const std::byte> data;
};
std::vector<std::byte> encode(const MessageNote& note);
/// `data` views `letter`.
Result<MessageNote> decode_message_note(std::span<const std::byte> letter);

struct OutgoingMessage {
  int to = 0;
  uint64_t context = 0;
  uint64_t tag = 0;
  std::span<const std::byte> data;
  Deadline deadline = Deadline::never();
};

struct ExpectedMessage {
  std::vector<int> from;  ///< Members it may come from.
  uint64_t context = 0;
  uint64_t tag = 0;
  std::span<std::byte> memory;
  Deadline deadline = Deadline::never();
};

/// A state machine: no thread, no clock, no wire. Messages up to kMostWhole go at once and wait at the receiver; larger
/// ones wait at their sender until the receiver has a place, so that nobody buffers them. To each member there is a
/// lane: what next() gives for it is to be sent in that order; left() says that all of it is out of this rank's hands.
class Matching {
 public:
  static constexpr size_t kMostWhole = size_t{32} << 10;
  static constexpr size_t kPiece = size_t{30} << 10;  ///< Two fit into a ring: one is read while the next is written.

  /// Chosen by the caller, rising.
  using Id = uint64_t;
  struct End {
    Id id = 0;
    Status status;
    int source = -1;  ///< Of one that was received.
  };

  void send(Id id, const OutgoingMessage& message);
  void receive(Id id, ExpectedMessage message);
  /// A letter from a member. kCorrupt for what no member would send.
  Status arrived(int from, std::span<const std::byte> letter);
  /// What has come from it before is still received.
  void lost(int member, const Status& why);
  /// Nothing works any more.
  void fail_all(const Status& why);
  /// Ends what should be done by now.
  void expire(Time now);

  std::optional<std::vector<std::byte>> next(int member);
  void left(int member);
  /// Members that next() may have something for, or that left() should be told about.
  const std::set<int>& busy() const { return busy_; }

  std::vector<End> take_ended() { return std::exchange(ended_, {}); }
  /// When expire() has something to do.
  Deadline deadline() const;
  /// Members that something here waits for.
  std::set<int> awaited() const;

 private:
  using Key = std::pair<uint64_t, uint64_t>;  ///< Context and tag.
  using Transfer = std::pair<int, uint64_t>;  ///< Sender and number.
  enum class Stage : uint8_t { kLane, kOffered, kStreaming, kHanded };
  struct Sending {
    OutgoingMessage message;
    Stage stage = Stage::kLane;
    size_t sent = 0;
  };
  struct Receiving {
    ExpectedMessage message;
    std::optional<Transfer> transfer;
    size_t got = 0;
  };
  struct Arrived {
    int from = 0;
    MessageNote note;
    std::vector<std::byte> data;
  };
  struct Lane {
    std::deque<std::vector<std::byte>> urgent;
    std::deque<Id> heads, streams, handed;
  };

  void end(Id id, const Status& status, int source = -1);
  void give_up(Id id, const Status& why);
  void withdraw(Id id, Sending& sending, const Status& why);
  void abandon(Id id, Receiving& receiving, const Status& why);
  void urgent(int member, const MessageNote& note);
  void deliver(Id id, const Arrived& from);
  void came(int from, const MessageNote& note);
  Status piece(int from, const MessageNote& note);
  void accepted(int from, uint64_t number);
  void refused(int from, const MessageNote& note);
  void withdrawn(int from, const MessageNote& note);
  void note_deadline(Id id, Deadline deadline);

  std::map<Id, Sending> sends_;
  std::map<Id, Receiving> receives_;
  std::map<Transfer, Id> transfers_;           ///< Large messages that are coming in.
  std::map<Key, std::deque<Id>> expected_;     ///< Receives without a message, in order.
  std::map<Key, std::list<Arrived>> waiting_;  ///< Messages without a receive, in order.
  std::map<int, Lane> lanes_;
  std::map<int, Status> lost_;
  std::set<std::pair<Time, Id>> deadlines_;
  std::set<int> busy_;
  std::vector<End> ended_;
};

}  // namespace horo::group
