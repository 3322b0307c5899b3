// What every Mesh promises, as tests that are instantiated once per transport.
//
//   struct Wires {
//     explicit Wires(int size);
//     Mesh& mesh(int rank);
//     void end(int rank);  // As if the rank's process had died; no thread is in its mesh.
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Name, MeshConformance, ::testing::Types<Wires>);
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horo/base/text.h"
#include "horo/transport/mesh.h"

namespace horo::transport {

using Bytes = std::vector<std::byte>;

template <class Wires>
class MeshConformance : public ::testing::Test {
 protected:
  static constexpr Signature kSignature{Kind::kAllreduce, DType::kF32, ReduceOp::kSum, 1, 0, 4};

  void SetUp() override {
    const char* given = std::getenv("HORO_SEED");
    const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    RecordProperty("seed", text(seed));
    random_.seed(seed);
    trace_ = text("HORO_SEED=", seed);
  }
  void TearDown() override {
    if (HasFailure()) std::printf("%s\n", trace_.c_str());
  }

  static Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }
  static Deadline shortly() { return Deadline::after(std::chrono::milliseconds(20)); }

  Bytes random_bytes(size_t count) {
    std::vector<uint64_t> words(count / 8 + 1);
    for (uint64_t& word : words) word = random_();
    const auto* first = reinterpret_cast<const std::byte*>(words.data());
    return {first, first + count};
  }
  size_t random_size(size_t most) { return std::uniform_int_distribution<size_t>(0, most)(random_); }

  static Placement into(Bytes& bytes) { return {bytes.data(), nullptr, nullptr, 1}; }

  /// One thread per rank.
  static void run(int size, const std::function<void(int)>& rank_main) {
    std::vector<std::thread> threads;
    for (int rank = 1; rank < size; ++rank) threads.emplace_back(rank_main, rank);
    rank_main(0);
    for (std::thread& thread : threads) thread.join();
  }

  /// Two ranks exchange `sent[rank]` in operation `number`.
  static void exchange(Wires& wires, uint64_t number, const Bytes (&sent)[2]) {
    run(2, [&](int rank) {
      Mesh& mesh = wires.mesh(rank);
      Bytes received(sent[1 - rank].size());
      mesh.begin(number, kSignature);
      mesh.send(1 - rank, sent[rank]);
      mesh.receive(1 - rank, received.size(), into(received));
      Status status = mesh.wait(soon());
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_TRUE(received == sent[1 - rank]);
    });
  }
  void exchange(Wires& wires, uint64_t number, size_t bytes) {
    Bytes sent[2] = {random_bytes(bytes), random_bytes(bytes)};
    exchange(wires, number, sent);
  }

  std::mt19937_64 random_;
  std::string trace_;
};

TYPED_TEST_SUITE_P(MeshConformance);

TYPED_TEST_P(MeshConformance, EverySizeArrivesIntactBothWays) {
  TypeParam wires(2);
  uint64_t number = 0;
  for (size_t size : {0,    1,    3,    4,    63,    64,    65,    511,    512,    513,    2047,    2048,
                      2049, 4095, 4096, 4097, 65447, 65448, 65536, 262143, 262144, 262145, 1048577, 3145733}) {
    SCOPED_TRACE(size);
    this->exchange(wires, ++number, size);
  }
}

TYPED_TEST_P(MeshConformance, ManyMessagesOfAnySizeAreInFlightBothWaysInOrder) {
  TypeParam wires(2);
  std::vector<Bytes> sent[2];
  for (auto& list : sent) {
    for (int i = 0; i < 300; ++i) {
      list.push_back(this->random_bytes(this->random_size(i % 10 == 0 ? 300000 : (i % 3 == 0 ? 5000 : 64))));
    }
  }
  this->run(2, [&](int rank) {
    Mesh& mesh = wires.mesh(rank);
    mesh.begin(1, this->kSignature);
    std::vector<Bytes> received;
    for (const Bytes& bytes : sent[1 - rank]) received.emplace_back(bytes.size());
    for (size_t i = 0; i < sent[rank].size(); ++i) {
      mesh.send(1 - rank, sent[rank][i]);
      mesh.receive(1 - rank, received[i].size(), this->into(received[i]));
      if (i % 50 == 49) {
        EXPECT_TRUE(mesh.poke().ok());
      }
    }
    Status status = mesh.wait(this->soon());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(received == sent[1 - rank]);
  });
}

