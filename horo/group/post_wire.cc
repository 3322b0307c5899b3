#include "horo/group/post_wire.h"

#include <algorithm>
#include <utility>

#include "horo/base/text.h"

namespace horo::group {

Result<int> Mailbox::member_of(int rank) const {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  if (found != ranks_.end()) return static_cast<int>(found - ranks_.begin());
  return Status(Code::kCorrupt, text("rank ", rank, " sends letters in a group that it is no member of"));
}

Status Mailbox::deliver(int rank, uint64_t offset, std::vector<std::byte> bytes) {
  HORO_ASSIGN(const int member, member_of(rank));
  Sender& sender = senders_[static_cast<size_t>(member)];
  const uint64_t granted = sender.granted.load(std::memory_order_acquire);
  if (bytes.empty() || offset != sender.arrived || bytes.size() > kWireWindow - (sender.arrived - granted)) {
    return {Code::kCorrupt, text("rank ", rank, " sent ", bytes.size(), " bytes of letters at ", offset, ", where ",
                                 kWireWindow - (sender.arrived - granted), " at ", sender.arrived, " are allowed")};
  }
  sender.arrived += bytes.size();
  {
    std::lock_guard lock(mutex_);
    pieces_.push_back({member, std::move(bytes)});
    waiting_.store(pieces_.size(), std::memory_order_release);
  }
  bell_.ring();
  return {};
}

Status Mailbox::credit(int rank, uint64_t taken) {
  HORO_ASSIGN(const int member, member_of(rank));
  senders_[static_cast<size_t>(member)].credited.store(taken);
  bell_.ring();
  return {};
}

std::optional<Mailbox::Piece> Mailbox::next() {
  if (waiting_.load(std::memory_order_acquire) == 0) return std::nullopt;
  std::lock_guard lock(mutex_);
  Piece piece = std::move(pieces_.front());
  pieces_.pop_front();
  waiting_.store(pieces_.size(), std::memory_order_release);
  return piece;
}

std::optional<uint64_t> Mailbox::took(int member, size_t bytes) {
  Sender& sender = senders_[static_cast<size_t>(member)];
  sender.taken += bytes;
  if (sender.taken - sender.granted.load(std::memory_order_relaxed) < kWireWindow / 2) return std::nullopt;
  sender.granted.store(sender.taken, std::memory_order_release);
  return sender.taken;
}

Result<size_t> WireWriter::put(std::span<const std::byte> bytes) {
  const uint64_t written = sent_ + pending_.size();
  const uint64_t credited = mailbox_->credited(member_);
  if (credited > sent_ || written - credited > kWireWindow) {
    return Status(Code::kCorrupt,
                  text("member ", member_, " says that it has taken ", credited, " bytes of letters, where ", sent_,
                       " were sent and at most ", kWireWindow, " are under way"));
  }
  const size_t now = std::min<size_t>(bytes.size(), kWireWindow - (written - credited));
  pending_.insert(pending_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(now));
  return now;
}

void WireWriter::publish() {
  if (pending_.empty()) return;
  const uint64_t offset = std::exchange(sent_, sent_ + pending_.size());
  send_(offset, std::exchange(pending_, {}));
}

}  // namespace horo::group
