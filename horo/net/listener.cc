#include "horo/net/listener.h"

#include <algorithm>
#include <array>

#include "horo/base/text.h"
#include "horo/net/client_hello.h"
#include "horo/net/tls.h"

namespace horo::net {
namespace {

constexpr uint64_t kListenToken = 0;
/// Connections accepted in one step, so that what is pending gets its turn.
constexpr int kMostAtOnce = 32;

/// Someone of whom nothing is known yet.
struct Stranger {
  Socket socket;
  std::vector<std::byte> first;
};

/// Reads up to `bytes` of a stranger; false when there is nothing yet.
Result<bool> listen_to(Stranger& stranger, size_t bytes) {
  const size_t before = stranger.first.size();
  if (bytes <= before) return true;
  stranger.first.resize(bytes);
  IoResult result = stranger.socket.receive(std::span(stranger.first).subspan(before));
  stranger.first.resize(before + (result.is_moved() ? result.bytes() : 0));
  if (!result.is_moved() && !result.is_would_block()) return Status(Code::kPeerLost, "ended before it said anything");
  return result.is_moved();
}

struct Pending {
  std::variant<Stranger, Channel, AttachAcceptor> stage;
  Deadline deadline;
  Interest watched = Interest::kNone;
  bool added = false;

  int fd() const {
    if (auto* stranger = std::get_if<Stranger>(&stage)) return stranger->socket.fd();
    if (auto* channel = std::get_if<Channel>(&stage)) return channel->fd();
    return std::get<AttachAcceptor>(stage).fd();
  }
  Interest interest() const {
    if (std::holds_alternative<Stranger>(stage)) return Interest::kRead;
    if (auto* channel = std::get_if<Channel>(&stage)) return channel->interest();
    return std::get<AttachAcceptor>(stage).interest();
  }
};

/// How many connections may be taken: so many per second, with a reserve for the moment when a job starts.
class Allowance {
 public:
  Allowance(double per_second, double most) : per_second_(per_second), most_(most), left_(most) {}
  bool take(Time now) {
    if (last_ != Time{}) left_ += per_second_ * std::chrono::duration<double>(now - last_).count();
    left_ = std::min(left_, most_);
    last_ = now;
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }
  void give_back() { left_ += 1; }
  /// When there will be some again.
  Time next(Time now) const {
    return now + std::chrono::ceil<Duration>(std::chrono::duration<double>((1 - left_) / per_second_));
  }

 private:
  double per_second_;
  double most_;
  double left_;
  Time last_{};
};

}  // namespace

Opening look_at(std::span<const std::byte> first) {
  // A TLS record (22), version 3.1 or 3.3, of 16 bits of length, with a ClientHello (1) of 24 bits of length that
  // fills it, of legacy version 3.3. Ours are shorter than 1 KiB.
  constexpr int kAny = -1;
  constexpr std::array<int, kOpeningBytes> kTls = {22, 3, kAny, kAny, kAny, 1, 0, kAny, kAny, 3, 3};
  constexpr std::array<int, 4> kAttach = {'H', 'A', 'T', 'T'};
  auto begins = [&](auto& pattern) {
    for (size_t i = 0; i < std::min(pattern.size(), first.size()); ++i) {
      if (pattern[i] != kAny && static_cast<int>(first[i]) != pattern[i]) return false;
    }
    return true;
  };
  auto number = [&](size_t at) { return static_cast<int>(first[at]) << 8 | static_cast<int>(first[at + 1]); };
  if (first.empty()) return Opening::kUndecided;
  if (begins(kAttach)) return first.size() >= kAttach.size() ? Opening::kAttach : Opening::kUndecided;
  if (!begins(kTls)) return Opening::kGarbage;
  if (first.size() >= 5 && (number(3) < 64 || number(3) > 2048)) return Opening::kGarbage;
  if (first.size() < kOpeningBytes) return Opening::kUndecided;
  return number(7) + 4 == number(3) ? Opening::kTls : Opening::kGarbage;
}

struct Listener::State {
  State(ListenSocket listening, Poller watched, ListenerOptions chosen)
      : socket(std::move(listening)),
        poller(std::move(watched)),
        options(std::move(chosen)),
        allowance(options.most_accepts_per_second, static_cast<double>(options.most_pending)) {}

  Status step(Time now);
  Status accept_some(Time now);
  Status pause_until(Time when);
  void make_room();
  void advance(uint64_t token, Time now);
  Status go_on(Pending& pending, Time now);
  Status meet(Pending& pending, Time now);
  Status meet_tls(Pending& pending, Time now);
  bool hand_over(uint64_t token, Pending& pending);
  Status watch(Pending& pending, uint64_t token);
  void forget(uint64_t token);
  void refuse(uint64_t token, const Status& why);