TYPED_TEST_P(MeshConformance, AllRanksExchangeWithAllOthersInPhasesOfOneOperation) {
  constexpr int kRanks = 4;
  TypeParam wires(kRanks);
  this->run(kRanks, [&](int rank) {
    Mesh& mesh = wires.mesh(rank);
    EXPECT_EQ(mesh.rank(), rank);
    EXPECT_EQ(mesh.size(), kRanks);
    for (uint64_t number = 1; number <= 20; ++number) {
      mesh.begin(number, this->kSignature);
      for (size_t phase = 0; phase < 3; ++phase) {
        // Ranks with little to do run ahead into the next phase.
        auto size = [&](int from) { return 1 + static_cast<size_t>(from) * 30000 * phase; };
        auto value = [&](int from, int to) {
          return static_cast<std::byte>(from * 16 + to * 4 + static_cast<int>(phase));
        };
        std::vector<Bytes> sent(kRanks), received(kRanks);
        for (int peer = 0; peer < kRanks; ++peer) {
          if (peer == rank) continue;
          auto at = static_cast<size_t>(peer);
          sent[at].assign(size(rank), value(rank, peer));
          received[at].resize(size(peer));
          mesh.receive(peer, received[at].size(), this->into(received[at]));
          mesh.send(peer, sent[at]);
        }
        Status status = mesh.wait(this->soon());
        EXPECT_TRUE(status.ok()) << status;
        for (int peer = 0; peer < kRanks; ++peer) {
          if (peer == rank) continue;
          EXPECT_EQ(received[static_cast<size_t>(peer)], Bytes(size(peer), value(peer, rank)));
        }
      }
    }
  });
}

TYPED_TEST_P(MeshConformance, AReceiveCombinesWithWhatIsThereForEveryElementSize) {
  TypeParam wires(2);
  uint64_t number = 0;
  for (DType dtype : {DType::kU8, DType::kU16, DType::kF32, DType::kI64, DType::kC128}) {
    for (size_t count : {0, 1, 5, 777, 70001}) {
      for (bool in_place : {false, true}) {
        SCOPED_TRACE(text(name(dtype), " x ", count, in_place ? " in place" : ""));
        ++number;
        const size_t bytes = count * size_of(dtype);
        const kernel::CombineFn sum = kernel::combine(dtype, ReduceOp::kSum);
        Bytes contribution[2] = {this->random_bytes(bytes), this->random_bytes(bytes)};
        this->run(2, [&](int rank) {
          const Bytes& mine = contribution[rank];
          Bytes expected(bytes), result(in_place ? mine : Bytes(bytes)), theirs = mine;
          sum(expected.data(), mine.data(), contribution[1 - rank].data(), count);
          Mesh& mesh = wires.mesh(rank);
          mesh.begin(number, this->kSignature);
          mesh.send(1 - rank, theirs);
          const std::byte* with = in_place ? result.data() : mine.data();
          mesh.receive(1 - rank, bytes, {result.data(), with, sum, size_of(dtype)});
          Status status = mesh.wait(this->soon());
          EXPECT_TRUE(status.ok()) << status;
          EXPECT_TRUE(result == expected);
        });
      }
    }
  }
}

TYPED_TEST_P(MeshConformance, BothSidesSendMoreThanAnySocketHolds) {
  TypeParam wires(2);
  this->exchange(wires, 1, (12 << 20) + 13);
}

TYPED_TEST_P(MeshConformance, DifferentSignaturesAreAMismatchThatNamesBothAndTheNextOperationWorks) {
  for (size_t bytes : {4, 3000000}) {
    TypeParam wires(2);
    this->run(2, [&](int rank) {
      Signature signature = this->kSignature;
      signature.count = 4 + static_cast<uint64_t>(rank);
      Bytes sent(bytes), received(bytes);
      wires.mesh(rank).begin(1, signature);
      wires.mesh(rank).send(1 - rank, sent);
      wires.mesh(rank).receive(1 - rank, bytes, this->into(received));
      Status status = wires.mesh(rank).wait(this->soon());
      EXPECT_EQ(status.code(), Code::kMismatch) << status;
      EXPECT_NE(status.message().find("allreduce of 4 f32"), std::string::npos) << status;
      EXPECT_NE(status.message().find("allreduce of 5 f32"), std::string::npos) << status;
      EXPECT_EQ(status.operation(), 1U);
    });
    this->exchange(wires, 2, 100000);
    this->exchange(wires, 3, 4);
  }
}

