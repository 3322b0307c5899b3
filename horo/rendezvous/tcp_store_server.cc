#include <map>
#include <utility>

#include "horo/base/text.h"
#include "horo/base/thread.h"
#include "horo/net/listener.h"
#include "horo/net/poller.h"
#include "horo/net/wake.h"
#include "horo/rendezvous/store_table.h"
#include "horo/rendezvous/tcp_store.h"
#include "horo/rendezvous/tcp_store_wire.h"

namespace horo::rendezvous {

namespace {

constexpr uint64_t kListenerToken = 0;
constexpr uint64_t kWakeToken = 1;
constexpr uint64_t kFirstConnection = 2;
constexpr Duration kLastReplies = std::chrono::seconds(1);

/// Tells the ranks' connections from others that hold the key.
Status admit(const net::Identity& identity, const net::Hello&) {
  if (identity.purpose == net::Purpose::kRendezvous) return {};
  return Status(Code::kIncompatible, text("this is the store; ", identity.to_string(), " is not meant for it"));
}

}  // namespace

/// Everything that the server's thread works with. Others only start it, wake it and read its address.
class TcpStoreServer::Loop {
 public:
  static Result<std::unique_ptr<Loop>> open(const net::Address& at, const TcpStoreOptions& options);
  Status start();
  void stop();
  const net::Address& address() const { return address_; }

 private:
  struct Connection {
    net::Channel channel;
    net::Interest interest = net::Interest::kRead;
    std::map<uint64_t, StoreTable::Ticket> waiting;  ///< Tickets by sequence.
  };
  struct Asker {
    uint64_t connection = 0;
    uint64_t sequence = 0;
  };

  Loop(net::Listener listener, net::Poller poller, net::Wake wake)
      : listener_(std::move(listener)),
        poller_(std::move(poller)),
        wake_(std::move(wake)),
        address_(listener_.address()) {}
  void run(const std::stop_token& stop);
  Status turn();
  Status take_connections();
  void serve(uint64_t token);
  Status read_requests(uint64_t token, Connection& connection);
  Status handle(uint64_t token, Connection& connection, const net::Message& message);
  void reply(const Asker& asker, const StoreReply& answer);
  Status settle_interest(uint64_t token, Connection& connection);
  void drop(uint64_t token);
  void send_last_replies();

  net::Listener listener_;
  net::Poller poller_;
  net::Wake wake_;
  const net::Address address_;
  StoreTable table_;
  std::map<uint64_t, Connection> connections_;
  std::map<StoreTable::Ticket, Asker> askers_;
  uint64_t next_token_ = kFirstConnection;
  StoreTable::Ticket next_ticket_ = 1;
  Thread thread_;
};

Result<std::unique_ptr<TcpStoreServer::Loop>> TcpStoreServer::Loop::open(const net::Address& at,
                                                                         const TcpStoreOptions& options) {
  HORO_ASSIGN(auto tls, net::Tls::create());
  net::ListenerOptions listening;
  listening.job = options.job;
  listening.channel.hello = net::local_hello(net::kStoreMember, 0);
  listening.channel.most_message = kMostStoreMessage;
  listening.admit = admit;
  listening.log = options.log;
  HORO_ASSIGN(net::Listener listener, net::Listener::open(at, std::move(tls), options.key, std::move(listening)));
  HORO_ASSIGN(net::Poller poller, net::Poller::create());
  HORO_ASSIGN(net::Wake wake, net::Wake::create());
  std::unique_ptr<Loop> loop(new Loop(std::move(listener), std::move(poller), std::move(wake)));
  HORO_TRY(loop->poller_.add(loop->listener_.fd(), net::Interest::kRead, kListenerToken));
  HORO_TRY(loop->poller_.add(loop->wake_.fd(), net::Interest::kRead, kWakeToken));
  return loop;
}

Status TcpStoreServer::Loop::start() {
  HORO_ASSIGN(thread_, Thread::start("horo-store", [this](const std::stop_token& stop) { run(stop); }));
  return {};
}

void TcpStoreServer::Loop::stop() {
  thread_.request_stop();
  wake_.signal();
  if (thread_.joinable()) thread_.join();
}

void TcpStoreServer::Loop::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (!turn().ok()) break;  // Clients see the connection end, and say so.
  }
  send_last_replies();
  connections_.clear();
}

Status TcpStoreServer::Loop::turn() {
  HORO_ASSIGN(auto events, poller_.wait(listener_.deadline()));
  // Connections that break on the way are removed, so the list of those to serve is taken first.
  std::vector<uint64_t> ready;
  for (const net::Event& event : events) {
    if (event.token == kWakeToken) wake_.drain();
    if (event.token >= kFirstConnection) ready.push_back(event.token);
  }
  HORO_TRY(take_connections());
  for (uint64_t token : ready) serve(token);
  return {};
}

