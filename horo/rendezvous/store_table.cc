#include "horo/rendezvous/store_table.h"

#include <string_view>

#include "horo/base/text.h"
#include "horo/net/codec.h"

namespace horo::rendezvous {

namespace {

bool begins_with(std::string_view word, std::string_view prefix) { return word.substr(0, prefix.size()) == prefix; }

StoreReply failed(Status status) { return {std::move(status), {}, 0, {}}; }
StoreReply with_value(const Bytes& value) { return {{}, value, 0, {}}; }

}  // namespace

std::optional<StoreReply> StoreTable::ask(Ticket ticket, const StoreRequest& request) {
  if (Status status = check_request(request); !status.ok()) return failed(std::move(status));
  auto present = entries_.find(request.key);
  switch (request.verb) {
    case StoreVerb::kSet:
      return failed(put(request.key, request.value));
    case StoreVerb::kClaim: {
      if (present != entries_.end()) return with_value(present->second);
      Status status = put(request.key, request.value);
      return status.ok() ? with_value(request.value) : failed(std::move(status));
    }
    case StoreVerb::kGet:
      if (present != entries_.end()) return with_value(present->second);
      waiting_[ticket] = {request, 1};
      return std::nullopt;
    case StoreVerb::kAdd:
      return add(request);
    case StoreVerb::kList:
      return list(request.prefix);
    case StoreVerb::kWaitAll:
      return list_when_enough(ticket, request);
    case StoreVerb::kMeet:
      return meet(ticket, request);
    case StoreVerb::kWithdraw:
      if (present != entries_.end() && present->second == request.value) erase(request.key);
      return StoreReply{};
  }
  return failed(Status(Code::kInvalidArgument, "an unknown store verb"));
}

std::optional<StoreReply> StoreTable::meet(Ticket ticket, const StoreRequest& request) {
  auto present = entries_.find(request.key);
  if (present != entries_.end() && present->second != request.value) return with_value(present->second);
  if (present == entries_.end()) {
    if (Status status = put(request.key, request.value); !status.ok()) return failed(std::move(status));
  }
  auto reply = list_when_enough(ticket, request);
  if (reply) reply->value = request.value;
  return reply;
}

std::optional<StoreReply> StoreTable::list_when_enough(Ticket ticket, const StoreRequest& request) {
  size_t have = count(request.prefix);
  if (have >= request.count) return list(request.prefix);
  waiting_[ticket] = {request, request.count - have};
  return std::nullopt;
}

std::vector<std::pair<StoreTable::Ticket, StoreReply>> StoreTable::take_answers() {
  return std::exchange(answers_, {});
}

Status StoreTable::put(const std::string& key, Bytes value) {
  auto place = entries_.find(key);
  bool fresh = place == entries_.end();
  size_t freed = fresh ? 0 : place->second.size();
  size_t added = value.size() + (fresh ? key.size() : 0);
  if (bytes_ - freed + added > StoreLimits::kMostBytes || (fresh && entries_.size() >= StoreLimits::kMostEntries)) {
    return Status(Code::kUnavailable, text("the store is full: ", entries_.size(), " entries, ", bytes_text(bytes_),
                                           "; it is meant for joining, not for data"));
  }
  bytes_ = bytes_ - freed + added;
  entries_.insert_or_assign(key, std::move(value));
  if (fresh) wake(key);
  return {};
}

void StoreTable::erase(const std::string& key) {
  const auto place = entries_.find(key);
  bytes_ -= key.size() + place->second.size();
  entries_.erase(place);
  for (auto& [ticket, waiter] : waiting_) {
    const bool counts = waiter.request.verb != StoreVerb::kGet && begins_with(key, waiter.request.prefix);
    if (counts) ++waiter.missing;
  }
}

StoreReply StoreTable::add(const StoreRequest& request) {
  uint64_t sum = 0;
  if (auto present = entries_.find(request.key); present != entries_.end()) {
    net::Reader reader(present->second, "a number in the store");
    sum = reader.u64();
    if (!reader.finish().ok()) {
      return failed(Status(Code::kInvalidArgument, text("store key '", request.key, "' holds ", present->second.size(),
                                                        " bytes that are no number; use another key")));
    }
  }
  sum += static_cast<uint64_t>(request.delta);
  net::Writer writer;
  writer.u64(sum);
  StoreReply reply = failed(put(request.key, writer.take()));
  reply.sum = static_cast<int64_t>(sum);
  return reply;
}

StoreReply StoreTable::list(const std::string& prefix) const {
  StoreReply reply;
  size_t size = 0;
  for (auto entry = entries_.lower_bound(prefix); entry != entries_.end() && begins_with(entry->first, prefix);
       ++entry) {
    size += entry->first.size() + entry->second.size() + 8;
    if (size > StoreLimits::kMostAnswer) {
      return failed(Status(Code::kUnavailable, text("the entries under '", prefix, "' have more than ",
                                                    bytes_text(StoreLimits::kMostAnswer), " in all")));
    }
    reply.entries.insert(*entry);
  }
  return reply;
}

size_t StoreTable::count(const std::string& prefix) const {
  size_t found = 0;
  for (auto entry = entries_.lower_bound(prefix); entry != entries_.end() && begins_with(entry->first, prefix);
       ++entry) {
    ++found;
  }
  return found;
}

void StoreTable::wake(const std::string& new_key) {
  for (auto waiter = waiting_.begin(); waiter != waiting_.end();) {
    const StoreRequest& request = waiter->second.request;
    bool one = request.verb == StoreVerb::kGet;
    bool meant = one ? new_key == request.key : begins_with(new_key, request.prefix);
    if (!meant || --waiter->second.missing > 0) {
      ++waiter;
      continue;
    }
    StoreReply answer = one ? with_value(entries_.find(new_key)->second) : list(request.prefix);
    if (request.verb == StoreVerb::kMeet) answer.value = request.value;
    answers_.emplace_back(waiter->first, std::move(answer));
    waiter = waiting_.erase(waiter);
  }
}

}  // namespace horo::rendezvous
