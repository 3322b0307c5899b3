#include "horo/group/matching.h"

#include <algorithm>
#include <cstring>

#include "horo/base/text.h"
#include "horo/net/codec.h"

namespace horo::group {

namespace {

constexpr size_t kNoteBytes = 64;

bool may_come_from(const ExpectedMessage& message, int member) {
  return std::find(message.from.begin(), message.from.end(), member) != message.from.end();
}

template <class Queue>
void erase_id(Queue& queue, uint64_t id) {
  std::erase(queue, id);
}

Status mismatch(uint64_t tag, int from, uint64_t sent, int to_here, uint64_t room) {
  return {Code::kMismatch, text("a message with tag ", tag, " from rank ", from, " has ", sent, " bytes, but ",
                                to_here < 0 ? std::string("this rank") : text("rank ", to_here), " expects ", room,
                                "; send and receive tensors of the same size")};
}

}  // namespace

std::vector<std::byte> encode(const MessageNote& note) {
  net::Writer out(kNoteBytes + note.data.size());
  out.u8(static_cast<uint8_t>(note.kind));
  out.u64(note.number);
  out.u64(note.context);
  out.u64(note.tag);
  out.u64(note.bytes);
  out.raw(note.data);
  return out.take();
}

Result<MessageNote> decode_message_note(std::span<const std::byte> letter) {
  net::Reader in(letter, "a note about a message");
  const uint8_t kind = in.u8();
  MessageNote note{.kind = static_cast<MessageNote::Kind>(kind),
                   .number = in.u64(),
                   .context = in.u64(),
                   .tag = in.u64(),
                   .bytes = in.u64()};
  if (in.ok() && (kind < 1 || kind > static_cast<uint8_t>(MessageNote::Kind::kRefuse))) in.fail("of no known kind");
  note.data = in.raw(in.remaining());
  const bool carries = note.kind == MessageNote::Kind::kWhole || note.kind == MessageNote::Kind::kPiece;
  if (in.ok() && !carries && !note.data.empty()) in.fail("with bytes that do not belong there");
  if (in.ok() && note.kind == MessageNote::Kind::kWhole && note.data.size() != note.bytes) in.fail("cut short");
  HORO_TRY(in.finish());
  return note;
}

void Matching::note_deadline(Id id, Deadline deadline) {
  if (!deadline.is_never()) deadlines_.insert({deadline.at(), id});
}

void Matching::end(Id id, const Status& status, int source) {
  Deadline deadline = Deadline::never();
  if (auto send = sends_.find(id); send != sends_.end()) {
    deadline = send->second.message.deadline;
    sends_.erase(send);
  } else if (auto receive = receives_.find(id); receive != receives_.end()) {
    deadline = receive->second.message.deadline;
    receives_.erase(receive);
  }
  if (!deadline.is_never()) deadlines_.erase({deadline.at(), id});
  ended_.push_back({id, status, source});
}

void Matching::urgent(int member, const MessageNote& note) {
  if (lost_.contains(member)) return;
  lanes_[member].urgent.push_back(encode(note));
  busy_.insert(member);
}

void Matching::send(Id id, const OutgoingMessage& message) {
  sends_[id] = {.message = message};
  if (const auto lost = lost_.find(message.to); lost != lost_.end()) return end(id, lost->second);
  note_deadline(id, message.deadline);
  lanes_[message.to].heads.push_back(id);
  busy_.insert(message.to);
}

void Matching::receive(Id id, ExpectedMessage message) {
  const Key key{message.context, message.tag};
  Receiving& receiving = receives_[id];
  receiving.message = std::move(message);
  note_deadline(id, receiving.message.deadline);
  if (const auto waiting = waiting_.find(key); waiting != waiting_.end()) {
    std::list<Arrived>& all = waiting->second;
    const auto fits = [&](const Arrived& one) { return may_come_from(receiving.message, one.from); };
    if (const auto found = std::find_if(all.begin(), all.end(), fits); found != all.end()) {
      const Arrived taken = std::move(*found);
      all.erase(found);
      if (all.empty()) waiting_.erase(waiting);
      return deliver(id, taken);
    }
  }
  for (const int from : receiving.message.from) {
    if (const auto lost = lost_.find(from); lost != lost_.end()) return end(id, lost->second);
  }
  expected_[key].push_back(id);
}

void Matching::deliver(Id id, const Arrived& from) {
  Receiving& receiving = receives_.at(id);
  const ExpectedMessage& message = receiving.message;
  const bool whole = from.note.kind == MessageNote::Kind::kWhole;
  if (from.note.bytes != message.memory.size()) {
    if (!whole) {
      urgent(from.from,
             {.kind = MessageNote::Kind::kRefuse, .number = from.note.number, .bytes = message.memory.size()});
    }
    return end(id, mismatch(message.tag, from.from, from.note.bytes, -1, message.memory.size()));
  }
  if (whole) {
    if (!from.data.empty()) std::memcpy(message.memory.data(), from.data.data(), from.data.size());
    return end(id, {}, from.from);
  }
  if (const auto lost = lost_.find(from.from); lost != lost_.end()) return end(id, lost->second);
  receiving.transfer = Transfer{from.from, from.note.number};
  transfers_[*receiving.transfer] = id;
  urgent(from.from, {.kind = MessageNote::Kind::kAccept, .number = from.note.number});
}

Status Matching::arrived(int from, std::span<const std::byte> letter) {
  HORO_ASSIGN(const MessageNote note, decode_message_note(letter));
  switch (note.kind) {
    case MessageNote::Kind::kWhole:
    case MessageNote::Kind::kOffer:
      came(from, note);
      break;
    case MessageNote::Kind::kAccept:
      accepted(from, note.number);
      break;
    case MessageNote::Kind::kPiece:
      return piece(from, note);
    case MessageNote::Kind::kWithdraw:
      withdrawn(from, note);
      break;
    case MessageNote::Kind::kRefuse:
      refused(from, note);
      break;
  }
  return {};
}

void Matching::came(int from, const MessageNote& note) {
  const Key key{note.context, note.tag};
  Arrived arrived{.from = from, .note = note, .data = {note.data.begin(), note.data.end()}};
  arrived.note.data = {};
  if (const auto expected = expected_.find(key); expected != expected_.end()) {
    std::deque<Id>& ids = expected->second;
    const auto fits = [&](Id id) { return may_come_from(receives_.at(id).message, from); };
    if (const auto found = std::find_if(ids.begin(), ids.end(), fits); found != ids.end()) {
      const Id id = *found;
      ids.erase(found);
      if (ids.empty()) expected_.erase(expected);
      return deliver(id, arrived);
    }
  }
  waiting_[key].push_back(std::move(arrived));
}

// One that was given up here may still be under way: its pieces are dropped.
Status Matching::piece(int from, const MessageNote& note) {
  const auto transfer = transfers_.find({from, note.number});
  if (transfer == transfers_.end()) return {};
  const Id id = transfer->second;
  Receiving& receiving = receives_.at(id);
  const std::span<std::byte> rest = receiving.message.memory.subspan(receiving.got);
  if (note.data.empty() || note.data.size() > rest.size()) {
    return {Code::kCorrupt,
            text("rank ", from, " sent ", note.data.size(), " bytes of a message of which ", rest.size(), " are left")};
  }
  std::memcpy(rest.data(), note.data.data(), note.data.size());
  receiving.got += note.data.size();
  if (receiving.got == receiving.message.memory.size()) {
    transfers_.erase(transfer);
    end(id, {}, from);
  }
  return {};
}

void Matching::accepted(int from, uint64_t number) {
  const auto found = sends_.find(number);
  if (found == sends_.end() || found->second.message.to != from || found->second.stage != Stage::kOffered) return;
  found->second.stage = Stage::kStreaming;
  lanes_[from].streams.push_back(number);
  busy_.insert(from);
}

void Matching::refused(int from, const MessageNote& note) {
  const auto found = sends_.find(note.number);
  if (found == sends_.end() || found->second.message.to != from || found->second.stage == Stage::kLane) return;
  const OutgoingMessage& message = found->second.message;
  erase_id(lanes_[from].streams, note.number);
  erase_id(lanes_[from].handed, note.number);
  if (note.bytes != message.data.size()) {
    return end(note.number, mismatch(message.tag, from, message.data.size(), from, note.bytes));
  }
  end(note.number, {Code::kTimeout,
                    text("rank ", from, " gave up the message with tag ", message.tag, " that was on its way to it")});
}

void Matching::withdrawn(int from, const MessageNote& note) {
  if (const auto waiting = waiting_.find({note.context, note.tag}); waiting != waiting_.end()) {
    waiting->second.remove_if([&](const Arrived& one) { return one.from == from && one.note.number == note.number; });
    if (waiting->second.empty()) waiting_.erase(waiting);
  }
  const auto transfer = transfers_.find({from, note.number});
  if (transfer == transfers_.end()) return;
  const Id id = transfer->second;
  transfers_.erase(transfer);
  end(id, {Code::kTimeout, text("rank ", from, " gave up the message with tag ", note.tag, " while it was coming")});
}

std::optional<std::vector<std::byte>> Matching::next(int member) {
  const auto found = lanes_.find(member);
  if (found == lanes_.end()) return std::nullopt;
  Lane& lane = found->second;
  if (!lane.urgent.empty()) {
    std::vector<std::byte> letter = std::move(lane.urgent.front());
    lane.urgent.pop_front();
    return letter;
  }
  std::deque<Id>& queue = lane.heads.empty() ? lane.streams : lane.heads;
  if (queue.empty()) return std::nullopt;
  const Id id = queue.front();
  Sending& sending = sends_.at(id);
  const OutgoingMessage& message = sending.message;
  MessageNote note{.number = id, .context = message.context, .tag = message.tag, .bytes = message.data.size()};
  if (sending.stage == Stage::kLane && message.data.size() > kMostWhole) {
    note.kind = MessageNote::Kind::kOffer;
    sending.stage = Stage::kOffered;
    queue.pop_front();
    return encode(note);
  }
  const bool whole = sending.stage == Stage::kLane;
  note.kind = whole ? MessageNote::Kind::kWhole : MessageNote::Kind::kPiece;
  const auto rest = message.data.subspan(sending.sent);
  note.data = rest.first(whole ? rest.size() : std::min(rest.size(), kPiece));
  sending.sent += note.data.size();
  if (sending.sent == message.data.size()) {
    queue.pop_front();
    sending.stage = Stage::kHanded;
    lane.handed.push_back(id);
  }
  return encode(note);
}

void Matching::left(int member) {
  Lane& lane = lanes_[member];
  for (const Id id : std::exchange(lane.handed, {})) end(id, {});
  if (lane.urgent.empty() && lane.heads.empty() && lane.streams.empty()) busy_.erase(member);
}

void Matching::lost(int member, const Status& why) {
  if (!lost_.emplace(member, why).second) return;
  lanes_.erase(member);
  busy_.erase(member);
  std::vector<Id> over;
  for (const auto& [id, sending] : sends_) {
    if (sending.message.to == member) over.push_back(id);
  }
  for (const auto& [id, receiving] : receives_) {
    const bool comes = receiving.transfer && receiving.transfer->first == member;
    if (comes || (!receiving.transfer && may_come_from(receiving.message, member))) over.push_back(id);
  }
  for (const Id id : over) give_up(id, why);
}

void Matching::fail_all(const Status& why) {
  for (auto& [id, sending] : sends_) ended_.push_back({id, why});
  for (auto& [id, receiving] : receives_) ended_.push_back({id, why});
  sends_.clear();
  receives_.clear();
  transfers_.clear();
  expected_.clear();
  waiting_.clear();
  lanes_.clear();
  busy_.clear();
  deadlines_.clear();
}

void Matching::give_up(Id id, const Status& why) {
  if (auto send = sends_.find(id); send != sends_.end()) return withdraw(id, send->second, why);
  if (auto receive = receives_.find(id); receive != receives_.end()) return abandon(id, receive->second, why);
}

void Matching::withdraw(Id id, Sending& sending, const Status& why) {
  const OutgoingMessage& message = sending.message;
  if (const auto lane = lanes_.find(message.to); lane != lanes_.end()) {
    for (std::deque<Id>* queue : {&lane->second.heads, &lane->second.streams, &lane->second.handed}) {
      erase_id(*queue, id);
    }
  }
  if (sending.stage == Stage::kOffered || sending.stage == Stage::kStreaming) {
    urgent(message.to,
           {.kind = MessageNote::Kind::kWithdraw, .number = id, .context = message.context, .tag = message.tag});
  }
  end(id, why);
}

void Matching::abandon(Id id, Receiving& receiving, const Status& why) {
  if (receiving.transfer) {
    const auto [from, number] = *receiving.transfer;
    transfers_.erase(*receiving.transfer);
    urgent(from, {.kind = MessageNote::Kind::kRefuse, .number = number, .bytes = receiving.message.memory.size()});
  } else {
    const auto expected = expected_.find({receiving.message.context, receiving.message.tag});
    if (expected != expected_.end()) {
      erase_id(expected->second, id);
      if (expected->second.empty()) expected_.erase(expected);
    }
  }
  end(id, why);
}

void Matching::expire(Time now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Id id = deadlines_.begin()->second;
    const auto send = sends_.find(id);
    const Status why =
        send != sends_.end()
            ? Status(Code::kTimeout, text("rank ", send->second.message.to, " did not take the message with tag ",
                                          send->second.message.tag, " in time"))
            : Status(Code::kTimeout, text("no message with tag ", receives_.at(id).message.tag, " came in time from ",
                                          ranks_text(receives_.at(id).message.from)));
    give_up(id, why);
  }
}

Deadline Matching::deadline() const {
  return deadlines_.empty() ? Deadline::never() : Deadline(deadlines_.begin()->first);
}

std::set<int> Matching::awaited() const {
  std::set<int> members;
  for (const auto& [id, sending] : sends_) members.insert(sending.message.to);
  for (const auto& [id, receiving] : receives_) {
    if (receiving.transfer) {
      members.insert(receiving.transfer->first);
    } else {
      members.insert(receiving.message.from.begin(), receiving.message.from.end());
    }
  }
  return members;
}

}  // namespace horo::group
