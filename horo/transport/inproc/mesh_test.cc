#include "horo/transport/inproc/mesh.h"

#include <gtest/gtest.h>

#include <thread>

namespace horo::transport {
namespace {

using std::chrono::milliseconds;

constexpr Signature kSum{Kind::kAllreduce, DType::kF32, ReduceOp::kSum, 1, 0, 4};

std::span<const std::byte> bytes_of(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

Placement into(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), nullptr, nullptr, 4};
}

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

TEST(InprocMesh, MessagesArriveInTheOrderInWhichTheyWerePosted) {
  InprocFabric fabric(2);
  std::vector<float> one{1}, two{2, 3};
  std::thread sender([&] {
    Mesh& mesh = fabric.mesh(0);
    mesh.begin(1, kSum);
    mesh.send(1, bytes_of(one));
    mesh.send(1, bytes_of(two));
    EXPECT_TRUE(mesh.wait(soon()).ok());
  });
  Mesh& mesh = fabric.mesh(1);
  std::vector<float> first(1), second(2);
  mesh.begin(1, kSum);
  mesh.receive(0, 4, into(first));
  mesh.receive(0, 8, into(second));
  EXPECT_TRUE(mesh.wait(soon()).ok());
  sender.join();
  EXPECT_EQ(first, one);
  EXPECT_EQ(second, two);
}

TEST(InprocMesh, AReceiveCanCombineWithWhatIsThere) {
  InprocFabric fabric(2);
  std::vector<float> sent{1, 2, 3}, mine{10, 20, 30}, result(3);
  std::thread sender([&] {
    fabric.mesh(0).begin(1, kSum);
    fabric.mesh(0).send(1, bytes_of(sent));
    EXPECT_TRUE(fabric.mesh(0).wait(soon()).ok());
  });
  Placement placement = into(result);
  placement.with = reinterpret_cast<const std::byte*>(mine.data());
  placement.combine = kernel::combine(DType::kF32, ReduceOp::kSum);
  fabric.mesh(1).begin(1, kSum);
  fabric.mesh(1).receive(0, 12, placement);
  EXPECT_TRUE(fabric.mesh(1).wait(soon()).ok());
  sender.join();
  EXPECT_EQ(result, (std::vector<float>{11, 22, 33}));
}

TEST(InprocMesh, DifferentSignaturesAreAMismatchThatNamesBoth) {
  InprocFabric fabric(2);
  std::vector<float> sent{1}, received(1);
  std::thread sender([&] {
    Signature other = kSum;
    other.count = 5;
    fabric.mesh(0).begin(1, other);
    fabric.mesh(0).send(1, bytes_of(sent));
    EXPECT_EQ(fabric.mesh(0).wait(soon()).code(), Code::kMismatch);
  });
  fabric.mesh(1).begin(1, kSum);
  fabric.mesh(1).receive(0, 4, into(received));
  Status status = fabric.mesh(1).wait(soon());
  sender.join();
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.message().find("allreduce of 4 f32"), std::string::npos) << status;
  EXPECT_NE(status.message().find("allreduce of 5 f32"), std::string::npos) << status;
  EXPECT_EQ(status.operation(), 1U);
}

TEST(InprocMesh, DifferentSizesAreAMismatchThatNamesBoth) {
  InprocFabric fabric(2);
  std::vector<float> sent{1, 2}, received(1);
  std::thread sender([&] {
    fabric.mesh(0).begin(1, kSum);
    fabric.mesh(0).send(1, bytes_of(sent));
    EXPECT_EQ(fabric.mesh(0).wait(soon()).code(), Code::kMismatch);
  });
  fabric.mesh(1).begin(1, kSum);
  fabric.mesh(1).receive(0, 4, into(received));
  Status status = fabric.mesh(1).wait(soon());
  sender.join();
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.message().find("expects 4 bytes"), std::string::npos) << status;
  EXPECT_NE(status.message().find("sent 8"), std::string::npos) << status;
}