Status TcpStoreServer::Loop::take_connections() {
  HORO_TRY(listener_.step());
  while (auto channel = listener_.take_channel()) {
    uint64_t token = next_token_++;
    HORO_TRY(poller_.add(channel->fd(), net::Interest::kRead, token));
    connections_.emplace(token, Connection{std::move(*channel), net::Interest::kRead, {}});
    serve(token);  // A request may have come with the end of the handshake.
  }
  return {};
}

void TcpStoreServer::Loop::serve(uint64_t token) {
  auto place = connections_.find(token);
  if (place == connections_.end()) return;
  Status status = read_requests(token, place->second);
  for (auto& [ticket, answer] : table_.take_answers()) {
    auto asker = askers_.extract(ticket);
    if (!asker.empty()) reply(asker.mapped(), answer);
  }
  place = connections_.find(token);
  if (place == connections_.end()) return;
  if (!status.ok() || !settle_interest(token, place->second).ok()) drop(token);
}

Status TcpStoreServer::Loop::read_requests(uint64_t token, Connection& connection) {
  HORO_TRY(connection.channel.progress());
  while (true) {
    HORO_ASSIGN(std::optional<net::Message> message, connection.channel.receive());
    if (!message) return {};
    HORO_TRY(handle(token, connection, *message));
  }
}

Status TcpStoreServer::Loop::handle(uint64_t token, Connection& connection, const net::Message& message) {
  uint64_t sequence = message.header.sequence;
  if (message.header.type == static_cast<uint8_t>(StoreFrame::kForget)) {
    auto waiting = connection.waiting.extract(sequence);
    if (waiting.empty()) return {};
    table_.forget(waiting.mapped());
    askers_.erase(waiting.mapped());
    return {};
  }
  if (message.header.type != static_cast<uint8_t>(StoreFrame::kRequest)) {
    return Status(Code::kCorrupt, text("a message of type ", int{message.header.type}, " came to the store"));
  }
  HORO_ASSIGN(StoreRequest request, decode_store_request(message.payload));
  StoreTable::Ticket ticket = next_ticket_++;
  if (auto answer = table_.ask(ticket, request)) {
    return connection.channel.send(store_header(StoreFrame::kReply, sequence), encode(*answer));
  }
  // A client asks one thing at a time; one that piles up questions is not ours.
  if (!connection.waiting.empty()) {
    table_.forget(ticket);
    return Status(Code::kCorrupt, "a client waits for two things at once");
  }
  connection.waiting[sequence] = ticket;
  askers_[ticket] = {token, sequence};
  return {};
}

void TcpStoreServer::Loop::reply(const Asker& asker, const StoreReply& answer) {
  auto place = connections_.find(asker.connection);
  if (place == connections_.end()) return;
  Connection& connection = place->second;
  connection.waiting.erase(asker.sequence);
  Status status = connection.channel.send(store_header(StoreFrame::kReply, asker.sequence), encode(answer));
  if (!status.ok() || !settle_interest(asker.connection, connection).ok()) drop(asker.connection);
}

Status TcpStoreServer::Loop::settle_interest(uint64_t token, Connection& connection) {
  HORO_TRY(connection.channel.progress());
  net::Interest wanted = connection.channel.interest();
  if (wanted == connection.interest) return {};
  connection.interest = wanted;
  return poller_.modify(connection.channel.fd(), wanted, token);
}

void TcpStoreServer::Loop::drop(uint64_t token) {
  auto place = connections_.find(token);
  for (const auto& [sequence, ticket] : place->second.waiting) {
    table_.forget(ticket);
    askers_.erase(ticket);
  }
  static_cast<void>(poller_.remove(place->second.channel.fd()));
  connections_.erase(place);
}

void TcpStoreServer::Loop::send_last_replies() {
  Deadline deadline = Deadline::after(kLastReplies);
  for (auto& [token, connection] : connections_) {
    static_cast<void>(connection.channel.flush(deadline));
    connection.channel.close();
  }
}

TcpStoreServer::TcpStoreServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

TcpStoreServer::~TcpStoreServer() { loop_->stop(); }

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(const net::Address& at, const TcpStoreOptions& options) {
  HORO_ASSIGN(auto loop, Loop::open(at, options));
  HORO_TRY(loop->start());
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(loop)));
}

const net::Address& TcpStoreServer::address() const { return loop_->address(); }

}  // namespace horo::rendezvous
