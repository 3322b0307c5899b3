#include "horo/group/control.h"

#include <algorithm>
#include <array>
#include <future>
#include <numeric>

#include "horo/base/text.h"
#include "horo/rendezvous/message.h"

namespace horo::group {

using rendezvous::LossReason;
namespace input = rendezvous::input;
namespace watch_input = rendezvous::watch;

namespace {

// Tokens of the poller: one kind each for the wake-up, listeners, channels and processes of peers.
enum class Source : uint32_t { kWake, kListener, kChannel, kProcess };
uint64_t token(Source source, uint32_t index) { return uint64_t{static_cast<uint32_t>(source)} << 32 | index; }

constexpr auto kGoodbyeLimit = std::chrono::milliseconds(500);
/// Between two questions whether it is still worth it to wait for others to join.
constexpr auto kPause = std::chrono::milliseconds(100);

}  // namespace

Control::Control(Options options, Log& log)
    : options_(std::move(options)),
      log_(log),
      membership_({.rank = options_.self.rank, .size = options_.size, .flush_timeout = options_.timeout}),
      suspicion_(rendezvous::Suspicion::Options{.freeze_timeout = options_.freeze_timeout}),
      arrivals_({.rank = options_.self.rank, .encrypt = options_.self.encrypt, .patience = options_.timeout}),
      members_(membership_.members()) {}

Control::~Control() { stop(); }

Status Control::start(std::vector<net::Listener> listeners) {
  HORO_ASSIGN(wake_, net::Wake::create());
  HORO_ASSIGN(poller_, net::Poller::create());
  HORO_TRY(poller_->add(wake_->fd(), net::Interest::kRead, token(Source::kWake, 0)));
  listeners_ = std::move(listeners);
  for (size_t i = 0; i < listeners_.size(); ++i) {
    HORO_TRY(
        poller_->add(listeners_[i].fd(), net::Interest::kRead, token(Source::kListener, static_cast<uint32_t>(i))));
  }
  HORO_ASSIGN(thread_, Thread::start("horo-control", [this](const std::stop_token& stop) { loop(stop); }));
  return {};
}

void Control::stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    if (!broken_) broken_ = Status(Code::kStopped, "the engine was shut down");  // For those who wait for an answer.
    changed_.notify_all();
  }
  post([this] { say_goodbye(); });
  thread_.request_stop();
  wake_->signal();
  thread_.join();
}

// Closing a socket with unread bytes in it resets the connection, and the peer might never read our goodbye. So each
// side of a connection is ended in turn: we end ours, and read until the peer has ended its own.
void Control::say_goodbye() {
  if (options_.self.memory != nullptr) options_.self.memory->header().life.announce_leaving();
  std::vector<Link*> open;
  const Deadline flushed = Deadline::after(kGoodbyeLimit);  // For all of them: several may be stopped.
  for (auto& [rank, link] : links_) {
    if (link->channel.fd() < 0) continue;
    send(rank, ControlType::kGoodbye, {});
    (void)link->channel.flush(flushed).ok();
    link->channel.socket().shutdown_send();
    open.push_back(link.get());
  }
  const Deadline deadline = Deadline::after(kGoodbyeLimit);
  std::array<std::byte, 4096> rest;
  while (!open.empty() && !deadline.expired()) {
    std::vector<net::PollItem> items;
    for (size_t i = 0; i < std::min<size_t>(open.size(), 256); ++i) items.push_back({.fd = open[i]->channel.fd()});
    if (!net::poll_many(items, deadline).ok()) break;
    std::erase_if(open, [&](Link* link) {
      net::IoResult result = link->channel.socket().receive(rest);
      while (result.is_moved()) result = link->channel.socket().receive(rest);
      return !result.is_would_block();
    });
  }
  for (auto& [rank, link] : links_) link->channel.close();
}

bool Control::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return false;
    tasks_.push_back(std::move(task));
  }
  wake_->signal();
  return true;
}

Status Control::run(const std::function<void()>& task) {
  std::promise<void> done;
  const bool posted = post([&] {
    task();
    done.set_value();
  });
  if (posted) {
    done.get_future().wait();
    return {};
  }
  std::lock_guard lock(mutex_);
  return broken_.value_or(Status(Code::kStopped, "the control thread has ended"));
}

