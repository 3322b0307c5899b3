// The part of the control thread that carries letters between members that share no memory.
#include "horo/base/text.h"
#include "horo/group/control.h"
#include "horo/group/post_wire.h"

namespace horo::group {

namespace {

// Letters leave room in a connection's queue for what keeps the job together.
constexpr size_t kMostQueuedLetters = size_t{16} << 20;

}  // namespace

void Control::add_mailbox(uint64_t group, std::shared_ptr<Mailbox> mailbox) {
  std::lock_guard lock(mutex_);
  mailboxes_[group] = std::move(mailbox);
}

void Control::remove_mailbox(uint64_t group, const Mailbox& mailbox) {
  std::lock_guard lock(mutex_);
  auto found = mailboxes_.find(group);
  if (found != mailboxes_.end() && found->second.get() == &mailbox) mailboxes_.erase(found);
}

void Control::when_released(uint64_t group, std::function<void()> release) {
  std::lock_guard lock(mutex_);
  releases_.emplace(group, std::move(release));
}

void Control::release_more(uint64_t group) {
  std::vector<std::function<void()>> due;
  {
    std::lock_guard lock(mutex_);
    const auto [first, last] = releases_.equal_range(group);
    for (auto it = first; it != last; ++it) due.push_back(std::move(it->second));
    releases_.erase(first, last);
  }
  for (const auto& release : due) release();
}

void Control::send_letters(uint64_t group, int rank, uint64_t offset, std::vector<std::byte> bytes) {
  post([this, group, rank, offset, bytes = std::move(bytes)] {
    auto link = links_.find(rank);
    if (link == links_.end() || link->second->channel.fd() < 0) return;  // It is gone; the group hears of it.
    if (link->second->channel.queued() + bytes.size() <= kMostQueuedLetters) {
      return send(rank, ControlType::kLetters, bytes, {.group = group, .offset = offset});
    }
    auto found = groups_.find(group);
    if (found == groups_.end()) return;
    found->second->give_up(Status(Code::kUnavailable, text("the connection to rank ", rank, " does not take ",
                                                           link->second->channel.queued(), " bytes that wait for it")));
  });
}

void Control::tell_taken(uint64_t group, int rank, uint64_t taken) {
  post([this, group, rank, taken] { send(rank, ControlType::kLettersTaken, {}, {.group = group, .offset = taken}); });
}

void Control::on_letters(int rank, const net::Message& message) {
  const net::FrameHeader& header = message.header;
  std::shared_ptr<Mailbox> mailbox;
  {
    std::lock_guard lock(mutex_);
    auto found = mailboxes_.find(header.group);
    if (found == mailboxes_.end()) return;  // Closed here, and the sender does not know it yet.
    mailbox = found->second;
  }
  const Status status = static_cast<ControlType>(header.type) == ControlType::kLetters
                            ? mailbox->deliver(rank, header.offset, message.payload)
                            : mailbox->credit(rank, header.offset);
  if (status.ok()) return;
  log_.error(status);
  if (auto found = groups_.find(header.group); found != groups_.end()) found->second->give_up(status);
}

}  // namespace horo::group
