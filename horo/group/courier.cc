#include "horo/group/courier.h"

#include <algorithm>

#include "horo/base/text.h"
#include "horo/group/fork.h"

namespace horo::group {

namespace {

constexpr auto kPatience = std::chrono::milliseconds(100);

collective::Operation no_operation() {
  collective::Operation operation;
  operation.kind = collective::Kind::kSendRecv;
  return operation;
}

Status check_member(const Group& group, int member) {
  if (member >= 0 && member < group.size()) return {};
  return {Code::kInvalidArgument, text("member ", member, " does not exist in a group of ", group.size(), " ranks")};
}

}  // namespace

Courier::Courier(Engine& engine, std::unique_ptr<Post> post)
    : engine_(engine), world_(engine.world_handle()), forks_(forks()), post_(std::move(post)) {}

Result<std::unique_ptr<Courier>> Courier::open(Engine& engine, Deadline deadline) {
  HORO_ASSIGN(std::unique_ptr<Post> post, Post::open(engine, engine.world_handle(), deadline));
  return std::unique_ptr<Courier>(new Courier(engine, std::move(post)));
}

Courier::~Courier() {
  if (forks() != forks_) {
    // The thread is the parent's, and so is the post.
    (void)new (std::nothrow) Thread(std::move(thread_));
    (void)post_.release();
    return;
  }
  stop(Status(Code::kStopped, "the job has ended"));
}

void Courier::stop(const Status& why) {
  if (forks() != forks_) return;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = why;
  }
  thread_ = Thread();  // Asks it to stop and joins it.
  take_entries();
  matching_.fail_all(why);
  finish_ended();
}

Result<RequestHandle> Courier::send(const Group& group, int to, uint64_t tag, std::span<const std::byte> data,
                                    Deadline deadline, Callback callback) {
  HORO_TRY(check_member(group, to));
  auto request = std::make_shared<Request>(no_operation(), data.data(), nullptr, deadline, std::move(callback));
  const OutgoingMessage message{.to = group.ranks()[static_cast<size_t>(to)],
                                .context = group.id(),
                                .tag = tag,
                                .data = data,
                                .deadline = deadline};
  return enter({.request = std::move(request), .ranks = group.ranks(), .message = message});
}

Result<RequestHandle> Courier::receive(const Group& group, std::optional<int> from, uint64_t tag,
                                       std::span<std::byte> memory, Deadline deadline, Callback callback) {
  if (from) HORO_TRY(check_member(group, *from));
  auto request = std::make_shared<Request>(no_operation(), nullptr, memory.data(), deadline, std::move(callback));
  ExpectedMessage message{.context = group.id(), .tag = tag, .memory = memory, .deadline = deadline};
  for (int member = 0; member < group.size(); ++member) {
    // From anybody is from anybody else: nobody waits for what only it could send.
    if (from ? member == *from : member != group.member()) {
      message.from.push_back(group.ranks()[static_cast<size_t>(member)]);
    }
  }
  return enter({.request = std::move(request), .ranks = group.ranks(), .message = std::move(message)});
}

Result<RequestHandle> Courier::enter(Entry entry) {
  if (forks() != forks_) return Status(Code::kForked, "this process was forked from a rank, which alone can send");
  RequestHandle request = entry.request;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return *stopped_;
    if (!thread_.joinable()) {
      HORO_ASSIGN(thread_, Thread::start("horo-courier", [this](const std::stop_token& stop) { work(stop); }));
      HORO_TRY(thread_.stay_on(engine_.core()));
    }
    entries_.emplace_back(++last_, std::move(entry));
  }
  engine_.bell().ring();
  return request;
}

void Courier::work(const std::stop_token& stop) {
  std::stop_callback wake(stop, [this] { engine_.bell().ring(); });
  while (true) {
    const uint32_t seen = engine_.bell().look();
    if (stop.stop_requested()) return;  // Asked after the look: the ring of a request before it would end no wait.
    const Time now = Clock::now();
    take_entries();
    notice_losses();
    matching_.expire(now);
    send_letters();
    watch_silence(now);
    finish_ended();
    engine_.bell().wait(seen, wake_at(now), false);
  }
}

void Courier::take_entries() {
  std::vector<std::pair<Matching::Id, Entry>> fresh;
  {
    std::lock_guard lock(mutex_);
    fresh.swap(entries_);
  }
  for (auto& [id, entry] : fresh) {
    if (const auto* out = std::get_if<OutgoingMessage>(&entry.message)) {
      matching_.send(id, *out);
    } else {
      matching_.receive(id, std::get<ExpectedMessage>(entry.message));
    }
    under_way_.emplace(id, std::move(entry));
  }
}

// Asked before the letters are taken: what a rank sent before it left still counts.
void Courier::notice_losses() {
  const std::optional<Status> over = world_->over();
  take_letters();
  if (!over) return;
  if (over->lost().empty()) return matching_.fail_all(*over);
  for (const int rank : over->lost()) {
    matching_.lost(rank, Status(Code::kPeerLost, text("rank ", rank, " of a message is gone: ", over->message()))
                             .with_lost(over->lost()));
  }
}

void Courier::take_letters() {
  post_->pump();
  while (auto letter = post_->receive()) {
    const Status status = matching_.arrived(letter->from, letter->bytes);
    if (!status.ok()) return world_->give_up(status);
  }
}

void Courier::send_letters() {
  const std::set<int> members = matching_.busy();
  for (const int member : members) {
    // One letter at a time is in the post's hands, so that left() is true soon for each.
    while (post_->queued(member) == 0) {
      matching_.left(member);
      const auto letter = matching_.next(member);
      if (!letter) break;
      if (Status status = post_->send(member, *letter); !status.ok()) return world_->give_up(status);
    }
  }
}

void Courier::finish_ended() {
  for (const Matching::End& end : matching_.take_ended()) {
    const auto found = under_way_.find(end.id);
    if (found == under_way_.end()) continue;
    const Entry& entry = found->second;
    const auto source = std::find(entry.ranks.begin(), entry.ranks.end(), end.source);
    if (source != entry.ranks.end()) entry.request->set_source(static_cast<int>(source - entry.ranks.begin()));
    const RequestHandle request = entry.request;
    under_way_.erase(found);
    request->finish(end.status);
  }
}

// Silence of a peer may mean that it is frozen: the control thread asks it.
void Courier::watch_silence(Time now) {
  if (under_way_.empty()) {
    waiting_since_.reset();
    return;
  }
  if (!waiting_since_) waiting_since_ = noted_ = now;
  if (now - noted_ < kPatience) return;
  noted_ = now;
  for (const int member : matching_.awaited()) {
    if (member != world_->member()) world_->note_waiting(member, *waiting_since_);
  }
}

Deadline Courier::wake_at(Time now) const {
  if (!waiting_since_) return Deadline::never();
  return matching_.deadline().earlier(Deadline(std::max(noted_ + kPatience, now)));
}

}  // namespace horo::group
