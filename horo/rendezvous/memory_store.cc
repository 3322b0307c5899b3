#include "horo/rendezvous/memory_store.h"

#include <utility>

#include "horo/base/text.h"

namespace horo::rendezvous {

Result<StoreReply> MemoryStore::exchange(const StoreRequest& request, Deadline deadline) {
  std::unique_lock lock(mutex_);
  StoreTable::Ticket ticket = next_ticket_++;
  std::optional<StoreReply> reply = table_.ask(ticket, request);
  for (auto& [waiter, answer] : table_.take_answers()) {
    answered_.emplace(waiter, std::move(answer));
    changed_.notify_all();
  }
  if (reply) return std::move(*reply);
  auto there = [&] { return answered_.contains(ticket); };
  if (deadline.is_never()) {
    changed_.wait(lock, there);
  } else if (!changed_.wait_until(lock, deadline.at(), there)) {
    table_.forget(ticket);
    return Status(Code::kTimeout, text("what was asked of the store under '",
                                       request.key.empty() ? request.prefix : request.key, "' did not come in time"));
  }
  return std::move(answered_.extract(ticket).mapped());
}

}  // namespace horo::rendezvous
