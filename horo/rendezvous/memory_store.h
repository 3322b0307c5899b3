// A store inside of one process, for ranks that are threads.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "horo/rendezvous/request_store.h"
#include "horo/rendezvous/store_table.h"

namespace horo::rendezvous {

class MemoryStore final : public RequestStore {
 private:
  Result<StoreReply> exchange(const StoreRequest& request, Deadline deadline) override;

  std::mutex mutex_;
  std::condition_variable changed_;
  StoreTable table_;
  StoreTable::Ticket next_ticket_ = 1;
  std::map<StoreTable::Ticket, StoreReply> answered_;
};

}  // namespace horo::rendezvous