TYPED_TEST_P(MeshConformance, DifferentSizesAreAMismatchThatNamesBothAndTheNextOperationWorks) {
  for (size_t bytes : {4, 3000000}) {
    TypeParam wires(2);
    this->run(2, [&](int rank) {
      const size_t here = bytes + 4 * static_cast<size_t>(rank);
      Bytes sent(here), received(here);
      wires.mesh(rank).begin(1, this->kSignature);
      wires.mesh(rank).send(1 - rank, sent);
      wires.mesh(rank).receive(1 - rank, here, this->into(received));
      Status status = wires.mesh(rank).wait(this->soon());
      EXPECT_EQ(status.code(), Code::kMismatch) << status;
      EXPECT_NE(status.message().find(text(" ", bytes)), std::string::npos) << status;
      EXPECT_NE(status.message().find(text(" ", bytes + 4)), std::string::npos) << status;
      EXPECT_EQ(status.operation(), 1U);
    });
    this->exchange(wires, 2, 100000);
    this->exchange(wires, 3, 4);
  }
}

TYPED_TEST_P(MeshConformance, OperationsThatOneRankRefusesFailOnAllAndTheNextWorks) {
  for (const Code code : {Code::kUnavailable, Code::kMismatch}) {
    for (const size_t bytes : {4, 3000000}) {
      TypeParam wires(3);
      this->run(3, [&](int rank) {
        Mesh& mesh = wires.mesh(rank);
        for (uint64_t number : {1, 2}) {
          Status status;
          if (rank == 1) {
            status = mesh.refuse(number, Status(code, "it has no room"));
          } else {
            Bytes sent(bytes), received(bytes);
            mesh.begin(number, this->kSignature);
            for (int peer = 0; peer < 3; ++peer) {
              if (peer == rank) continue;
              mesh.send(peer, sent);
              mesh.receive(peer, bytes, this->into(received));
            }
            status = mesh.wait(this->soon());
          }
          EXPECT_EQ(status.code(), code) << status;
          EXPECT_NE(status.message().find("it has no room"), std::string::npos) << status;
          EXPECT_EQ(status.operation(), number);
        }
      });
      for (int number : {3, 4}) {
        this->run(3, [&](int rank) {
          Mesh& mesh = wires.mesh(rank);
          Bytes sent(5000, static_cast<std::byte>(rank + number)), received(5000);
          mesh.begin(static_cast<uint64_t>(number), this->kSignature);
          mesh.send((rank + 1) % 3, sent);
          mesh.receive((rank + 2) % 3, 5000, this->into(received));
          const Status status = mesh.wait(this->soon());
          EXPECT_TRUE(status.ok()) << status;
          EXPECT_EQ(received, Bytes(5000, static_cast<std::byte>((rank + 2) % 3 + number)));
        });
      }
    }
  }
}

TYPED_TEST_P(MeshConformance, MessagesOfAnEarlierOperationAreThrownAwayAndLaterOnesWait) {
  TypeParam wires(2);
  const Bytes fresh = this->random_bytes(1000);
  this->run(2, [&](int rank) {
    Mesh& mesh = wires.mesh(rank);
    if (rank == 0) {
      Bytes stale(5000);
      mesh.begin(1, this->kSignature);
      mesh.send(1, stale);
      EXPECT_TRUE(mesh.wait(this->soon()).ok());  // Thrown away by the receiver, which counts as moved.
      mesh.begin(3, this->kSignature);
      mesh.send(1, fresh);
      EXPECT_TRUE(mesh.wait(this->soon()).ok());
      return;
    }
    Bytes early(1000), received(1000);
    mesh.begin(2, this->kSignature);
    mesh.receive(0, 1000, this->into(early));
    Status status = mesh.wait(this->shortly());
    EXPECT_EQ(status.code(), Code::kTimeout) << status;
    mesh.begin(3, this->kSignature);
    mesh.receive(0, 1000, this->into(received));
    EXPECT_TRUE(mesh.wait(this->soon()).ok());
    EXPECT_EQ(received, fresh);
  });
}

TYPED_TEST_P(MeshConformance, ATimeoutNamesTheRanksWaitedForAndTouchesNothingAfterwards) {
  TypeParam wires(3);
  Mesh& mesh = wires.mesh(0);
  mesh.begin(7, this->kSignature);
  {
    Bytes sent = this->random_bytes(12 << 20), received(1 << 20);
    mesh.send(2, sent);
    mesh.receive(2, received.size(), this->into(received));
    Status status = mesh.wait(this->shortly());
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status;
    EXPECT_EQ(status.message().find("rank 1"), std::string::npos) << status;
  }
  // What was half way is completed or skipped, though its memory is gone.
  Bytes first = this->random_bytes(2 << 20), second = this->random_bytes(300000);
  this->run(2, [&](int side) {
    Mesh& here = wires.mesh(side * 2);
    Bytes received(side == 0 ? second.size() : first.size());
    here.begin(8, this->kSignature);
    here.send(2 - side * 2, side == 0 ? first : second);
    here.receive(2 - side * 2, received.size(), this->into(received));
    Status status = here.wait(this->soon());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(received == (side == 0 ? second : first));
  });
}

