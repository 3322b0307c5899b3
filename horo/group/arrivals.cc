#include "horo/group/arrivals.h"

#include <algorithm>

#include "horo/base/text.h"

namespace horo::group {

Arrivals::Name Arrivals::name_of(const net::AttachRequest& about) {
  return {about.group, static_cast<int>(about.connector), about.stream};
}

Status Arrivals::protection_fits(const net::AttachRequest& about) const {
  const bool encrypted = about.protection != net::Protection::kChecksum;
  if (encrypted == options_.encrypt) return {};
  return {Code::kIncompatible,
          text(about.to_string(), ": rank ", about.connector, " runs with HORO_ENCRYPT=", encrypted ? 1 : 0, ", rank ",
               options_.rank, " with HORO_ENCRYPT=", options_.encrypt ? 1 : 0, "; set it equally on all ranks")};
}

Status Arrivals::fits(const net::AttachRequest& about, const Expected& expected) const {
  if (about.epoch != expected.epoch) {
    return {Code::kIncompatible, text(about.to_string(), ": the group belongs to epoch ", expected.epoch)};
  }
  const auto opener = static_cast<int>(about.connector);
  if (expected.openers.count(opener) == 0) {
    return {Code::kInvalidArgument,
            text(about.to_string(), ": rank ", opener, " opens no streams of this group to rank ", options_.rank)};
  }
  if (expected.come.count({opener, about.stream}) > 0) {
    return {Code::kInvalidArgument, text(about.to_string(), ": it is open already")};
  }
  return {};
}

std::vector<Status> Arrivals::expect(uint64_t group, uint64_t epoch, const std::vector<int>& ranks) {
  Expected& expected = expected_[group];
  expected.epoch = epoch;
  for (int rank : ranks) {
    if (rank > options_.rank) expected.openers.insert(rank);
  }
  std::erase(closed_, group);
  std::vector<Status> refused;
  for (auto it = streams_.lower_bound({group, 0, 0}); it != streams_.end() && std::get<0>(it->first) == group;) {
    const int opener = std::get<1>(it->first);
    --early_[opener];
    Status status = fits(it->second.stream.about, expected);
    if (status.ok()) {
      expected.come.emplace(opener, std::get<2>(it->first));
      it->second.until = {};
      ++it;
    } else {
      refused.push_back(std::move(status));
      it = streams_.erase(it);
    }
  }
  return refused;
}

Status Arrivals::admit(const net::AttachRequest& about) const {
  HORO_TRY(protection_fits(about));
  if (auto found = expected_.find(about.group); found != expected_.end()) return fits(about, found->second);
  if (std::find(closed_.begin(), closed_.end(), about.group) != closed_.end()) {
    return {Code::kInvalidArgument, text(about.to_string(), ": the group has its streams already, or is over")};
  }
  if (streams_.count(name_of(about)) > 0) {
    return {Code::kInvalidArgument, text(about.to_string(), ": it is open already")};
  }
  auto early = early_.find(static_cast<int>(about.connector));
  if (early == early_.end() || early->second < kMostEarly) return {};
  return {Code::kUnavailable, text(about.to_string(), ": ", kMostEarly, " streams of rank ", about.connector,
                                   " wait for groups that rank ", options_.rank, " does not know")};
}

void Arrivals::add(net::AttachedStream stream, Time now) {
  const Name name = name_of(stream.about);
  Waiting waiting{std::move(stream), {}};
  const auto& [group, opener, number] = name;
  if (auto found = expected_.find(group); found != expected_.end()) {
    found->second.come.emplace(opener, number);
  } else {
    waiting.until = now + options_.patience;
    ++early_[opener];
  }
  streams_.insert_or_assign(name, std::move(waiting));
}

std::optional<net::AttachedStream> Arrivals::take(uint64_t group, int from, uint32_t stream) {
  auto found = streams_.find({group, from, stream});
  if (found == streams_.end() || expected_.count(group) == 0) return std::nullopt;
  std::optional<net::AttachedStream> taken(std::move(found->second.stream));
  streams_.erase(found);
  return taken;
}

void Arrivals::close(uint64_t group) {
  if (expected_.erase(group) == 0) return;
  closed_.push_back(group);
  if (closed_.size() > kClosedKept) closed_.pop_front();
  std::erase_if(streams_, [&](const auto& entry) { return std::get<0>(entry.first) == group; });
}

void Arrivals::expire(Time now) {
  std::erase_if(streams_, [&](const auto& entry) {
    const bool late = entry.second.until != Time{} && entry.second.until <= now;
    if (late) --early_[std::get<1>(entry.first)];
    return late;
  });
}

Deadline Arrivals::deadline() const {
  Deadline earliest;
  for (const auto& [name, waiting] : streams_) {
    if (waiting.until != Time{}) earliest = earliest.earlier(Deadline(waiting.until));
  }
  return earliest;
}

}  // namespace horo::group
