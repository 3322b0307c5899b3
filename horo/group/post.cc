#include "horo/group/post.h"

#include <algorithm>
#include <new>

#include "horo/base/text.h"
#include "horo/group/control.h"
#include "horo/group/engine.h"

namespace horo::group {

Post::Post(Engine& engine, std::shared_ptr<Group> group)
    : engine_(engine),
      group_(std::move(group)),
      mailbox_(std::make_shared<Mailbox>(group_->ranks(), engine.bell())),
      pairs_(static_cast<size_t>(group_->size())) {}

Post::~Post() {
  if (!engine_.control_->forked()) engine_.control_->remove_mailbox(group_->id(), *mailbox_);
}

std::string_view Post::transport_name(int member) const {
  if (member == group_->member()) return "none";
  return pairs_[static_cast<size_t>(member)].in ? "shm" : "control";
}

size_t Post::queued() const {
  size_t bytes = 0;
  for (int member : waiting_) bytes += pairs_[static_cast<size_t>(member)].queue.bytes();
  return bytes;
}

// The ring's memory becomes real here: a rank writes to few of its members.
Result<Outlet*> Post::outlet(int member) {
  Pair& pair = pairs_[static_cast<size_t>(member)];
  if (pair.out) return pair.out.get();
  const int rank = group_->ranks()[static_cast<size_t>(member)];
  if (pair.in) {
    HORO_TRY(engine_.memory_->commit(ring(member), kRingBytes, 0));
    const PeerMemory& peer = *engine_.control_->link(rank)->memory;
    const auto* theirs =
        reinterpret_cast<const RingSlot*>(peer.segment.memory().data() + places_[static_cast<size_t>(member)]);
    pair.out = std::make_unique<RingWriter>(slot(member).head, ring(member), theirs[group_->member()].tail,
                                            peer.header().bell);
  } else {
    auto send = [control = engine_.control_.get(), group = group_->id(), rank](uint64_t offset, auto bytes) {
      control->send_letters(group, rank, offset, std::move(bytes));
    };
    pair.out = std::make_unique<WireWriter>(mailbox_, member, std::move(send));
  }
  return pair.out.get();
}

Status Post::send(int member, std::span<const std::byte> message) {
  if (engine_.control_->forked()) return {Code::kForked, "a forked child cannot send to the members of a group"};
  if (member < 0 || member >= group_->size() || message.size() > kMostBytes) {
    return {Code::kInvalidArgument, text("cannot send ", message.size(), " bytes to member ", member, " of ",
                                         group_->size(), "; at most ", kMostBytes, " bytes fit into a message")};
  }
  if (member == group_->member()) {
    here_.push_back({member, {message.begin(), message.end()}});
    engine_.bell().ring();
    return {};
  }
  HORO_ASSIGN(Outlet * out, outlet(member));
  OutQueue& queue = pairs_[static_cast<size_t>(member)].queue;
  if (queue.bytes() + message.size() > kMostQueued) {
    return {Code::kUnavailable, text("rank ", group_->ranks()[static_cast<size_t>(member)], " does not take ",
                                     queue.bytes(), " bytes of messages that wait for it already")};
  }
  const auto prefix = letter_prefix(message.size());
  size_t done = 0;
  if (queue.empty() && !broken_) {
    auto moved = move(*out, prefix, message);
    if (!moved.ok()) {
      fail(member, moved.status());
      return moved.status();
    }
    done = *moved;
    if (done == prefix.size() + message.size()) return {};
    waiting_.push_back(member);
  }
  queue.push(std::span(prefix).subspan(std::min(done, prefix.size())));
  queue.push(message.subspan(done - std::min(done, prefix.size())));
  return {};
}

Result<size_t> Post::move(Outlet& out, std::span<const std::byte> prefix, std::span<const std::byte> message) {
  HORO_ASSIGN(size_t done, out.put(prefix));
  if (done == prefix.size()) {
    HORO_ASSIGN(const size_t more, out.put(message));
    done += more;
  }
  out.publish();
  return done;
}

void Post::pump() {
  if (waiting_.empty() || broken_ || engine_.control_->forked()) return;
  std::erase_if(waiting_, [this](int member) {
    if (Status status = drain(member); !status.ok()) fail(member, status);
    return pairs_[static_cast<size_t>(member)].queue.empty();
  });
}

Status Post::drain(int member) {
  Pair& pair = pairs_[static_cast<size_t>(member)];
  while (!pair.queue.empty()) {
    const auto next = pair.queue.front();
    HORO_ASSIGN(const size_t moved, pair.out->put(next));
    const bool all = moved == next.size();
    pair.queue.pop(moved);
    if (!all) break;
  }
  pair.out->publish();
  return {};
}

// Rings and the wire take turns, so that a busy sender does not keep the others' letters back.
std::optional<Letter> Post::receive() {
  if (engine_.control_->forked()) return std::nullopt;
  if (auto letter = from_here()) return letter;
  for (size_t tried = 0; tried <= local_.size() && !broken_; ++tried) {
    const size_t source = turn_;
    turn_ = turn_ == local_.size() ? 0 : turn_ + 1;
    auto letter = source < local_.size() ? from_ring(local_[source]) : from_wire();
    if (letter) return letter;
  }
  return std::nullopt;
}

std::optional<Letter> Post::from_here() {
  if (here_.empty()) return std::nullopt;
  Letter letter = std::move(here_.front());
  here_.pop_front();
  return letter;
}

std::optional<Letter> Post::from_ring(int member) {
  Pair& pair = pairs_[static_cast<size_t>(member)];
  while (!pair.assembler.complete()) {
    auto bytes = pair.in->readable();
    if (bytes.ok() && bytes->empty()) break;
    auto used = bytes.ok() ? pair.assembler.feed(*bytes) : Result<size_t>(bytes.status());
    if (!used.ok()) {
      fail(member, used.status());
      return std::nullopt;
    }
    pair.in->take(*used);
    pair.in->release();
  }
  if (!pair.assembler.complete()) return std::nullopt;
  return Letter{member, pair.assembler.take()};
}

// A piece may hold several letters, or a part of one.
std::optional<Letter> Post::from_wire() {
  while (here_.empty()) {
    auto piece = mailbox_->next();
    if (!piece) return std::nullopt;
    Assembler& assembler = pairs_[static_cast<size_t>(piece->from)].assembler;
    for (std::span<const std::byte> rest = piece->bytes; !rest.empty();) {
      auto used = assembler.feed(rest);
      if (!used.ok()) {
        fail(piece->from, used.status());
        return std::nullopt;
      }
      rest = rest.subspan(*used);
      if (assembler.complete()) here_.push_back({piece->from, assembler.take()});
    }
    if (auto taken = mailbox_->took(piece->from, piece->bytes.size())) {
      engine_.control_->tell_taken(group_->id(), group_->ranks()[static_cast<size_t>(piece->from)], *taken);
    }
  }
  return from_here();
}

void Post::fail(int member, const Status& why) {
  broken_ = true;
  group_->give_up(why.prefixed(text("messages between rank ", group_->ranks()[static_cast<size_t>(group_->member())],
                                    " and rank ", group_->ranks()[static_cast<size_t>(member)])));
}

}  // namespace horo::group