  ListenSocket socket;
  Poller poller;
  ListenerOptions options;
  Allowance allowance;
  std::shared_ptr<const Tls> tls;
  std::shared_ptr<const Key> key;
  AttachSessions sessions;
  std::map<uint64_t, Pending> pending;  // by age
  uint64_t last_token = kListenToken;
  std::optional<Time> paused_until;
  std::deque<Channel> channels;
  std::deque<AttachedStream> streams;
  ListenerCounts counts;
};

Status Listener::State::step(Time now) {
  while (!pending.empty() && pending.begin()->second.deadline.expired(now)) {
    ++counts.too_slow;
    forget(pending.begin()->first);
  }
  if (paused_until && now >= *paused_until) {
    paused_until.reset();
    HORO_TRY(poller.modify(socket.fd(), Interest::kRead, kListenToken));
  }
  HORO_ASSIGN(auto events, poller.wait(Deadline(now)));
  bool arrivals = false;
  for (const Event& event : events) {
    if (event.token == kListenToken) {
      arrivals = true;
    } else {
      advance(event.token, now);
    }
  }
  return arrivals ? accept_some(now) : Status();
}

Status Listener::State::accept_some(Time now) {
  for (int i = 0; i < kMostAtOnce; ++i) {
    if (!allowance.take(now)) return pause_until(allowance.next(now));
    auto accepted = socket.accept(now);
    if (!accepted.ok()) {
      if (accepted.status().code() != Code::kUnavailable) return accepted.status();
      ++counts.shortages;
      if (options.log != nullptr) {
        options.log->limited(LogLevel::kWarning, "shortage", accepted.status().message());
      }
      if (socket.may_accept_at() > now) return pause_until(socket.may_accept_at());
      continue;
    }
    if (!accepted->has_value()) {
      allowance.give_back();
      return {};
    }
    ++counts.accepted;
    make_room();
    Stranger stranger{std::move(**accepted), {}};
    pending.emplace(++last_token, Pending{std::move(stranger), Deadline(now + options.channel.handshake_limit)});
    // What was sent along with the connection is often there already; most garbage ends here.
    advance(last_token, now);
  }
  return {};
}

Status Listener::State::pause_until(Time when) {
  paused_until = when;
  return poller.modify(socket.fd(), Interest::kNone, kListenToken);
}

void Listener::State::make_room() {
  if (pending.size() < options.most_pending) return;
  // Those who have said nothing go first: a flood of silent connections does not push out a handshake.
  auto silent = [](const auto& entry) { return std::holds_alternative<Stranger>(entry.second.stage); };
  auto oldest = std::find_if(pending.begin(), pending.end(), silent);
  ++counts.dropped;
  forget((oldest != pending.end() ? oldest : pending.begin())->first);
}

void Listener::State::advance(uint64_t token, Time now) {
  auto found = pending.find(token);
  if (found == pending.end()) return;
  Status status = go_on(found->second, now);
  if (!status.ok()) return refuse(token, status);
  if (hand_over(token, found->second)) return;
  status = watch(found->second, token);
  if (!status.ok()) refuse(token, status);
}

Status Listener::State::go_on(Pending& entry, Time now) {
  if (std::holds_alternative<Stranger>(entry.stage)) HORO_TRY(meet(entry, now));
  if (auto* channel = std::get_if<Channel>(&entry.stage)) return channel->progress(now);
  if (auto* acceptor = std::get_if<AttachAcceptor>(&entry.stage)) return acceptor->progress(now);
  return {};
}

/// Reads the first bytes and turns a stranger into what they tell.
Status Listener::State::meet(Pending& entry, Time now) {
  auto& stranger = std::get<Stranger>(entry.stage);
  HORO_ASSIGN(bool heard, listen_to(stranger, kOpeningBytes));
  if (!heard) return {};
  switch (look_at(std::span(stranger.first).first(std::min(stranger.first.size(), kOpeningBytes)))) {
    case Opening::kUndecided:
      return {};
    case Opening::kGarbage:
      return {Code::kCorrupt, "does not speak this protocol"};
    case Opening::kAttach: {
      AttachAcceptor acceptor(std::move(stranger.socket), sessions, options.admit_stream, entry.deadline,
                              stranger.first);
      entry.stage = std::move(acceptor);
      return {};
    }
    case Opening::kTls:
      return meet_tls(entry, now);
  }
  return {};
}

/// A handshake is begun only for a whole ClientHello that is meant for us: a TLS session costs more than all else that
/// is done for a stranger. The alert tells a rank of another job what it would have learnt from the handshake.
Status Listener::State::meet_tls(Pending& entry, Time now) {
  constexpr std::byte kHandshakeFailure[] = {std::byte{21}, std::byte{3}, std::byte{3}, std::byte{0},
                                             std::byte{2},  std::byte{2}, std::byte{40}};
  auto& stranger = std::get<Stranger>(entry.stage);
  const size_t whole = record_bytes(stranger.first).value_or(0);
  HORO_ASSIGN(bool heard, listen_to(stranger, whole));
  if (!heard || stranger.first.size() < whole) return {};
  const auto offered = offered_identity(stranger.first);
  if (!offered) return {Code::kCorrupt, "does not speak this protocol"};
  const auto claimed = decode_identity(*offered);
  Status meant = claimed.ok() ? check_addressed(*claimed, options.job, options.channel.hello.member)
                              : Status(Code::kUnauthenticated, claimed.status().message());
  if (!meant.ok()) {
    static_cast<void>(stranger.socket.send(kHandshakeFailure));
    return meant;
  }
  ChannelOptions chosen = options.channel;
  chosen.received_before = std::move(stranger.first);
  chosen.handshake_limit = entry.deadline.remaining(now);
  HORO_ASSIGN(Channel channel,
              Channel::accept(tls, std::move(stranger.socket), key, options.job, chosen, options.admit));
  entry.stage = std::move(channel);
  return {};
}

bool Listener::State::hand_over(uint64_t token, Pending& entry) {
  auto* channel = std::get_if<Channel>(&entry.stage);
  auto* acceptor = std::get_if<AttachAcceptor>(&entry.stage);
  bool done = channel != nullptr ? channel->ready() : acceptor != nullptr && acceptor->done();
  if (!done) return false;
  if (entry.added) static_cast<void>(poller.remove(entry.fd()));
  if (channel != nullptr) {
    ++counts.channels;
    channels.push_back(std::move(*channel));
  } else {
    ++counts.streams;
    streams.push_back(acceptor->take());
  }
  pending.erase(token);
  return true;
}

Status Listener::State::watch(Pending& entry, uint64_t token) {
  Interest wanted = entry.interest();
  if (entry.added && wanted == entry.watched) return {};
  HORO_TRY(entry.added ? poller.modify(entry.fd(), wanted, token) : poller.add(entry.fd(), wanted, token));
  entry.added = true;
  entry.watched = wanted;
  return {};
}

void Listener::State::forget(uint64_t token) {
  auto found = pending.find(token);
  if (found->second.added) static_cast<void>(poller.remove(found->second.fd()));
  pending.erase(found);
}

void Listener::State::refuse(uint64_t token, const Status& why) {
  bool stranger = std::holds_alternative<Stranger>(pending.at(token).stage);
  ++(stranger && why.code() == Code::kCorrupt ? counts.garbage
     : why.code() == Code::kTimeout           ? counts.too_slow
                                              : counts.refused);
  // Noise of the network stays quiet; somebody who speaks our language and fails is worth a line.
  auto level = stranger && why.code() != Code::kUnauthenticated ? LogLevel::kDebug : LogLevel::kWarning;
  if (options.log != nullptr && options.log->enabled(level)) {
    options.log->limited(level, text("refused ", code_name(why.code())), "refused a connection: ", why.message());
  }
  forget(token);
}

Listener::Listener(std::unique_ptr<State> state) : state_(std::move(state)) {}
Listener::Listener(Listener&&) noexcept = default;
Listener& Listener::operator=(Listener&&) noexcept = default;
Listener::~Listener() = default;

Result<Listener> Listener::open(const Address& at, std::shared_ptr<const Tls> tls, std::shared_ptr<const Key> key,
                                ListenerOptions options) {
  if (!tls || !key) {
    return Status(Code::kInvalidArgument, text("listening on ", at.to_string(), " needs a TLS context and a key, of ",
                                               "which one is null; Key::none() is the key of jobs without one"));
  }
  if (key->is_none() && !at.is_loopback()) {
    return Status(Code::kInvalidArgument, text("listening on ", at.to_string(),
                                               " needs a key: without one only this "
                                               "machine may connect; give the job a key, or listen on loopback"));
  }
  HORO_CHECK(options.most_pending > 0 && options.most_accepts_per_second > 0, "a listener that takes nobody");
  HORO_ASSIGN(ListenSocket socket, ListenSocket::listen(at, options.listen));
  HORO_ASSIGN(Poller poller, Poller::create());
  HORO_TRY(poller.add(socket.fd(), Interest::kRead, kListenToken));
  auto state = std::make_unique<State>(std::move(socket), std::move(poller), std::move(options));
  state->tls = std::move(tls);
  state->key = std::move(key);
  return Listener(std::move(state));
}

int Listener::fd() const { return state_->poller.fd(); }

Deadline Listener::deadline() const {
  Deadline earliest;
  if (!state_->pending.empty()) earliest = state_->pending.begin()->second.deadline;
  if (state_->paused_until) earliest = earliest.earlier(Deadline(*state_->paused_until));
  return earliest;
}

Status Listener::step(Time now) { return state_->step(now); }

std::optional<Channel> Listener::take_channel() {
  if (state_->channels.empty()) return std::nullopt;
  std::optional<Channel> taken(std::move(state_->channels.front()));
  state_->channels.pop_front();
  return taken;
}

std::optional<AttachedStream> Listener::take_stream() {
  if (state_->streams.empty()) return std::nullopt;
  std::optional<AttachedStream> taken(std::move(state_->streams.front()));
  state_->streams.pop_front();
  return taken;
}

void Listener::add_session(AttachKeys keys) { state_->sessions.add(std::move(keys)); }
void Listener::remove_session(const SessionId& session) { state_->sessions.remove(session); }
void Listener::set_epoch(uint64_t epoch) { state_->options.channel.hello.epoch = epoch; }
const Address& Listener::address() const { return state_->socket.address(); }
size_t Listener::pending() const { return state_->pending.size(); }
const ListenerCounts& Listener::counts() const { return state_->counts; }

}  // namespace horo::net
