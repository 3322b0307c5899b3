#include "horo/transport/tcp/mesh.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "horo/base/text.h"
#include "horo/transport/tcp/wires_testing.h"

namespace horo::transport::tcp {
namespace {

using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;

constexpr Signature kSum{Kind::kAllreduce, DType::kF32, ReduceOp::kSum, 1, 0, 4};
constexpr Seat kSeat{1, 2, 5, 9};

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }
Placement into(Bytes& bytes) { return {bytes.data(), nullptr, nullptr, 1}; }

std::vector<Sockets> streams_to_rank_0(net::Socket socket) {
  std::vector<Sockets> streams(2);
  streams[0].push_back(std::move(socket));
  return streams;
}

/// Everything that a mesh in `seat` puts on its wire to send `data` in operation 1.
Bytes wire_image(const Bytes& data, const Seat& seat) {
  auto [mine, test] = net::Socket::pair().value();
  std::vector<Sockets> streams(2);
  streams[static_cast<size_t>(1 - seat.rank)].push_back(std::move(mine));
  auto mesh = Mesh::create(seat, std::move(streams)).value();
  mesh->begin(1, kSum);
  mesh->send(1 - seat.rank, data);
  EXPECT_TRUE(mesh->wait(soon()).ok());
  Bytes image(data.size() + 4096);
  image.resize(test.receive(image).bytes());
  return image;
}

/// What rank 1 makes of `image` on its wire from rank 0, which then ends if `end`.
Status receive_image(const Bytes& image, Bytes& received, bool end = true) {
  auto [mine, test] = net::Socket::pair().value();
  auto mesh = Mesh::create(kSeat, streams_to_rank_0(std::move(mine))).value();
  EXPECT_TRUE(test.send_all(image, soon()).ok());
  if (end) test.shutdown_send();
  mesh->begin(1, kSum);
  mesh->receive(0, received.size(), into(received));
  return mesh->wait(soon());
}

TEST(TcpMesh, AFrameIsSixtyFourBytesOfHeaderTwentyFourOfPrefixAndTheData) {
  Bytes data(100, std::byte{7}), received(100);
  Bytes image = wire_image(data, {0, 2, 5, 9});
  EXPECT_EQ(image.size(), kHeadBytes + 100);
  EXPECT_TRUE(receive_image(image, received).ok());
  EXPECT_EQ(received, data);
}

TEST(TcpMesh, AFlippedBitAnywhereInAFrameIsNoticed) {
  Bytes data(40, std::byte{7}), received(40);
  const Bytes image = wire_image(data, {0, 2, 5, 9});
  for (size_t at = 0; at < image.size(); ++at) {
    Bytes damaged = image;
    damaged[at] ^= static_cast<std::byte>(1U << (at % 8));
    Status status = receive_image(damaged, received);
    EXPECT_EQ(status.code(), Code::kCorrupt) << "byte " << at << ": " << status;
    EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status;
    EXPECT_NE(status.message().find("operation 1"), std::string::npos) << status;
  }
}

TEST(TcpMesh, AStreamThatEndsAnywhereInAFrameIsALostPeer) {
  Bytes data(40, std::byte{7}), received(40);
  const Bytes image = wire_image(data, {0, 2, 5, 9});
  for (size_t length = 0; length < image.size(); ++length) {
    Status status = receive_image(Bytes(image.begin(), image.begin() + static_cast<ptrdiff_t>(length)), received);
    EXPECT_EQ(status.code(), Code::kPeerLost) << length << ": " << status;
    EXPECT_EQ(status.lost(), std::vector<int>{0});
  }
}

TEST(TcpMesh, FramesOfAnotherEpochGroupOrRankAreRefused) {
  Bytes data(40, std::byte{7}), received(40);
  for (const Seat& seat : {Seat{0, 2, 4, 9}, Seat{0, 2, 5, 8}, Seat{1, 2, 5, 9}}) {
    Status status = receive_image(wire_image(data, seat), received);
    EXPECT_EQ(status.code(), Code::kIncompatible) << status;
  }
}

TEST(TcpMesh, GarbageIsNeverAMessage) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  Bytes data(300, std::byte{7}), received(300);
  const Bytes image = wire_image(data, {0, 2, 5, 9});
  for (int i = 0; i < 300; ++i) {
    Bytes garbage(image.begin(), image.begin() + static_cast<ptrdiff_t>(random() % 64));
    while (garbage.size() < image.size()) garbage.push_back(static_cast<std::byte>(random()));
    EXPECT_FALSE(receive_image(garbage, received).ok());
  }
}