TYPED_TEST_P(MeshConformance, NothingPostedIsDoneAtOnce) {
  TypeParam wires(2);
  wires.mesh(0).begin(1, this->kSignature);
  EXPECT_TRUE(wires.mesh(0).poke().ok());
  EXPECT_TRUE(wires.mesh(0).wait(Deadline::after(Duration::zero())).ok());
}

TYPED_TEST_P(MeshConformance, RevocationEndsAWaitAndAllLaterOnes) {
  TypeParam wires(2);
  Bytes received(4);
  Mesh& mesh = wires.mesh(0);
  mesh.begin(1, this->kSignature);
  mesh.receive(1, 4, this->into(received));
  std::thread other([&] { mesh.revoke(); });
  EXPECT_EQ(mesh.wait(this->soon()).code(), Code::kStopped);
  other.join();
  mesh.begin(2, this->kSignature);
  mesh.receive(1, 4, this->into(received));
  EXPECT_EQ(mesh.wait(this->soon()).code(), Code::kStopped);
}

TYPED_TEST_P(MeshConformance, RanksRevokedInTheMidstOfTrafficAllStop) {
  constexpr int kRanks = 3;
  TypeParam wires(kRanks);
  std::atomic<int> rounds{0};
  std::thread revoker([&] {
    for (int seen = rounds.load(); seen < 100; seen = rounds.load()) rounds.wait(seen);
    for (int rank = 0; rank < kRanks; ++rank) wires.mesh(rank).revoke();
  });
  this->run(kRanks, [&](int rank) {
    Mesh& mesh = wires.mesh(rank);
    Status status;
    for (uint64_t number = 1; status.ok(); ++number) {
      Bytes sent(5000), received(5000);
      mesh.begin(number, this->kSignature);
      mesh.send((rank + 1) % kRanks, sent);
      mesh.receive((rank + kRanks - 1) % kRanks, received.size(), this->into(received));
      status = mesh.wait(this->soon());
      rounds++;
      rounds.notify_all();
    }
    EXPECT_EQ(status.code(), Code::kStopped) << status;
  });
  revoker.join();
}

TYPED_TEST_P(MeshConformance, AnEndedRankIsLostToThoseWhoNeedIt) {
  TypeParam wires(3);
  Bytes sent(8 << 20), received(4);
  for (int rank : {0, 1}) wires.mesh(rank).begin(1, this->kSignature);
  wires.mesh(0).receive(2, 4, this->into(received));
  wires.mesh(1).send(2, sent);
  std::thread killer([&] { wires.end(2); });
  for (int rank : {0, 1}) {
    Status status = wires.mesh(rank).wait(this->soon());
    EXPECT_EQ(status.code(), Code::kPeerLost) << status;
    EXPECT_EQ(status.lost(), std::vector<int>{2});
  }
  killer.join();
  // The others go on with each other, and find it lost again when they need it again.
  this->exchange(wires, 2, 1000);
  wires.mesh(0).begin(3, this->kSignature);
  wires.mesh(0).receive(2, 4, this->into(received));
  EXPECT_EQ(wires.mesh(0).wait(this->soon()).code(), Code::kPeerLost);
}

REGISTER_TYPED_TEST_SUITE_P(
    MeshConformance, EverySizeArrivesIntactBothWays, ManyMessagesOfAnySizeAreInFlightBothWaysInOrder,
    AllRanksExchangeWithAllOthersInPhasesOfOneOperation, AReceiveCombinesWithWhatIsThereForEveryElementSize,
    BothSidesSendMoreThanAnySocketHolds, DifferentSignaturesAreAMismatchThatNamesBothAndTheNextOperationWorks,
    DifferentSizesAreAMismatchThatNamesBothAndTheNextOperationWorks,
    OperationsThatOneRankRefusesFailOnAllAndTheNextWorks, MessagesOfAnEarlierOperationAreThrownAwayAndLaterOnesWait,
    ATimeoutNamesTheRanksWaitedForAndTouchesNothingAfterwards, NothingPostedIsDoneAtOnce,
    RevocationEndsAWaitAndAllLaterOnes, RanksRevokedInTheMidstOfTrafficAllStop, AnEndedRankIsLostToThoseWhoNeedIt);

}  // namespace horo::transport
