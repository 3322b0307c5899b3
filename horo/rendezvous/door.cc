#include "horo/rendezvous/door.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "horo/base/text.h"

namespace horo::rendezvous {

namespace {

Bytes bytes_of(const std::string& words) {
  const auto* first = reinterpret_cast<const std::byte*>(words.data());
  return {first, first + words.size()};
}

std::string words_of(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// -1 for anything else than a number.
int number_in(std::string_view words) {
  int number = -1;
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), number);
  return error == std::errc() && end == words.data() + words.size() ? number : -1;
}

/// What follows the last slash.
int last_number(const std::string& key) { return number_in(std::string_view(key).substr(key.rfind('/') + 1)); }

/// Instead of an admission.
constexpr std::string_view kRefused = "refused";

}  // namespace

std::string Door::key(const std::string& rest) const { return text(job_, "/elastic/", rest); }

Status Door::ring(Deadline deadline) {
  HORO_ASSIGN(const int64_t number, store_.add(key("news"), 1, deadline));
  return store_.set(key(text("news/", number)), {}, deadline);
}

std::string Door::door_of(const Newcomer& who) const { return key(text("door/", who.seat)); }
std::string Door::verdict_of(const Newcomer& who) const { return key(text("admit/", who.seat, "/", who.attempt)); }

Status Door::knock(const Newcomer& self, Deadline deadline) {
  HORO_TRY(store_.set(door_of(self), bytes_of(text(self.attempt)), deadline));
  // Either we see here that the slot is gone, or whoever says so sees us at the door.
  const std::string asked = key(text("leave/", self.seat));
  HORO_ASSIGN(const Entries leavers, store_.list(asked, deadline));
  return leavers.contains(asked) ? refuse(self, deadline) : ring(deadline);
}

Status Door::refuse(const Newcomer& who, Deadline deadline) {
  HORO_TRY(store_.claim(verdict_of(who), bytes_of(std::string(kRefused)), deadline).status());
  turn_away(who, deadline);
  return {};
}

Result<Admission> Door::await_admission(const Newcomer& self, Deadline deadline) {
  HORO_ASSIGN(const Bytes found, store_.get(verdict_of(self), deadline));
  if (words_of(found) == kRefused) return Status(Code::kStopped, text("the slot of seat ", self.seat, " is gone"));
  Admission admission;
  std::istringstream words(words_of(found));
  if (words >> admission.generation >> admission.rank >> admission.size && admission.rank >= 0 &&
      admission.rank < admission.size) {
    return admission;
  }
  return Status(Code::kCorrupt, text("the store admits seat ", self.seat, " with '", words.str(), "'"));
}

void Door::turn_away(const Newcomer& self, Deadline deadline) {
  static_cast<void>(store_.withdraw(door_of(self), bytes_of(text(self.attempt)), deadline));
}

Status Door::await_news(uint64_t number, Deadline deadline) {
  return store_.get(key(text("news/", number)), deadline).status();
}

Result<std::vector<Newcomer>> Door::waiting(const std::string& prefix, Deadline deadline) {
  HORO_ASSIGN(const Entries entries, store_.list(prefix, deadline));
  std::vector<Newcomer> found;
  for (const auto& [name, value] : entries) {
    const Newcomer who{last_number(name), number_in(words_of(value))};
    if (who.seat >= 0 && who.attempt > 0) found.push_back(who);
  }
  return found;
}

Result<Changes> Door::look(Deadline deadline) {
  Changes changes;
  HORO_ASSIGN(changes.newcomers, waiting(key("door/"), deadline));
  HORO_ASSIGN(const Entries asked, store_.list(key("leave/"), deadline));
  for (const auto& [name, value] : asked) {
    if (const int seat = last_number(name); seat >= 0) changes.leavers.push_back(seat);
  }
  const auto by_seat = [](const Newcomer& a, const Newcomer& b) { return a.seat < b.seat; };
  std::sort(changes.newcomers.begin(), changes.newcomers.end(), by_seat);
  std::sort(changes.leavers.begin(), changes.leavers.end());
  return changes;
}

Result<std::string> Door::begin_generation(Deadline deadline) {
  HORO_ASSIGN(const int64_t number, store_.add(key("generations"), 1, deadline));
  return text(number);
}

Status Door::admit(const Newcomer& who, const Admission& admission, Deadline deadline) {
  const std::string words = text(admission.generation, " ", admission.rank, " ", admission.size);
  HORO_ASSIGN(const Bytes verdict, store_.claim(verdict_of(who), bytes_of(words), deadline));
  turn_away(who, deadline);
  if (words_of(verdict) == words) return {};
  return {Code::kPeerLost, words_of(verdict) == kRefused
                               ? text("seat ", who.seat, " was refused at the door, as its slot is gone")
                               : text("seat ", who.seat, " was let in by somebody else")};
}

void Door::give_up(const std::string& generation, const std::string& why, Deadline deadline) {
  static_cast<void>(store_.claim(key(text("failed/", generation)), bytes_of(why), deadline));
}

Status Door::check(const std::string& generation, Deadline deadline) {
  HORO_ASSIGN(const Entries failed, store_.list(key(text("failed/", generation)), deadline));
  const auto found = failed.find(key(text("failed/", generation)));
  if (found == failed.end()) return {};
  return {Code::kPeerLost, text("the job could not begin anew with those who wait: ", words_of(found->second))};
}

Status Door::ask_to_leave(int seat, const std::string& why, Deadline deadline) {
  HORO_TRY(store_.set(key(text("leave/", seat)), bytes_of(why), deadline));
  HORO_ASSIGN(const std::vector<Newcomer> here, waiting(door_of({seat, 0}), deadline));
  for (const Newcomer& who : here) {
    if (who.seat == seat) HORO_TRY(refuse(who, deadline));
  }
  return ring(deadline);
}

Result<std::set<int>> Door::admitted(Deadline deadline) {
  // First those at the door: whoever is let in meanwhile is found among the verdicts.
  HORO_ASSIGN(const std::vector<Newcomer> here, waiting(key("door/"), deadline));
  const std::string prefix = key("admit/");
  HORO_ASSIGN(const Entries verdicts, store_.list(prefix, deadline));
  std::set<int> seats;
  for (const auto& [name, value] : verdicts) {
    const std::string_view rest = std::string_view(name).substr(prefix.size());  // SEAT/ATTEMPT
    const int seat = number_in(rest.substr(0, rest.find('/')));
    if (seat >= 0 && words_of(value) != kRefused) seats.insert(seat);
  }
  for (const Newcomer& who : here) {
    if (!verdicts.contains(verdict_of(who))) seats.erase(who.seat);
  }
  return seats;
}

void Door::newcomer_ended(int seat, Deadline deadline) {
  const auto here = waiting(door_of({seat, 0}), deadline);
  if (!here.ok()) return;
  for (const Newcomer& who : *here) {
    if (who.seat == seat) turn_away(who, deadline);
  }
  const auto verdicts = store_.list(key(text("admit/", seat, "/")), deadline);
  if (!verdicts.ok()) return;
  for (const auto& [name, value] : *verdicts) {
    if (words_of(value) == kRefused) continue;
    std::string generation;
    std::istringstream(words_of(value)) >> generation;
    // Of a generation that has come about it changes nothing.
    give_up(generation, text("seat ", seat, " ended before it had joined"), deadline);
  }
}

}  // namespace horo::rendezvous