TEST(TcpMesh, ADamagedPayloadFailsItsOperationOnBothSidesAndTheNextOneWorks) {
  auto [first, relay_first] = net::Socket::pair().value();
  auto [second, relay_second] = net::Socket::pair().value();
  std::vector<Sockets> to_rank_1(2);
  to_rank_1[1].push_back(std::move(first));
  auto sender = Mesh::create({0, 2, 5, 9}, std::move(to_rank_1)).value();
  auto receiver = Mesh::create(kSeat, streams_to_rank_0(std::move(second))).value();
  auto relay = [](net::Socket& from, net::Socket& to, size_t flip) {
    Bytes bytes(10000);
    bytes.resize(from.receive(bytes).bytes());
    if (flip < bytes.size()) bytes[flip] ^= std::byte{1};
    EXPECT_TRUE(to.send_all(bytes, soon()).ok());
  };
  Bytes data(1000, std::byte{3}), received(1000);
  for (uint64_t number = 1; number <= 4; ++number) {
    const bool damage = number % 2 == 1;
    sender->begin(number, kSum);
    sender->send(1, data);
    EXPECT_TRUE(sender->poke().ok());
    relay(relay_first, relay_second, damage ? 500 : SIZE_MAX);
    receiver->begin(number, kSum);
    receiver->receive(0, 1000, into(received));
    Status status = receiver->wait(soon());
    if (!damage) {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_EQ(status.code(), Code::kCorrupt) << status;
    EXPECT_NE(status.message().find("offset 0"), std::string::npos) << status;
    EXPECT_EQ(status.operation(), number);
    relay(relay_second, relay_first, SIZE_MAX);
    sender->receive(1, 1000, into(received));
    Status told = sender->wait(soon());
    EXPECT_EQ(told.code(), Code::kCorrupt) << told;
    EXPECT_EQ(told.message(), status.message());
  }
}

TEST(TcpMesh, AMismatchIsToldToARankThatWaitsForSomebodyElse) {
  auto meshes = connected_meshes(3, {});
  // Ranks 0 and 1 disagree; rank 2 waits for rank 1, which gives up. Rank 2's own signature fits rank 1's.
  auto act = [&](int rank, int to, int from, uint64_t count) {
    Signature signature = kSum;
    signature.count = count;
    Bytes sent(4), received(4);
    Mesh& mesh = *meshes[static_cast<size_t>(rank)];
    mesh.begin(1, signature);
    if (to >= 0) mesh.send(to, sent);
    mesh.receive(from, 4, into(received));
    Status status = mesh.wait(soon());
    EXPECT_EQ(status.code(), Code::kMismatch) << status;
    EXPECT_NE(status.message().find("of 7 f32"), std::string::npos) << status;
    EXPECT_NE(status.message().find("of 8 f32"), std::string::npos) << status;
  };
  std::thread zero([&] { act(0, 1, 1, 7); });
  std::thread one([&] { act(1, 0, 0, 8); });
  act(2, -1, 1, 8);
  zero.join();
  one.join();
}

// Rank 0 alone can see that rank 2 sent too much, when rank 1 has not yet taken what is under way to it. What is left
// to send, and the refusal behind it, must leave rank 0 before its operation is over: nobody drives its wires
// afterwards.
TEST(TcpMesh, AMismatchReachesARankThatMuchIsUnderWayTo) {
  for (size_t streams : {1, 2}) {
    auto meshes = connected_meshes(3, {.streams = streams});
    Bytes much(8 << 20), too_much(8), expected(4), answer(4), received(much.size());
    meshes[0]->begin(1, kSum);
    meshes[0]->send(1, much);
    meshes[0]->receive(2, expected.size(), into(expected));
    std::thread zero([&] { EXPECT_EQ(meshes[0]->wait(soon()).code(), Code::kMismatch); });
    meshes[2]->begin(1, kSum);
    meshes[2]->send(0, too_much);
    meshes[2]->receive(0, answer.size(), into(answer));
    EXPECT_EQ(meshes[2]->wait(soon()).code(), Code::kMismatch);
    meshes[1]->begin(1, kSum);
    meshes[1]->receive(0, received.size(), into(received));
    const Status status = meshes[1]->wait(Deadline::after(std::chrono::seconds(5)));
    EXPECT_EQ(status.code(), Code::kMismatch) << status;
    EXPECT_NE(status.message().find("expects 4 bytes from rank 2"), std::string::npos) << status;
    zero.join();
  }
}

TEST(TcpMesh, AMismatchThatNotAllHaveHeardOfWhenTheGroupEndsIsNone) {
  auto meshes = connected_meshes(3, {});
  Bytes much(8 << 20), too_much(8), expected(4), answer(4);
  meshes[0]->begin(1, kSum);
  meshes[0]->send(1, much);  // Which it does not read.
  meshes[0]->receive(2, expected.size(), into(expected));
  Status status;
  std::thread zero([&] { status = meshes[0]->wait(soon()); });
  meshes[2]->begin(1, kSum);
  meshes[2]->send(0, too_much);
  meshes[2]->receive(0, answer.size(), into(answer));
  EXPECT_EQ(meshes[2]->wait(soon()).code(), Code::kMismatch);
  meshes[0]->revoke();
  zero.join();
  EXPECT_EQ(status.code(), Code::kStopped) << status;
}

TEST(TcpMesh, ASenderWhoseMessageIsRefusedNeedNotWaitForItsDeadline) {
  auto meshes = connected_meshes(2, {});
  std::thread refuser([&] {
    Bytes received(4);
    meshes[1]->begin(1, kSum);
    meshes[1]->receive(0, 4, into(received));
    EXPECT_EQ(meshes[1]->wait(soon()).code(), Code::kMismatch);
  });
  Bytes sent(8 << 20);
  meshes[0]->begin(1, kSum);
  meshes[0]->send(1, sent);
  Status status = meshes[0]->wait(soon());
  EXPECT_EQ(status.code(), Code::kMismatch) << status;
  EXPECT_NE(status.message().find("expects 4 bytes"), std::string::npos) << status;
  refuser.join();
}

struct Witness : Watcher {
  void found_dead(int member) override { dead.push_back(member); }
  void waiting_for(int member, Time since) override {
    waits.push_back({member, since});
    if (waits.size() == 2) mesh->revoke();
  }
  std::vector<int> dead;
  std::vector<std::pair<int, Time>> waits;
  Mesh* mesh = nullptr;
};

TEST(TcpMesh, TheWatcherHearsOfPeersThatAreWaitedForLongAndOfDeadOnesOnce) {
  Witness witness;
  WiresOptions options;
  options.mesh.watcher = &witness;
  auto meshes = connected_meshes(3, options);
  witness.mesh = meshes[0].get();
  Bytes received(4);
  const Time start = Clock::now();
  meshes[1].reset();
  for (uint64_t number : {1, 2}) {
    meshes[0]->begin(number, kSum);
    meshes[0]->receive(1, 4, into(received));
    EXPECT_EQ(meshes[0]->wait(soon()).code(), Code::kPeerLost);
  }
  EXPECT_EQ(witness.dead, std::vector<int>{1});
  meshes[0]->begin(3, kSum);
  meshes[0]->receive(2, 4, into(received));
  EXPECT_EQ(meshes[0]->wait(soon()).code(), Code::kStopped);
  ASSERT_EQ(witness.waits.size(), 2U);
  for (auto& [member, since] : witness.waits) {
    EXPECT_EQ(member, 2);
    EXPECT_GE(since, start);
  }
  EXPECT_GE(Clock::now() - start, milliseconds(200));
}

TEST(TcpMesh, SeatsAndStreamsThatDoNotFitAreRefused) {
  auto code = [](const Seat& seat, size_t lists, MeshOptions options = {}) {
    return Mesh::create(seat, std::vector<Sockets>(lists), options).status().code();
  };
  EXPECT_EQ(code({2, 2, 0, 0}, 2), Code::kInvalidArgument);
  EXPECT_EQ(code({0, 1, 0, 0}, 2), Code::kInvalidArgument);
  EXPECT_EQ(code({0, 2, 0, 0}, 2), Code::kInvalidArgument);  // No stream to rank 1.
  MeshOptions odd;
  odd.chunk = 100;
  EXPECT_EQ(code({0, 1, 0, 0}, 1, odd), Code::kInvalidArgument);
  EXPECT_TRUE(Mesh::create({0, 1, 0, 0}, std::vector<Sockets>(1)).ok());
}

}  // namespace
}  // namespace horo::transport::tcp
