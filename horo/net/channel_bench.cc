// What authentication costs: a handshake per pair (both sides, one thread), garbage per connection, messages.
#include <benchmark/benchmark.h>

#include <optional>
#include <vector>

#include "horo/net/channel.h"
#include "horo/net/listener.h"
#include "horo/net/tls.h"

namespace horo::net {
namespace {

struct Job {
  std::shared_ptr<const Tls> tls = *Tls::create();
  std::shared_ptr<const Key> key = std::make_shared<const Key>(*Key::random());
  Identity identity{"job", Purpose::kControl, 4, 1, 0};
  ChannelOptions client;
  ListenerOptions server;

  Job() {
    client.hello = local_hello(1, 4);
    server.channel.hello = local_hello(0, 4);
    server.job = "job";
    server.most_accepts_per_second = 1e6;
  }
  std::pair<Channel, Channel> ready_pair() {
    auto ends = Socket::pair();
    auto one = Channel::connect(tls, std::move(ends->first), *key, identity, client);
    auto two = Channel::accept(tls, std::move(ends->second), key, "job", server.channel);
    while (!one->ready() || !two->ready()) {
      HORO_CHECK(one->progress().ok() && two->progress().ok(), "the handshake works");
    }
    return {std::move(*one), std::move(*two)};
  }
};

void handshake_of_a_pair(benchmark::State& state) {
  Job job;
  for (auto _ : state) benchmark::DoNotOptimize(job.ready_pair());
}
BENCHMARK(handshake_of_a_pair)->Unit(benchmark::kMicrosecond);

/// Connecting and closing included: the cost to both ends. `refusal_us` is the listener's part.
void garbage_connection(benchmark::State& state) {
  Job job;
  Deadline never;
  auto listener = Listener::open(Address::loopback(), job.tls, job.key, job.server);
  // 0: bytes of no protocol we know. 1: the beginning of a TLS handshake that goes wrong in OpenSSL.
  std::vector<std::byte> bytes(300, std::byte{0x41});
  if (state.range(0) == 1) {
    const int head[] = {22, 3, 1, 1, 39, 1, 0, 1, 35, 3, 3};
    for (size_t i = 0; i < std::size(head); ++i) bytes[i] = std::byte(head[i]);
  }
  Duration spent{};
  for (auto _ : state) {
    auto socket = Socket::connect(listener->address(), never);
    HORO_CHECK(socket->send_all(bytes, never).ok(), "loopback takes a few bytes");
    uint64_t before = listener->counts().garbage + listener->counts().refused;
    while (listener->counts().garbage + listener->counts().refused == before) {
      PollItem item{listener->fd()};
      HORO_CHECK(poll_many({&item, 1}, never).ok(), "the listener can be waited for");
      Time start = Clock::now();
      HORO_CHECK(listener->step().ok(), "the listener works");
      spent += Clock::now() - start;
    }
  }
  double each = std::chrono::duration<double, std::micro>(spent).count() / static_cast<double>(state.iterations());
  state.counters["refusal_us"] = each;
}
BENCHMARK(garbage_connection)->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

void message(benchmark::State& state) {
  Job job;
  auto [one, two] = job.ready_pair();
  std::vector<std::byte> payload(static_cast<size_t>(state.range(0)));
  FrameHeader header;
  header.type = 1;
  for (auto _ : state) {
    HORO_CHECK(one.send(header, payload).ok(), "there is room");
    while (true) {
      HORO_CHECK(one.progress().ok(), "the channel works");
      auto message = two.receive();
      if (message->has_value()) break;
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(message)->Arg(64)->Arg(4096)->Arg(1 << 20);

}  // namespace
}  // namespace horo::net