void Control::loop(const std::stop_token& stop) {
  // Held by this thread, which lives as long as the process: the kernel marks it when the process is gone.
  std::optional<transport::LifeHolder> life;
  if (options_.self.memory != nullptr) life.emplace(options_.self.memory->header().life);
  while (true) {
    run_tasks();
    if (stop.stop_requested()) return run_last_tasks();  // The goodbye among them.
    auto events = poller_->wait(next_deadline());
    if (!events.ok()) {
      log_.error("the control thread cannot wait for its connections: ", events.status());
      {
        std::lock_guard lock(mutex_);
        broken_ = events.status();
        changed_.notify_all();
      }
      return run_last_tasks();
    }
    for (const net::Event& event : std::vector<net::Event>(events->begin(), events->end())) on_event(event);
    // Strangers that take too long, and connections that were held back, show in time alone.
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (listeners_[i].deadline().expired()) on_listener(i);
    }
    tick(Clock::now());
    serve_more();
  }
}

Deadline Control::next_deadline() const {
  Deadline deadline;
  for (size_t i = 0; i < listeners_.size(); ++i) {
    if (deaf_.count(i) == 0) deadline = deadline.earlier(listeners_[i].deadline());
  }
  if (auto at = membership_.next_tick()) deadline = deadline.earlier(Deadline(*at));
  if (auto at = suspicion_.next_tick()) deadline = deadline.earlier(Deadline(*at));
  for (const auto& [rank, at] : fading_) deadline = deadline.earlier(Deadline(at));
  std::lock_guard lock(mutex_);
  return deadline.earlier(arrivals_.deadline());
}

