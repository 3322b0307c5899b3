// Two processes over loopback: an allreduce as two ranks run it (each sends all it has and combines what comes).
//
//   bench_tcp_mesh_bench [largest bytes] [unix]
//
// Prints the best and the median time of one operation, and the bytes that one rank sends per second at the best.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "horo/kernel/reduce.h"
#include "horo/transport/tcp/mesh.h"

namespace {

using namespace horo;  // NOLINT
using transport::Kind;
using transport::Signature;
namespace tcp = transport::tcp;

struct Setting {
  size_t streams = 1;
  bool checksum = true;
  bool unix_sockets = false;
  bool combine = true;
  bool encrypt = false;
};

/// Keys do not survive fork(), so every rank makes them, of no secret.
net::StreamKeys keys_of(int rank) {
  auto key = [](unsigned char filler) {
    return net::Key::from_bytes(std::vector<std::byte>(net::Key::kBytes, std::byte{filler})).value();
  };
  const auto mine = static_cast<unsigned char>(rank + 1), theirs = static_cast<unsigned char>(2 - rank);
  return {net::has_fast_aes() ? net::Protection::kAesGcm : net::Protection::kChaChaPoly, key(mine), key(theirs)};
}

std::pair<net::Socket, net::Socket> connect(bool unix_sockets) {
  if (unix_sockets) return net::Socket::pair().value();
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  auto listener = net::ListenSocket::listen(net::Address::loopback()).value();
  net::Socket one = net::Socket::connect(listener.address(), deadline).value();
  HORO_CHECK(net::wait_ready(listener.fd(), net::Interest::kRead, deadline, "accepting").ok(), "nobody connected");
  net::Socket other = std::move(listener.accept().value().value());
  HORO_CHECK(other.set_options({}).ok(), "socket options");
  return {std::move(one), std::move(other)};
}

/// Seconds of each round, sorted.
std::vector<double> measure(tcp::Mesh& mesh, uint64_t& number, size_t bytes, bool combine) {
  const int peer = 1 - mesh.rank();
  std::vector<float> mine(bytes / 4 + 1, 1.0F), result(bytes / 4 + 1);
  const auto sum = kernel::combine(DType::kF32, ReduceOp::kSum);
  const size_t rounds = std::clamp<size_t>((256 << 20) / (bytes + 1), 5, 3000);
  const size_t warm = rounds / 10 + 1;
  std::vector<double> seconds;
  for (size_t round = 0; round < warm + rounds; ++round) {
    const Time start = Clock::now();
    mesh.begin(++number, Signature{Kind::kAllreduce, DType::kF32, ReduceOp::kSum, 0, 0, bytes / 4});
    mesh.send(peer, std::as_bytes(std::span(mine)).first(bytes));
    transport::Placement placement{reinterpret_cast<std::byte*>(result.data()), nullptr, nullptr, 4};
    if (combine) placement.combine = sum, placement.with = reinterpret_cast<const std::byte*>(mine.data());
    mesh.receive(peer, bytes, placement);
    Status status = mesh.wait(Deadline::after(std::chrono::seconds(60)));
    HORO_CHECK(status.ok(), status.to_string());
    if (round >= warm) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

void run_rank(int rank, std::vector<tcp::Wire> sockets, const Setting& setting, size_t most) {
  for (tcp::Wire& wire : sockets) {
    if (setting.encrypt) wire.keys = keys_of(rank);
  }
  std::vector<std::vector<tcp::Wire>> streams(2);
  streams[static_cast<size_t>(1 - rank)] = std::move(sockets);
  tcp::MeshOptions options;
  options.checksum = setting.checksum;
  auto mesh = tcp::Mesh::create({rank, 2, 1, 1}, std::move(streams), options).value();
  uint64_t number = 0;
  for (size_t bytes = 4; bytes <= most; bytes = bytes == 4 ? 1024 : bytes * 4) {
    auto seconds = measure(*mesh, number, bytes, setting.combine);
    if (rank != 0) continue;
    const double best = seconds.front();
    std::printf("%-4s streams %zu %-11s %-7s %10zu B  best %10.2f us  median %10.2f us  %6.2f GB/s\n",
                setting.unix_sockets ? "unix" : "tcp", setting.streams,
                setting.encrypt    ? "encrypted"
                : setting.checksum ? "checksum"
                                   : "no checksum",
                setting.combine ? "combine" : "copy", bytes, best * 1e6, seconds[seconds.size() / 2] * 1e6,
                static_cast<double>(bytes) / best / 1e9);
    std::fflush(stdout);
  }
}

void run(const Setting& setting, size_t most) {
  std::vector<tcp::Wire> ours, theirs;
  for (size_t i = 0; i < setting.streams; ++i) {
    auto [one, other] = connect(setting.unix_sockets);
    ours.push_back(std::move(one));
    theirs.push_back(std::move(other));
  }
  const pid_t child = fork();
  HORO_CHECK(child >= 0, "fork");
  if (child == 0) {
    ours.clear();
    run_rank(1, std::move(theirs), setting, most);
    _exit(0);
  }
  theirs.clear();
  run_rank(0, std::move(ours), setting, most);
  waitpid(child, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t most = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 256 << 20;
  const bool unix_sockets = argc > 2 && std::strcmp(argv[2], "unix") == 0;
  for (size_t streams : {1, 2, 4}) {
    for (bool checksum : {true, false}) run({streams, checksum, unix_sockets, true}, most);
  }
  run({1, true, unix_sockets, false}, most);
  run({2, true, unix_sockets, true, true}, most);
  return 0;
}
