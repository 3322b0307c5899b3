#include "cli/bench/stream.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "horo/base/config.h"
#include "horo/net/poller.h"

namespace horo::bench {

namespace {

constexpr double kMeetSeconds = 20;
constexpr double kExchangeSeconds = 120;
constexpr size_t kChunk = 256 << 10;  // Larger writes gained nothing on loopback.

using AddressText = std::array<char, 128>;

Result<net::Address> own_address() {
  const auto chosen = Environment::of_process().find("HORO_INTERFACE");
  auto literal = net::Address::ip(chosen.value_or("127.0.0.1"), 0);
  return literal.ok() ? literal : net::choose_interface(*chosen);
}

Result<net::Socket> accept_one(net::ListenSocket& listener) {
  const Deadline deadline = Deadline::after_seconds(kMeetSeconds);
  while (true) {
    HORO_TRY(net::wait_ready(listener.fd(), net::Interest::kRead, deadline, "the other end of a raw stream"));
    HORO_ASSIGN(auto arrived, listener.accept());
    if (arrived) return std::move(*arrived);
  }
}

}  // namespace

Result<Stream> Stream::meet(int rank, int size, horo_group* world) {
  Stream stream;
  std::optional<net::ListenSocket> listener;
  AddressText address{};
  if (rank == 0) {
    HORO_ASSIGN(const net::Address at, own_address());
    HORO_ASSIGN(auto listening, net::ListenSocket::listen(at));
    listener.emplace(std::move(listening));
    const std::string told = listener->address().to_string();
    std::copy_n(told.begin(), std::min(told.size(), address.size() - 1), address.begin());
  }
  if (horo_status* failed = horo_broadcast(world, address.data(), address.size(), HORO_BYTE, 0)) {
    Status status(Code::kInternal, horo_status_message(failed));
    horo_status_free(failed);
    return status;
  }
  if (rank == 0) {
    HORO_ASSIGN(stream.socket_, accept_one(*listener));
  } else if (rank == size - 1) {
    HORO_ASSIGN(const net::Address to, net::Address::parse(address.data()));
    HORO_ASSIGN(stream.socket_, net::Socket::connect(to, Deadline::after_seconds(kMeetSeconds)));
  }
  return stream;
}

Status Stream::exchange(std::span<const std::byte> out, std::span<std::byte> in) const {
  if (!socket_.valid()) return {};
  const Deadline deadline = Deadline::after_seconds(kExchangeSeconds);
  while (!out.empty() || !in.empty()) {
    bool moved = false;
    if (!out.empty()) {
      const net::IoResult sent = socket_.send(out.first(std::min(out.size(), kChunk)));
      if (sent.is_failed()) return sent.status();
      out = out.subspan(sent.bytes());
      moved = sent.is_moved();
    }
    if (!in.empty()) {
      const net::IoResult got = socket_.receive(in.first(std::min(in.size(), kChunk)));
      if (got.is_failed() || got.is_end()) return Status(Code::kPeerLost, "the raw stream broke");
      in = in.subspan(got.bytes());
      moved = moved || got.is_moved();
    }
    if (moved) continue;
    net::PollItem item{.fd = socket_.fd(), .interest = net::interest(!in.empty(), !out.empty())};
    HORO_ASSIGN(const size_t ready, net::poll_many({&item, 1}, deadline));
    if (ready == 0) return Status(Code::kTimeout, "the raw stream stands still");
  }
  return {};
}

}  // namespace horo::bench
