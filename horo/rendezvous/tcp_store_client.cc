#include <array>
#include <utility>

#include "horo/base/text.h"
#include "horo/net/dial.h"
#include "horo/net/poller.h"
#include "horo/net/socket.h"
#include "horo/rendezvous/tcp_store.h"
#include "horo/rendezvous/tcp_store_wire.h"

namespace horo::rendezvous {

namespace {

constexpr Duration kRetryAfter = std::chrono::milliseconds(20);

std::string names(std::span<const net::Address> addresses) {
  std::string all;
  for (const net::Address& address : addresses) all += (all.empty() ? "" : ", ") + address.to_string();
  return all;
}

/// Nobody may listen yet when this rank starts first. There is nothing to wait on until somebody does but time.
Result<net::Socket> connect_when_there(std::span<const net::Address> to, Deadline deadline,
                                       const std::function<Status()>& nobody_there) {
  while (true) {
    auto socket = net::Socket::connect_any(to, deadline);
    if (socket.ok() || socket.status().code() != Code::kUnavailable) return socket;
    if (Deadline::after(kRetryAfter).at() >= deadline.at()) {
      return Status(Code::kTimeout, text("no store at ", names(to), ": ", socket.status().message(),
                                         "; check HORO_STORE and that the launcher or rank 0 is up"));
    }
    HORO_ASSIGN(size_t none, net::poll_many({}, Deadline::after(kRetryAfter)));
    static_cast<void>(none);
    if (nobody_there) HORO_TRY(nobody_there());
  }
}

}  // namespace

Result<std::unique_ptr<TcpStore>> TcpStore::connect(std::span<const net::Address> to, const TcpStoreOptions& options,
                                                    Deadline deadline, const std::function<Status()>& nobody_there) {
  if (!options.key) {
    return Status(Code::kInvalidArgument,
                  text("joining the store at ", names(to), " needs a key; Key::none() is that of jobs without one"));
  }
  HORO_ASSIGN(auto tls, net::Tls::create());
  // Ranks are claimed in the store, so that a second claimant can be told who the first is: here it has no rank yet.
  net::Member self = net::anonymous_member();
  net::ChannelOptions channel_options;
  channel_options.hello = net::local_hello(self, 0);
  channel_options.most_message = kMostStoreMessage;
  net::Identity identity{options.job, net::Purpose::kRendezvous, 0, self, net::kStoreMember};
  Result<net::Channel> channel =
      net::dial([&] { return connect_when_there(to, deadline, nobody_there); },
                {std::move(tls), *options.key, identity, std::move(channel_options)}, deadline);
  if (!channel.ok()) return channel.status().prefixed(text("joining the store at ", names(to)));
  return std::unique_ptr<TcpStore>(new TcpStore(std::move(*channel)));
}

Result<StoreReply> TcpStore::exchange(const StoreRequest& request, Deadline deadline) {
  if (!begin_turn(deadline)) {
    return Status(Code::kTimeout, text("other calls kept the store's connection busy; asked for '", request.key, "'"));
  }
  auto reply = ask(request, deadline);
  end_turn();
  return reply;
}

bool TcpStore::begin_turn(Deadline deadline) {
  std::unique_lock lock(mutex_);
  auto free = [this] { return !busy_; };
  if (deadline.is_never()) {
    turn_ended_.wait(lock, free);
  } else if (!turn_ended_.wait_until(lock, deadline.at(), free)) {
    return false;
  }
  busy_ = true;
  return true;
}

void TcpStore::end_turn() {
  std::lock_guard lock(mutex_);
  busy_ = false;
  turn_ended_.notify_one();
}

Result<StoreReply> TcpStore::ask(const StoreRequest& request, Deadline deadline) {
  uint64_t sequence = ++sequence_;
  HORO_TRY(channel_.send(store_header(StoreFrame::kRequest, sequence), encode(request)));
  auto reply = await_reply(sequence, request, deadline);
  if (!reply.ok() && reply.status().code() == Code::kTimeout) {
    HORO_TRY(channel_.send(store_header(StoreFrame::kForget, sequence), {}));
    HORO_TRY(channel_.progress());
  }
  return reply;
}

Result<StoreReply> TcpStore::await_reply(uint64_t sequence, const StoreRequest& request, Deadline deadline) {
  while (true) {
    auto message = channel_.receive(deadline);
    if (!message.ok()) {
      Code code = message.status().code();
      if (code == Code::kTimeout)
        return Status(code, text("what was asked of the store under '",
                                 request.key.empty() ? request.prefix : request.key, "' did not come in time"));
      return Status(Code::kPeerLost, text("the store is gone: ", message.status().message()));
    }
    if (message->header.type != static_cast<uint8_t>(StoreFrame::kReply)) {
      return Status(Code::kCorrupt, text("the store sent a message of type ", int{message->header.type}));
    }
    // Replies to requests that were given up come late.
    if (message->header.sequence == sequence) return decode_store_reply(message->payload);
  }
}

}  // namespace horo::rendezvous
