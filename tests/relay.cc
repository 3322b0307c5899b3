#include "tests/relay.h"

#include <array>

#include "horo/net/poller.h"

namespace horo::test {

Result<std::unique_ptr<Relay>> Relay::start(const net::Address& to, Filter filter) {
  HORO_ASSIGN(net::ListenSocket listening, net::ListenSocket::listen(net::Address::loopback()));
  std::unique_ptr<Relay> relay(new Relay(std::move(listening), to, std::move(filter)));
  HORO_ASSIGN(relay->thread_,
              Thread::start("relay", [one = relay.get()](const std::stop_token& stop) { one->loop(stop); }));
  return relay;
}

std::vector<std::vector<std::byte>> Relay::said() const {
  std::lock_guard lock(mutex_);
  std::vector<std::vector<std::byte>> all;
  for (const auto& pair : pairs_) all.push_back(pair->said);
  return all;
}

/// False when `from` has ended.
bool Relay::pass(const net::Socket& from, const net::Socket& to, std::vector<std::byte>* said) const {
  std::array<std::byte, 16384> bytes;
  while (true) {
    const net::IoResult got = from.receive(bytes);
    if (got.is_would_block()) return true;
    if (!got.is_moved()) return false;
    const std::span<std::byte> moved(bytes.data(), got.bytes());
    if (said != nullptr && filter_) filter_(moved);
    if (said != nullptr) said->insert(said->end(), moved.begin(), moved.end());
    if (!to.send_all(moved, Deadline::after_seconds(5)).ok()) return false;
  }
}

void Relay::loop(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<net::PollItem> items{{.fd = listening_.fd()}};
    for (const auto& pair : pairs_) {
      if (pair->over) continue;
      items.push_back({.fd = pair->near.fd()});
      items.push_back({.fd = pair->far.fd()});
    }
    (void)net::poll_many(items, Deadline::after(std::chrono::milliseconds(20))).ok();
    std::lock_guard lock(mutex_);
    for (auto& pair : pairs_) {
      if (pair->over) continue;
      pair->over = !pass(pair->near, pair->far, &pair->said) || !pass(pair->far, pair->near, nullptr);
      if (!pair->over) continue;
      pair->near.close();
      pair->far.close();
    }
    auto near = listening_.accept();
    if (!near.ok() || !*near) continue;
    auto far = net::Socket::connect(to_, Deadline::after_seconds(5));
    if (!far.ok()) continue;
    pairs_.push_back(std::make_unique<Pair>());
    pairs_.back()->near = std::move(**near);
    pairs_.back()->far = std::move(*far);
  }
}

}  // namespace horo::test
