// Letters over control connections: where the control thread puts what has come, and how far ahead a sender may be.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "horo/base/status.h"
#include "horo/group/bell.h"
#include "horo/group/post_stream.h"

namespace horo::group {

/// Bytes of one sender, in one group, that its receiver has not taken yet. The receiver tells what it took, at the
/// latest every half of a window. What comes beyond it ends the group: nobody can make a rank hold more.
inline constexpr uint64_t kWireWindow = uint64_t{256} << 10;

/// Between the control thread and the thread that uses a Post.
class Mailbox {
 public:
  struct Piece {
    int from = 0;
    std::vector<std::byte> bytes;
  };

  Mailbox(std::vector<int> ranks, Bell& bell) : ranks_(std::move(ranks)), bell_(bell), senders_(ranks_.size()) {}

  // By the control thread. kCorrupt for what cannot be.
  Status deliver(int rank, uint64_t offset, std::vector<std::byte> bytes);
  /// `rank` has taken so many of our bytes in all.
  Status credit(int rank, uint64_t taken);

  // By the thread that uses the Post.
  std::optional<Piece> next();
  /// A piece was used. When it is time to tell the sender: how much was taken of it in all.
  std::optional<uint64_t> took(int member, size_t bytes);
  /// Bytes that `member` has taken of ours.
  uint64_t credited(int member) const { return senders_[static_cast<size_t>(member)].credited.load(); }

 private:
  struct Sender {
    uint64_t arrived = 0;               ///< Of the control thread.
    std::atomic<uint64_t> granted{0};   ///< What it was told that we took of its bytes.
    uint64_t taken = 0;                 ///< Of the other thread.
    std::atomic<uint64_t> credited{0};  ///< What it took of ours.
  };
  Result<int> member_of(int rank) const;

  const std::vector<int> ranks_;
  Bell& bell_;
  std::vector<Sender> senders_;
  std::atomic<size_t> waiting_{0};  ///< Size of pieces_, to be read without the lock.
  std::mutex mutex_;
  std::deque<Piece> pieces_;
};

/// Hands bytes of the stream to `member` to the control thread, as far as the window allows.
class WireWriter : public Outlet {
 public:
  using Send = std::function<void(uint64_t offset, std::vector<std::byte> bytes)>;
  WireWriter(std::shared_ptr<const Mailbox> mailbox, int member, Send send)
      : mailbox_(std::move(mailbox)), member_(member), send_(std::move(send)) {}

  Result<size_t> put(std::span<const std::byte> bytes) override;
  void publish() override;

 private:
  const std::shared_ptr<const Mailbox> mailbox_;
  const int member_;
  const Send send_;
  uint64_t sent_ = 0;
  std::vector<std::byte> pending_;
};

}  // namespace horo::group
