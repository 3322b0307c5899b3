// The store itself: a pure state machine that answers now, or later when what was asked for is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "horo/rendezvous/store_request.h"

namespace horo::rendezvous {

class StoreTable {
 public:
  /// Names a question; chosen by the caller, unique among those that wait.
  using Ticket = uint64_t;

  /// The answer, or nothing: then it comes out of take_answers() some time.
  std::optional<StoreReply> ask(Ticket ticket, const StoreRequest& request);
  /// Answers to questions that waited and that this or earlier calls of ask() have made possible.
  std::vector<std::pair<Ticket, StoreReply>> take_answers();
  /// The asker is not interested any more.
  void forget(Ticket ticket) { waiting_.erase(ticket); }

  size_t waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    StoreRequest request;
    uint64_t missing = 0;
  };

  Status put(const std::string& key, Bytes value);
  void erase(const std::string& key);
  StoreReply add(const StoreRequest& request);
  std::optional<StoreReply> meet(Ticket ticket, const StoreRequest& request);
  std::optional<StoreReply> list_when_enough(Ticket ticket, const StoreRequest& request);
  StoreReply list(const std::string& prefix) const;
  size_t count(const std::string& prefix) const;
  void wake(const std::string& new_key);

  Entries entries_;
  size_t bytes_ = 0;
  std::map<Ticket, Waiting> waiting_;
  std::vector<std::pair<Ticket, StoreReply>> answers_;
};

}  // namespace horo::rendezvous
