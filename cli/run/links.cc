#include "cli/run/links.h"

#include <signal.h>

#include <algorithm>

#include "cli/run/interfaces.h"

#include "horo/base/build.h"
#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

using net::Interest;

/// For the process that led to a host to end and tell why, after its channel has.
constexpr Duration kAwaitReason = std::chrono::seconds(1);

}  // namespace

Status Links::add(const std::string& name) {
  HORO_ASSIGN(HostLink link, HostLink::start(name, is_this_host(name), options_.ssh, options_.elastic));
  if (options_.verbose) {
    std::string words;
    for (const std::string& word : link.words()) words += text(" ", word);
    events_.say(text("host ", name, " through:", words));
  }
  const size_t host = hosts_.size();
  hosts_.push_back(std::move(link));
  HORO_TRY(poller_.add(hosts_[host].duct().read_fd(), Interest::kRead, token(host, 0)));
  HORO_TRY(poller_.add(hosts_[host].complaints_fd(), Interest::kRead, token(host, 2)));
  hosts_[host].reading = hosts_[host].complaining = true;
  if (paused_) static_cast<void>(poller_.remove(hosts_[host].duct().read_fd()));
  return {};
}

Deadline Links::deadline() const {
  Deadline earliest;
  for (const HostLink& link : hosts_) {
    if (link.closed) earliest = earliest.earlier(*link.closed);
  }
  return earliest;
}

void Links::take_event(const net::Event& event) {
  const size_t host = (event.token - kFirstToken) / kTokensPerHost;
  const uint64_t which = (event.token - kFirstToken) % kTokensPerHost;
  if (which == 0) read(host);
  if (which == 1) {
    flush(host);
    feed(host);
  }
  if (which == 2) read_complaints(host);
}

void Links::note_exit(pid_t pid, int status) {
  for (HostLink& link : hosts_) {
    if (link.pid() == pid) link.note_exit(status);
  }
}

void Links::read(size_t host) {
  HostLink& link = hosts_[host];
  if (!link.reading) return;
  const auto open = link.duct().fill();
  while (link.reading) {
    auto message = link.duct().next();
    if (!message.ok()) return lose(host, message.status().message());
    if (!*message) break;
    take_message(host, **message);
  }
  if (!open.ok() || !*open) close(host);
}

void Links::take_message(size_t host, const Message& message) {
  if (!hosts_[host].hello) return take_hello(host, message);
  events_.host_said(host, message);
}

void Links::take_hello(size_t host, const Message& message) {
  auto hello = message.type == MessageType::kHello ? decode_hello(message.payload)
                                                   : Result<AgentHello>(Status(Code::kCorrupt, "no hello came first"));
  const Status fits = hello.ok() ? check_versions(*hello) : hello.status();
  if (!fits.ok()) return lose(host, fits.message());
  const std::string& name = hosts_[host].name();
  if (hello->version != build_info().version) {
    events_.say(text("host ", name, " has horo ", hello->version, ", here is ", build_info().version));
  }
  if (options_.verbose) events_.say(text("host ", name, " (", hello->host, ") is ready"));
  hosts_[host].hello = std::move(*hello);
  events_.host_is_ready(host);
}

/// What it says cannot be trusted any more; if it listens, it ends.
void Links::lose(size_t host, const std::string& why) {
  send(host, MessageType::kEnd, encode(EndOrder{}));
  events_.host_is_lost(host, why);
  close(host);
}

void Links::let_go(size_t host) {
  HostLink& link = hosts_[host];
  drop_orders(host);
  send(host, MessageType::kEnd, encode(EndOrder{}));
  link.said_ended = true;
  close(host);
  if (!link.has_exited()) kill(link.pid(), SIGTERM);
}

void Links::close(size_t host) {
  HostLink& link = hosts_[host];
  if (link.reading && !paused_) static_cast<void>(poller_.remove(link.duct().read_fd()));
  if (link.writing) static_cast<void>(poller_.remove(link.duct().write_fd()));
  link.reading = link.writing = false;
  if (!link.said_ended && !link.closed) link.closed = Deadline::after(kAwaitReason);
}

void Links::judge_closed() {
  for (size_t host = 0; host < hosts_.size(); ++host) {
    HostLink& link = hosts_[host];
    if (!link.closed || (!(link.has_exited() && !link.complaining) && !link.closed->expired())) continue;
    link.closed.reset();
    events_.host_is_lost(host, link.why_lost());
  }
}

void Links::read_complaints(size_t host) {
  HostLink& link = hosts_[host];
  if (!link.complaining) return;
  std::vector<std::string> lines;
  const bool more = link.read_complaints(lines);
  // Before the agent answers these are words of ssh, which come with the error if there is one.
  const bool show = link.hello.has_value() || options_.verbose;
  for (const std::string& line : lines) {
    if (show) events_.host_complained(host, line);
  }
  if (more) return;
  static_cast<void>(poller_.remove(link.complaints_fd()));
  link.complaining = false;
}

void Links::send(size_t host, MessageType type, std::span<const std::byte> payload) {
  hosts_[host].duct().send(type, payload);
  flush(host);
}

void Links::flush(size_t host) {
  HostLink& link = hosts_[host];
  // A channel that broke shows at its reading end.
  const bool open = link.duct().flush().ok();
  const bool waits = open && (link.duct().queued() > 0 || !link.start_orders.empty()) && link.reading;
  if (waits == link.writing) return;
  link.writing = waits;
  const int fd = link.duct().write_fd();
  static_cast<void>(waits ? poller_.add(fd, Interest::kWrite, token(host, 1)) : poller_.remove(fd));
}

void Links::order_start(size_t host, const StartOrder& order) {
  hosts_[host].start_orders.push_back(encode(order));
  feed(host);
}

void Links::feed(size_t host) {
  HostLink& link = hosts_[host];
  if (link.start_orders.empty()) return;
  const std::string& input = options_.input;
  while (link.fed < input.size() && link.duct().queued() < kMostQueued) {
    const auto piece = std::as_bytes(std::span(input)).subspan(link.fed);
    const auto now = piece.first(std::min(piece.size(), kMostOutput));
    link.fed += now.size();
    link.duct().send(MessageType::kInput, now);
  }
  while (link.fed == input.size() && !link.start_orders.empty()) {
    link.duct().send(MessageType::kStart, link.start_orders.front());
    link.start_orders.pop_front();
  }
  flush(host);
}

void Links::pause(bool paused) {
  paused_ = paused;
  for (size_t host = 0; host < hosts_.size(); ++host) {
    if (!hosts_[host].reading) continue;
    const int fd = hosts_[host].duct().read_fd();
    static_cast<void>(paused ? poller_.remove(fd) : poller_.add(fd, Interest::kRead, token(host, 0)));
  }
}

}  // namespace horo::cli::launch
