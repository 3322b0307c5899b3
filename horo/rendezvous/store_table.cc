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
      return list(request.key);
    case StoreVerb::kWaitAll: {
      size_t have = count(request.key);
      if (have >= request.count) return list(request.key);
      waiting_[ticket] = {request, request.count - have};
      return std::nullopt;
    }
  }
  return failed(Status(Code::kInvalidArgument, "an unknown store verb"));
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
    bool all = request.verb == StoreVerb::kWaitAll;
    bool meant = all ? begins_with(new_key, request.key) : new_key == request.key;
    if (!meant || --waiter->second.missing > 0) {
      ++waiter;
      continue;
    }
    answers_.emplace_back(waiter->first, all ? list(request.key) : with_value(entries_.find(new_key)->second));
    waiter = waiting_.erase(waiter);
  }
}

}  // namespace horo::rendezvous
