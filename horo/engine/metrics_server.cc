#include "horo/engine/metrics_server.h"

#include <array>
#include <list>
#include <map>
#include <utility>

#include "horo/base/text.h"
#include "horo/net/poller.h"
#include "horo/net/socket.h"
#include "horo/net/wake.h"

namespace horo::engine {

namespace {

constexpr uint64_t kListenToken = 0, kWakeToken = 1, kFirstToken = 2;
constexpr int kMostAtOnce = 16;  ///< Connections taken in one turn.

std::string answer_of(std::string_view status, std::string_view body, bool head = false,
                      std::string_view type = "text/plain; charset=utf-8") {
  return text("HTTP/1.1 ", status, "\r\nContent-Type: ", type, "\r\nContent-Length: ", body.size(),
              "\r\nConnection: close\r\n\r\n", head ? std::string_view() : body);
}

std::span<const std::byte> bytes_of(std::string_view words) { return std::as_bytes(std::span(words)); }

}  // namespace

std::string http_answer(std::string_view request, const std::function<std::string()>& page) {
  const size_t line_end = request.find('\n');
  const bool complete = request.find("\r\n\r\n") != std::string_view::npos ||  //
                        request.find("\n\n") != std::string_view::npos;
  if (!complete) {
    if (request.size() < kLongestRequest) return {};
    return answer_of("431 Request Header Fields Too Large", "the request is too long\n");
  }
  std::string_view line = request.substr(0, line_end);
  if (line.ends_with('\r')) line.remove_suffix(1);
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || !line.substr(last + 1).starts_with("HTTP/1.")) {
    return answer_of("400 Bad Request", "this is no request of HTTP/1\n");
  }
  const std::string_view method = line.substr(0, first);
  std::string_view path = line.substr(first + 1, last - first - 1);
  path = path.substr(0, path.find('?'));
  if (method != "GET" && method != "HEAD") return answer_of("405 Method Not Allowed", "only GET and HEAD\n");
  if (path != "/metrics" && path != "/") return answer_of("404 Not Found", "the metrics are at /metrics\n");
  return answer_of("200 OK", page(), method == "HEAD", "text/plain; version=0.0.4; charset=utf-8");
}

/// Used by the server's thread, but for the wake.
class MetricsServer::Loop {
 public:
  static Result<std::unique_ptr<Loop>> open(const net::Address& at, std::function<std::string()> page, Log& log,
                                            Duration patience) {
    HORO_ASSIGN(net::ListenSocket listener, net::ListenSocket::listen(at, {.backlog = 64, .socket = {}}));
    HORO_ASSIGN(net::Poller poller, net::Poller::create());
    HORO_ASSIGN(net::Wake wake, net::Wake::create());
    HORO_TRY(poller.add(listener.fd(), net::Interest::kRead, kListenToken));
    HORO_TRY(poller.add(wake.fd(), net::Interest::kRead, kWakeToken));
    return std::unique_ptr<Loop>(
        new Loop(std::move(listener), std::move(poller), std::move(wake), std::move(page), log, patience));
  }

  const net::Address& address() const { return listener_.address(); }

  void run(const std::stop_token& stop) {
    std::stop_callback on_stop(stop, [this] { wake_.signal(); });
    while (!stop.stop_requested()) {
      auto events = poller_.wait(next_deadline());
      if (!events.ok()) return log_.warning("metrics are not served any more: ", events.status().message());
      for (const net::Event& event : *events) {
        if (event.token == kListenToken) {
          accept();
        } else if (event.token != kWakeToken) {
          serve(event.token);
        }
      }
      drop_late();
      listen_again();
    }
  }

 private:
  struct Client {
    net::Socket socket;
    Deadline deadline;
    std::string request, answer;
    size_t sent = 0;
    size_t ignored = 0;  ///< Bytes that came after the answer.
    bool answered = false;
  };

  Loop(net::ListenSocket listener, net::Poller poller, net::Wake wake, std::function<std::string()> page, Log& log,
       Duration patience)
      : listener_(std::move(listener)),
        poller_(std::move(poller)),
        wake_(std::move(wake)),
        page_(std::move(page)),
        log_(log),
        patience_(patience) {}

  // The oldest comes first: tokens rise, and all have the same patience.
  Deadline next_deadline() const {
    Deadline next = clients_.empty() ? Deadline::never() : clients_.begin()->second.deadline;
    return listening_ ? next : next.earlier(Deadline(listener_.may_accept_at()));
  }

