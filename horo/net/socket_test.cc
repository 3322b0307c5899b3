#include "horo/net/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "horo/net/poller.h"
#include "horo/net/testing.h"

namespace horo::net {
namespace {

using testing::bytes_of;
using testing::soon;

Address unique_name(const char* name) { return *Address::unix_abstract(text("horo-test-", getpid(), "-", name)); }

struct Connection {
  Socket client;
  Socket server;
};

Connection connect_to(ListenSocket& listener) {
  auto client = Socket::connect(listener.address(), soon());
  EXPECT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE(wait_ready(listener.fd(), Interest::kRead, soon(), "accepting").ok());
  auto server = listener.accept();
  EXPECT_TRUE(server.ok() && server->has_value()) << server.status();
  return {std::move(*client), std::move(**server)};
}

bool is_close_on_exec(int fd) { return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

TEST(Socket, ThatIsConnectedToItselfHasFoundNobody) {
  for (const int family : {AF_INET, AF_INET6}) {
    UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage place{};
    place.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET6) {
      reinterpret_cast<sockaddr_in6&>(place).sin6_addr = in6addr_loopback;
    } else {
      reinterpret_cast<sockaddr_in&>(place).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    auto* where = reinterpret_cast<sockaddr*>(&place);
    if (bind(fd.get(), where, size) != 0) {
      ASSERT_EQ(family, AF_INET6) << strerror(errno);  // Which not every system has.
      continue;
    }
    ASSERT_EQ(getsockname(fd.get(), where, &size), 0);
    ASSERT_EQ(connect(fd.get(), where, size), 0) << "the system lets nobody connect to itself any more";
    const auto socket = Socket::adopt(std::move(fd));
    ASSERT_TRUE(socket.ok()) << socket.status();
    EXPECT_EQ(socket->connected().code(), Code::kUnavailable) << socket->connected();
  }
}

TEST(Socket, MovesBytesOverIpv4Ipv6AndUnix) {
  for (Address at : {Address::loopback(), *Address::parse("[::1]:0"), unique_name("moves")}) {
    auto listener = ListenSocket::listen(at);
    ASSERT_TRUE(listener.ok()) << listener.status();
    Connection both = connect_to(*listener);
    EXPECT_TRUE(is_close_on_exec(both.client.fd()) && is_close_on_exec(both.server.fd()));
    ASSERT_TRUE(both.client.send_all(bytes_of("hello"), soon()).ok());
    std::array<std::byte, 5> got{};
    ASSERT_TRUE(both.server.receive_all(got, soon()).ok());
    EXPECT_EQ(std::memcmp(got.data(), "hello", 5), 0);
    EXPECT_TRUE(both.server.receive(got).is_would_block());
    both.client.shutdown_send();
    ASSERT_TRUE(wait_ready(both.server.fd(), Interest::kRead, soon(), "the end").ok());
    EXPECT_TRUE(both.server.receive(got).is_end());
    EXPECT_EQ(both.client.peer_address()->to_string(), listener->address().to_string());
  }
}

TEST(Socket, GathersAndScattersBuffers) {
  auto [a, b] = *Socket::pair();
  std::array<std::span<const std::byte>, 2> out = {bytes_of("horo"), bytes_of("net")};
  EXPECT_EQ(a.send(out).bytes(), 7u);
  std::array<std::byte, 2> first;
  std::array<std::byte, 9> second;
  std::array<std::span<std::byte>, 2> in = {std::span<std::byte>(first), std::span<std::byte>(second)};
  EXPECT_EQ(b.receive(in).bytes(), 7u);
  EXPECT_EQ(std::memcmp(first.data(), "ho", 2), 0);
  EXPECT_EQ(std::memcmp(second.data(), "ronet", 5), 0);
}

TEST(Socket, TellsAFullBufferFromALostPeer) {
  auto [a, b] = *Socket::pair();
  std::vector<std::byte> block(1 << 16);
  IoResult result = IoResult::would_block();
  while ((result = a.send(block)).is_moved()) {
  }
  EXPECT_TRUE(result.is_would_block());
  b.close();
  result = a.send(block);
  ASSERT_TRUE(result.is_failed());
  EXPECT_EQ(result.status().code(), Code::kPeerLost);
}

TEST(Socket, SaysWhenNobodyListens) {
  auto listener = ListenSocket::listen(Address::loopback());
  Address gone = listener->address();
  listener = ListenSocket::listen(Address::loopback());
  EXPECT_EQ(Socket::connect(gone, soon()).status().code(), Code::kUnavailable);
  EXPECT_FALSE(Socket::connect(unique_name("nobody"), soon()).ok());
  EXPECT_FALSE(Socket::connect(Address(), soon()).ok());
}

TEST(Socket, WaitsForAFullUnixQueueOnlyUntilTheDeadline) {
  ListenOptions options;
  options.backlog = 1;
  auto listener = ListenSocket::listen(unique_name("full"), options);
  std::vector<Socket> waiting;
  Status last;
  while (last.ok()) {
    auto client = Socket::connect(listener->address(), Deadline::after_seconds(0.02));
    last = client.status();
    if (client.ok()) waiting.push_back(std::move(*client));
    ASSERT_LT(waiting.size(), 10u);
  }
  EXPECT_EQ(last.code(), Code::kTimeout) << last;
  std::thread accepter([&] {
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(listener->accept().ok());
  });
  EXPECT_TRUE(Socket::connect(listener->address(), soon()).ok());
  accepter.join();
}

TEST(Socket, TakesOptionsAndRefusesAnUnknownCongestionControl) {
  auto listener = ListenSocket::listen(Address::loopback());
  Connection both = connect_to(*listener);
  SocketOptions options;
  options.send_buffer = options.receive_buffer = 1 << 16;
  options.user_timeout = std::chrono::seconds(3);
  options.congestion = "reno";
  EXPECT_TRUE(both.client.set_options(options).ok());
  EXPECT_EQ(*both.client.congestion_control(), "reno");
  EXPECT_TRUE(both.client.set_quick_ack(true).ok());
  options.congestion = "nosuch";
  EXPECT_FALSE(both.client.set_options(options).ok());
  auto credentials = Socket::pair()->first.peer_credentials();
  ASSERT_TRUE(credentials.ok());
  EXPECT_EQ(credentials->pid, getpid());
  EXPECT_EQ(credentials->uid, getuid());
}

TEST(Descriptors, ArriveAsTheSameFileAndCloseOnExec) {
  auto [a, b] = *Socket::pair();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  UniqueFd reader(pipe_ends[0]);
  UniqueFd writer(pipe_ends[1]);
  std::array<int, 2> sent = {reader.get(), writer.get()};
  ASSERT_TRUE(a.send_descriptors(bytes_of("x"), sent).is_moved());
  std::vector<UniqueFd> got;
  std::array<std::byte, 4> into;
  ASSERT_EQ(b.receive_descriptors(into, 2, got).bytes(), 1u);
  ASSERT_EQ(got.size(), 2u);
  struct stat mine {
  }, theirs{};
  fstat(reader.get(), &mine);
  fstat(got[0].get(), &theirs);
  EXPECT_EQ(mine.st_ino, theirs.st_ino);
  EXPECT_TRUE(is_close_on_exec(got[0].get()));
}

TEST(Descriptors, OfAWrongNumberAreRefusedAndClosed) {
  auto [a, b] = *Socket::pair();
  size_t before = testing::open_descriptors();
  for (size_t sent : {0u, 1u, 3u, 16u}) {
    std::vector<int> fds(sent, STDERR_FILENO);
    if (sent == 0) {
      ASSERT_TRUE(a.send(bytes_of("x")).is_moved());
    } else {
      ASSERT_TRUE(a.send_descriptors(bytes_of("x"), fds).is_moved());
    }
    std::vector<UniqueFd> got;
    std::array<std::byte, 1> into;
    IoResult result = b.receive_descriptors(into, 2, got);
    ASSERT_TRUE(result.is_failed());
    EXPECT_EQ(result.status().code(), Code::kCorrupt);
    EXPECT_TRUE(got.empty());
    EXPECT_EQ(testing::open_descriptors(), before);
  }
  EXPECT_TRUE(a.send_descriptors(bytes_of("x"), std::vector<int>(17, 2)).is_failed());
  EXPECT_TRUE(a.send_descriptors(bytes_of("x"), {}).is_failed());
}

TEST(ListenSocket, RefusesOneConnectionPerCallWhenDescriptorsRunOut) {
  auto listener = ListenSocket::listen(unique_name("short"));
  std::vector<Socket> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(*Socket::connect(listener->address(), soon()));
  rlimit saved{};
  getrlimit(RLIMIT_NOFILE, &saved);
  UniqueFd highest(dup(STDERR_FILENO));
  rlimit low = saved;
  low.rlim_cur = static_cast<rlim_t>(highest.get());  // every lower number is in use
  highest.reset();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<Status> outcomes;
  for (int i = 0; i < 4; ++i) outcomes.push_back(listener->accept().status());
  setrlimit(RLIMIT_NOFILE, &saved);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(outcomes[i].code(), Code::kUnavailable);
    EXPECT_NE(outcomes[i].message().find("ulimit -n"), std::string::npos) << outcomes[i];
  }
  EXPECT_TRUE(outcomes[3].ok()) << outcomes[3];
  EXPECT_LE(listener->may_accept_at(), Clock::now());
  clients.push_back(*Socket::connect(listener->address(), soon()));
  auto accepted = listener->accept();
  ASSERT_TRUE(accepted.ok());
  EXPECT_TRUE(accepted->has_value());
}

}  // namespace
}  // namespace horo::net