void Control::run_tasks() {
  wake_->drain();
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

// Whoever has posted one may wait for it.
void Control::run_last_tasks() {
  while (true) {
    run_tasks();
    std::lock_guard lock(mutex_);
    ended_ = tasks_.empty();
    if (ended_) return;
  }
}

void Control::on_event(const net::Event& event) {
  const auto index = static_cast<uint32_t>(event.token);
  switch (static_cast<Source>(event.token >> 32)) {
    case Source::kWake:
      return;  // The tasks run at the beginning of the loop.
    case Source::kListener:
      return on_listener(index);
    case Source::kProcess: {
      Link& link = *links_.at(static_cast<int>(index));
      (void)poller_->remove(link.memory->process.get()).ok();
      link.process_ended = true;
      hear_out(link);
      release_groups();
      return link.said_goodbye ? fade(link.rank) : lose(link.rank, LossReason::kKilled);
    }
    case Source::kChannel:
      return on_channel(*links_.at(static_cast<int>(index)));
  }
}

void Control::on_listener(size_t index) {
  net::Listener& listener = listeners_[index];
  if (deaf_.count(index) > 0) return;
  if (Status status = listener.step(); !status.ok()) {
    log_.error("cannot accept connections any more: ", status);
    (void)poller_->remove(listener.fd()).ok();
    deaf_.insert(index);
    return;
  }
  while (auto channel = listener.take_channel()) {
    auto link = accept_link(options_.self, std::move(*channel), Deadline::after(std::chrono::seconds(2)));
    Status status = link.ok() ? add_link_here(std::move(*link)) : link.status();
    if (!status.ok()) log_.limited(LogLevel::kWarning, "accept", "refused a peer: ", status);
  }
  while (auto stream = listener.take_stream()) {
    std::lock_guard lock(mutex_);
    arrivals_.add(std::move(*stream), Clock::now());
    changed_.notify_all();
  }
}

Status Control::add_link(Link link) {
  Status added;
  HORO_TRY(run([&] { added = add_link_here(std::move(link)); }));
  return added;
}

Status Control::add_link_here(Link link) {
  const int rank = link.rank;
  if (rank < 0 || rank >= options_.size || rank == options_.self.rank || links_.count(rank) > 0) {
    return {Code::kInvalidArgument, text("rank ", rank, " is connected already; a second process claims its place")};
  }
  auto stored = std::make_unique<Link>(std::move(link));
  HORO_TRY(poller_->add(stored->channel.fd(), stored->channel.interest(),
                        token(Source::kChannel, static_cast<uint32_t>(rank))));
  stored->watched = stored->channel.interest();
  if (stored->memory) {
    HORO_TRY(poller_->add(stored->memory->process.get(), net::Interest::kRead,
                          token(Source::kProcess, static_cast<uint32_t>(rank))));
  }
  for (net::Listener& listener : listeners_) {
    HORO_ASSIGN(auto keys, net::attach_keys(stored->channel, net::Attaching::kIncoming));
    listener.add_session(std::move(keys));
  }
  std::lock_guard lock(mutex_);
  links_[rank] = std::move(stored);
  changed_.notify_all();
  return {};
}

Status Control::wait_for_links(Deadline deadline, const rendezvous::GiveUp& give_up) {
  std::unique_lock lock(mutex_);
  auto complete = [this] {
    return links_.size() + 1 == static_cast<size_t>(options_.size) || broken_ || !losses_.empty();
  };
  const auto pause = [&] { return give_up ? deadline.earlier(Deadline::after(kPause)) : deadline; };
  while (!changed_.wait_until(lock, pause().at(), complete)) {
    if (!deadline.expired()) {
      lock.unlock();
      HORO_TRY(give_up());
      lock.lock();
      continue;
    }
    std::vector<int> missing;
    for (int rank = 0; rank < options_.size; ++rank) {
      if (rank != options_.self.rank && links_.count(rank) == 0) missing.push_back(rank);
    }
    return {Code::kTimeout, text(ranks_text(missing), " did not connect to rank ", options_.self.rank,
                                 " in time; look at their output, or raise HORO_TIMEOUT")};
  }
  if (broken_ || links_.size() + 1 == static_cast<size_t>(options_.size)) return broken_.value_or(Status());
  std::vector<int> everybody(static_cast<size_t>(options_.size));
  std::iota(everybody.begin(), everybody.end(), 0);
  return check_members(everybody);
}

const Link* Control::link(int rank) const {
  std::lock_guard lock(mutex_);
  auto found = links_.find(rank);
  return found == links_.end() ? nullptr : found->second.get();
}

Status Control::read_messages(Link& link) {
  HORO_TRY(link.channel.progress());
  while (true) {
    HORO_ASSIGN(auto message, link.channel.receive());
    if (!message) return {};
    watch(watch_input::Answered{link.rank});  // Whatever it says: its control thread runs.
    on_message(link, *message);
  }
}

void Control::on_channel(Link& link) {
  const Status status = read_messages(link);
  if (status.ok()) return update_interest(link);
  (void)poller_->remove(link.channel.fd()).ok();
  link.channel.close();
  link.watched = net::Interest::kNone;
  if (status.code() == Code::kCorrupt) log_.error("rank ", link.rank, " sent what is no message: ", status);
  link.said_goodbye |= status.code() == Code::kStopped;
  log_.debug("the connection to rank ", link.rank, " ended: ", status);
  if (link.said_goodbye) return fade(link.rank);
  // Only the kernel of its host ends or resets the connection of a process that says no goodbye. Whatever else goes
  // wrong (no route, nothing acknowledged, damaged records), the process may live, and go on without this one.
  lose(link.rank, status.code() == Code::kPeerLost ? LossReason::kKilled : LossReason::kLink);
}

void Control::mark_forked() {
  forked_.store(true, std::memory_order_relaxed);
  if (options_.bell != nullptr) options_.bell->detach();
}

void Control::over_changed() {
  if (options_.bell != nullptr) options_.bell->ring();
}

void Control::update_interest(Link& link) {
  if (link.watched == link.channel.interest()) return;
  link.watched = link.channel.interest();
  (void)poller_->modify(link.channel.fd(), link.watched, token(Source::kChannel, static_cast<uint32_t>(link.rank)))
      .ok();
}

void Control::on_message(Link& link, const net::Message& message) {
  const net::FrameHeader& header = message.header;
  switch (static_cast<ControlType>(header.type)) {
    case ControlType::kProbe:
      return send(link.rank, ControlType::kProbeAnswer, {});
    case ControlType::kProbeAnswer:
      return;
    case ControlType::kAsk: {
      auto asked = rendezvous::decode_message(message.payload, options_.size);
      if (asked.ok()) return watch(watch_input::Asked{link.rank, asked->lost.ranks()});
      return log_.error("rank ", link.rank, " sent a damaged question: ", asked.status());
    }
    case ControlType::kConsent:
      return watch(watch_input::Consented{link.rank, header.operation == 1});
    case ControlType::kGoodbye:
      link.said_goodbye = true;
      return fade(link.rank);
    case ControlType::kMembership: {
      auto decoded = rendezvous::decode_message(message.payload, options_.size);
      if (!decoded.ok()) {
        return log_.error("rank ", link.rank, " sent a damaged membership message: ", decoded.status());
      }
      step(input::Received{link.rank, std::move(*decoded)});
      return release_groups();  // It may tell of losses.
    }
    case ControlType::kAbandon: {
      auto group = groups_.find(header.group);
      auto abandon = decode_abandon_group(message.payload);
      if (!abandon.ok()) return log_.error("rank ", link.rank, " sent ", abandon.status());
      Status why(abandon->code, text("rank ", link.rank, " gave up the group: ", abandon->why));
      if (group != groups_.end()) return group->second->abandoned(why);
      if (retired_.contains(header.group)) return;
      std::lock_guard lock(mutex_);
      if (given_up_.size() >= kMostGivenUp) given_up_.erase(given_up_.begin());
      given_up_.emplace(header.group, why);
      return changed_.notify_all();
    }
    case ControlType::kServe: {
      auto group = groups_.find(header.group);
      if (group == groups_.end()) return;
      const bool last = header.flags != 0;
      auto whole = partly_served_.add(header.group, header.operation, header.offset, message.payload, last);
      if (whole) group->second->accept_served(header.operation, std::move(*whole));
      return;
    }
    case ControlType::kJoinGroup: {
      auto wish = decode_join_group(message.payload, options_.size);
      return wish.ok() ? on_join(link.rank, std::move(*wish)) : log_.error("rank ", link.rank, " sent ", wish.status());
    }
    case ControlType::kWithdraw: {
      auto wish = decode_join_group(message.payload, options_.size);
      return wish.ok() ? on_withdraw(link.rank, *wish) : log_.error("rank ", link.rank, " sent ", wish.status());
    }
    case ControlType::kGroupReady: {
      auto ready = decode_group_ready(message.payload, options_.size);
      return ready.ok() ? on_ready(std::move(*ready)) : log_.error("rank ", link.rank, " sent ", ready.status());
    }
    case ControlType::kLeaveGroup:
    case ControlType::kEndGroup: {
      const auto [departure, is_new] = departed_[header.group].try_emplace(link.rank, Departure{header.operation});
      if (auto found = groups_.find(header.group); is_new && found != groups_.end()) {
        found->second->member_left(link.rank, header.operation);
      }
      departure->second.ended |= header.type == static_cast<uint8_t>(ControlType::kEndGroup);
      return release_groups();
    }
    case ControlType::kLetters:
    case ControlType::kLettersTaken:
      return on_letters(link.rank, message);
    case ControlType::kDescriptors:
      break;
  }
  log_.limited(LogLevel::kWarning, "type", "rank ", link.rank, " sent a frame of unknown type ", int{header.type});
}

void Control::send(int rank, ControlType type, std::span<const std::byte> payload, const About& about) {
  auto found = links_.find(rank);
  if (found == links_.end() || found->second->channel.fd() < 0) return;
  net::FrameHeader header;
  header.type = static_cast<uint8_t>(type);
  header.epoch = epoch();
  header.group = static_cast<uint32_t>(about.group);
  header.operation = about.operation;
  header.offset = about.offset;
  header.flags = about.last ? 1 : 0;
  header.source = static_cast<uint32_t>(options_.self.rank);
  Link& link = *found->second;
  Status status = link.channel.send(header, payload);
  if (status.ok()) status = link.channel.progress();
  if (status.ok()) return update_interest(link);
  // A broken connection shows itself to the poller, which is where it is dealt with.
  log_.limited(LogLevel::kDebug, "send", "cannot send to rank ", rank, ": ", status);
}

}  // namespace horo::group