  void accept() {
    for (int i = 0; i < kMostAtOnce; ++i) {
      auto socket = listener_.accept();
      if (!socket.ok()) {
        log_.limited(LogLevel::kWarning, "metrics", "metrics: ", socket.status().message());
        if (listener_.may_accept_at() > Clock::now()) stop_listening();
        return;
      }
      if (!*socket) return;
      if (clients_.size() >= kMostClients) end(clients_.begin()->first);
      const uint64_t token = next_token_++;
      if (!poller_.add((**socket).fd(), net::Interest::kRead, token).ok()) continue;
      clients_.emplace(token, Client{std::move(**socket), Deadline::after(patience_), {}, {}, 0, 0, false});
    }
  }

  // The system is short of descriptors: a connection that waits would wake us without end.
  void stop_listening() {
    if (poller_.modify(listener_.fd(), net::Interest::kNone, kListenToken).ok()) listening_ = false;
  }
  void listen_again() {
    if (listening_ || Clock::now() < listener_.may_accept_at()) return;
    listening_ = poller_.modify(listener_.fd(), net::Interest::kRead, kListenToken).ok();
  }

  void end(uint64_t token) {
    auto found = clients_.find(token);
    if (found == clients_.end()) return;
    // Closing goes on whether or not the poller minds.
    (void)poller_.remove(found->second.socket.fd());
    clients_.erase(found);
  }

  void drop_late() {
    const Time now = Clock::now();
    while (!clients_.empty() && clients_.begin()->second.deadline.expired(now)) end(clients_.begin()->first);
  }

  void serve(uint64_t token) {
    auto found = clients_.find(token);
    if (found == clients_.end()) return;
    Client& client = found->second;
    const bool goes_on = client.answered         ? ignore(client)
                         : client.answer.empty() ? listen_to(client, token)
                                                 : speak(client, token);
    if (!goes_on) end(token);
  }

  /// False when the client is to be ended.
  bool listen_to(Client& client, uint64_t token) {
    std::array<std::byte, 2048> bytes;
    const net::IoResult got = client.socket.receive(bytes);
    if (got.is_would_block()) return true;
    if (!got.is_moved()) return false;
    client.request.append(reinterpret_cast<const char*>(bytes.data()), got.bytes());
    client.answer = http_answer(client.request, page_);
    if (client.answer.empty()) return true;
    client.request.clear();
    return poller_.modify(client.socket.fd(), net::Interest::kWrite, token).ok() && speak(client, token);
  }

  bool speak(Client& client, uint64_t token) {
    const net::IoResult put = client.socket.send(bytes_of(client.answer).subspan(client.sent));
    if (put.is_would_block()) return true;
    if (!put.is_moved()) return false;
    client.sent += put.bytes();
    if (client.sent < client.answer.size()) return true;
    client.socket.shutdown_send();
    client.answered = true;
    return poller_.modify(client.socket.fd(), net::Interest::kRead, token).ok();
  }

  // Until the client has closed: closing first, with bytes of it unread, would take the answer from it.
  static bool ignore(Client& client) {
    std::array<std::byte, 2048> bytes;
    const net::IoResult got = client.socket.receive(bytes);
    if (got.is_moved()) client.ignored += got.bytes();
    return (got.is_moved() && client.ignored <= kLongestRequest) || got.is_would_block();
  }

  net::ListenSocket listener_;
  net::Poller poller_;
  const net::Wake wake_;
  const std::function<std::string()> page_;
  Log& log_;
  const Duration patience_;
  std::map<uint64_t, Client> clients_;
  uint64_t next_token_ = kFirstToken;
  bool listening_ = true;
};

MetricsServer::MetricsServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
MetricsServer::~MetricsServer() { thread_ = Thread(); }

const net::Address& MetricsServer::address() const { return loop_->address(); }

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const net::Address& at, std::function<std::string()> page,
                                                            Log& log, Duration patience) {
  HORO_ASSIGN(std::unique_ptr<Loop> loop, Loop::open(at, std::move(page), log, patience));
  std::unique_ptr<MetricsServer> server(new MetricsServer(std::move(loop)));
  HORO_ASSIGN(server->thread_, Thread::start("horo-metrics", [loop = server->loop_.get()](const std::stop_token& stop) {
                loop->run(stop);
              }));
  return server;
}

}  // namespace horo::engine