TEST(InprocMesh, MessagesOfAnEarlierOperationAreThrownAwayAndLaterOnesWait) {
  InprocFabric fabric(2);
  std::vector<float> stale{1}, fresh{2}, early(1), received(1);
  std::thread sender([&] {
    Mesh& mesh = fabric.mesh(0);
    mesh.begin(1, kSum);
    mesh.send(1, bytes_of(stale));
    EXPECT_TRUE(mesh.wait(soon()).ok());  // Thrown away by the receiver, which counts as moved.
    mesh.begin(3, kSum);
    mesh.send(1, bytes_of(fresh));
    EXPECT_TRUE(mesh.wait(soon()).ok());
  });
  Mesh& mesh = fabric.mesh(1);
  mesh.begin(2, kSum);
  mesh.receive(0, 4, into(early));
  Status status = mesh.wait(Deadline::after(milliseconds(50)));
  EXPECT_EQ(status.code(), Code::kTimeout) << status;
  mesh.begin(3, kSum);
  mesh.receive(0, 4, into(received));
  EXPECT_TRUE(mesh.wait(soon()).ok());
  sender.join();
  EXPECT_EQ(received, fresh);
}

TEST(InprocMesh, ATimeoutNamesTheRanksThatWereWaitedFor) {
  InprocFabric fabric(3);
  std::vector<float> received(1);
  fabric.mesh(0).begin(7, kSum);
  fabric.mesh(0).receive(2, 4, into(received));
  Status status = fabric.mesh(0).wait(Deadline::after(milliseconds(1)));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status;
}

TEST(InprocMesh, RevocationEndsAWaitAndAllLaterOnes) {
  InprocFabric fabric(2);
  std::vector<float> received(1);
  Mesh& mesh = fabric.mesh(0);
  mesh.begin(1, kSum);
  mesh.receive(1, 4, into(received));
  std::thread other([&] { mesh.revoke(); });
  EXPECT_EQ(mesh.wait(soon()).code(), Code::kStopped);
  other.join();
  mesh.begin(2, kSum);
  mesh.receive(1, 4, into(received));
  EXPECT_EQ(mesh.wait(soon()).code(), Code::kStopped);
}

TEST(InprocMesh, AWithdrawnMessageIsNeverRead) {
  InprocFabric fabric(2);
  std::vector<float> received(1);
  {
    std::vector<float> gone{1};
    fabric.mesh(0).begin(1, kSum);
    fabric.mesh(0).send(1, bytes_of(gone));
    EXPECT_EQ(fabric.mesh(0).wait(Deadline::after(milliseconds(1))).code(), Code::kTimeout);
  }
  fabric.mesh(1).begin(1, kSum);
  fabric.mesh(1).receive(0, 4, into(received));
  EXPECT_EQ(fabric.mesh(1).wait(Deadline::after(milliseconds(1))).code(), Code::kTimeout);
}

TEST(InprocMesh, ADroppedRankIsLostToAllPeersAndNamed) {
  InprocFabric fabric(3);
  std::vector<float> received(1), sent{1};
  fabric.mesh(0).begin(1, kSum);
  fabric.mesh(0).receive(2, 4, into(received));
  fabric.mesh(1).begin(1, kSum);
  fabric.mesh(1).send(2, bytes_of(sent));
  std::thread killer([&] { fabric.drop(2); });
  for (int rank : {0, 1}) {
    Status status = fabric.mesh(rank).wait(soon());
    EXPECT_EQ(status.code(), Code::kPeerLost) << status;
    EXPECT_EQ(status.lost(), std::vector<int>{2});
  }
  killer.join();
}

TEST(InprocMesh, ManyThreadsRevokedInTheMidstOfTrafficAllStop) {
  constexpr int kRanks = 4;
  InprocFabric fabric(kRanks);
  std::atomic<int> rounds{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Mesh& mesh = fabric.mesh(rank);
      std::vector<float> sent(1000, static_cast<float>(rank)), received(1000);
      for (uint64_t number = 1;; ++number) {
        mesh.begin(number, kSum);
        mesh.send((rank + 1) % kRanks, bytes_of(sent));
        mesh.receive((rank + kRanks - 1) % kRanks, 4000, into(received));
        Status status = mesh.wait(soon());
        if (!status.ok()) {
          EXPECT_EQ(status.code(), Code::kStopped) << status;
          return;
        }
        rounds++;
        rounds.notify_all();
      }
    });
  }
  for (int seen = rounds.load(); seen < 100; seen = rounds.load()) rounds.wait(seen);
  for (int rank = 0; rank < kRanks; ++rank) fabric.mesh(rank).revoke();
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace horo::transport
