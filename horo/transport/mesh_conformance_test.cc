#include <atomic>
#include <thread>
#include <utility>

#include "horo/transport/mesh_conformance_testing.h"

namespace horo::transport {

TEST_P(MeshConformance, EverySizeArrivesIntactBothWays) {
  const auto wires = connect(2);
  uint64_t number = 0;
  for (size_t size : {0,    1,    3,    4,    63,    64,    65,    511,    512,    513,    2047,    2048,
                      2049, 4095, 4096, 4097, 65447, 65448, 65536, 262143, 262144, 262145, 1048577, 3145733}) {
    SCOPED_TRACE(size);
    exchange(*wires, ++number, size);
  }
}

TEST_P(MeshConformance, ManyMessagesOfAnySizeAreInFlightBothWaysInOrder) {
  const auto wires = connect(2);
  std::vector<Bytes> sent[2];
  for (auto& list : sent) {
    for (int i = 0; i < 300; ++i) {
      list.push_back(random_bytes(random_size(i % 10 == 0 ? 300000 : (i % 3 == 0 ? 5000 : 64))));
    }
  }
  run(2, [&](int rank) {
    Mesh& mesh = wires->mesh(rank);
    mesh.begin(1, kSignature);
    std::vector<Bytes> received;
    for (const Bytes& bytes : sent[1 - rank]) received.emplace_back(bytes.size());
    for (size_t i = 0; i < sent[rank].size(); ++i) {
      mesh.send(1 - rank, sent[rank][i]);
      mesh.receive(1 - rank, received[i].size(), into(received[i]));
      if (i % 50 == 49) {
        EXPECT_TRUE(mesh.poke().ok());
      }
    }
    Status status = mesh.wait(soon());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(received == sent[1 - rank]);
  });
}

TEST_P(MeshConformance, AllRanksExchangeWithAllOthersInPhasesOfOneOperation) {
  constexpr int kRanks = 4;
  const auto wires = connect(kRanks);
  run(kRanks, [&](int rank) {
    Mesh& mesh = wires->mesh(rank);
    EXPECT_EQ(mesh.rank(), rank);
    EXPECT_EQ(mesh.size(), kRanks);
    for (uint64_t number = 1; number <= 20; ++number) {
      mesh.begin(number, kSignature);
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
          mesh.receive(peer, received[at].size(), into(received[at]));
          mesh.send(peer, sent[at]);
        }
        Status status = mesh.wait(soon());
        EXPECT_TRUE(status.ok()) << status;
        for (int peer = 0; peer < kRanks; ++peer) {
          if (peer == rank) continue;
          EXPECT_EQ(received[static_cast<size_t>(peer)], Bytes(size(peer), value(peer, rank)));
        }
      }
    }
  });
}

TEST_P(MeshConformance, AReceiveCombinesWithWhatIsThereForEveryElementSize) {
  const auto wires = connect(2);
  uint64_t number = 0;
  for (DType dtype : {DType::kU8, DType::kU16, DType::kF32, DType::kI64, DType::kC128}) {
    for (size_t count : {0, 1, 5, 777, 70001}) {
      for (bool in_place : {false, true}) {
        SCOPED_TRACE(text(name(dtype), " x ", count, in_place ? " in place" : ""));
        ++number;
        const size_t bytes = count * size_of(dtype);
        const kernel::CombineFn sum = kernel::combine(dtype, ReduceOp::kSum);
        Bytes contribution[2] = {random_bytes(bytes), random_bytes(bytes)};
        run(2, [&](int rank) {
          const Bytes& mine = contribution[rank];
          Bytes expected(bytes), result(in_place ? mine : Bytes(bytes)), theirs = mine;
          sum(expected.data(), mine.data(), contribution[1 - rank].data(), count);
          Mesh& mesh = wires->mesh(rank);
          mesh.begin(number, kSignature);
          mesh.send(1 - rank, theirs);
          const std::byte* with = in_place ? result.data() : mine.data();
          mesh.receive(1 - rank, bytes, {result.data(), with, sum, size_of(dtype)});
          Status status = mesh.wait(soon());
          EXPECT_TRUE(status.ok()) << status;
          EXPECT_TRUE(result == expected);
        });
      }
    }
  }
}

// Rank 1 gives some of the messages that rank 0 takes over, or adds to what it has, and revokes it if that was not all.
TEST_P(MeshConformance, WhatReceivesOverwriteIsKeptAndCanBePutBack) {
  constexpr size_t kMessages = 8, kBytes = (2 << 20) + 12, kAll = kMessages * kBytes;
  const kernel::CombineFn sum = kernel::combine(DType::kU32, ReduceOp::kSum);
  const Bytes theirs = random_bytes(kAll), before = random_bytes(kAll);
  for (size_t given : {size_t{1}, size_t{4}, kMessages - 1, kMessages}) {
    for (bool combines : {false, true}) {
      SCOPED_TRACE(text(given, " messages, ", combines ? "added" : "taken over"));
      const auto wires = connect(2);
      Bytes memory = before, kept(kAll), expected = theirs;
      if (combines) sum(expected.data(), before.data(), theirs.data(), kAll / 4);
      Undo undo;
      undo.begin(memory, kept.data());
      Status status;
      run(2, [&](int rank) {
        Mesh& mesh = wires->mesh(rank);
        mesh.begin(1, kSignature);
        for (size_t i = 0; i < (rank == 0 ? kMessages : given); ++i) {
          std::byte* mine = memory.data() + i * kBytes;
          if (rank == 1) mesh.send(0, std::span(theirs).subspan(i * kBytes, kBytes));
          if (rank == 0) mesh.receive(1, kBytes, {mine, combines ? mine : nullptr, combines ? sum : nullptr, 4, &undo});
        }
        Status ended = mesh.wait(soon());
        if (rank == 0) status = ended;
        if (rank == 1 && given < kMessages) wires->mesh(0).revoke();
      });
      EXPECT_EQ(status.ok(), given == kMessages) << status;
      EXPECT_EQ(memory == expected, status.ok());
      // More than sockets hold: so much has arrived that a part of it was placed.
      EXPECT_TRUE(given < kMessages - 1 || memory != before);
      undo.put_back();
      EXPECT_TRUE(memory == before);
    }
  }
}

TEST_P(MeshConformance, BothSidesSendMoreThanAnySocketHolds) {
  const auto wires = connect(2);
  exchange(*wires, 1, (12 << 20) + 13);
}

TEST_P(MeshConformance, DifferentSignaturesAreAMismatchThatNamesBothAndTheNextOperationWorks) {
  for (size_t bytes : {4, 3000000}) {
    const auto wires = connect(2);
    run(2, [&](int rank) {
      Signature signature = kSignature;
      signature.count = 4 + static_cast<uint64_t>(rank);
      Bytes sent(bytes), received(bytes);
      wires->mesh(rank).begin(1, signature);
      wires->mesh(rank).send(1 - rank, sent);
      wires->mesh(rank).receive(1 - rank, bytes, into(received));
      Status status = wires->mesh(rank).wait(soon());
      EXPECT_EQ(status.code(), Code::kMismatch) << status;
      EXPECT_NE(status.message().find("allreduce of 4 f32"), std::string::npos) << status;
      EXPECT_NE(status.message().find("allreduce of 5 f32"), std::string::npos) << status;
      EXPECT_EQ(status.operation(), 1U);
    });
    exchange(*wires, 2, 100000);
    exchange(*wires, 3, 4);
  }
}

TEST_P(MeshConformance, DifferentSizesAreAMismatchThatNamesBothAndTheNextOperationWorks) {
  for (size_t bytes : {4, 3000000}) {
    const auto wires = connect(2);
    run(2, [&](int rank) {
      const size_t here = bytes + 4 * static_cast<size_t>(rank);
      Bytes sent(here), received(here);
      wires->mesh(rank).begin(1, kSignature);
      wires->mesh(rank).send(1 - rank, sent);
      wires->mesh(rank).receive(1 - rank, here, into(received));
      Status status = wires->mesh(rank).wait(soon());
      EXPECT_EQ(status.code(), Code::kMismatch) << status;
      EXPECT_NE(status.message().find(text(" ", bytes)), std::string::npos) << status;
      EXPECT_NE(status.message().find(text(" ", bytes + 4)), std::string::npos) << status;
      EXPECT_EQ(status.operation(), 1U);
    });
    exchange(*wires, 2, 100000);
    exchange(*wires, 3, 4);
  }
}

TEST_P(MeshConformance, OperationsThatOneRankRefusesFailOnAllAndTheNextWorks) {
  for (const Code code : {Code::kUnavailable, Code::kMismatch}) {
    for (const size_t bytes : {4, 3000000}) {
      const auto wires = connect(3);
      run(3, [&](int rank) {
        Mesh& mesh = wires->mesh(rank);
        for (uint64_t number : {1, 2}) {
          Status status;
          if (rank == 1) {
            status = mesh.refuse(number, Status(code, "it has no room"));
          } else {
            Bytes sent(bytes), received(bytes);
            mesh.begin(number, kSignature);
            for (int peer = 0; peer < 3; ++peer) {
              if (peer == rank) continue;
              mesh.send(peer, sent);
              mesh.receive(peer, bytes, into(received));
            }
            status = mesh.wait(soon());
          }
          EXPECT_EQ(status.code(), code) << status;
          EXPECT_NE(status.message().find("it has no room"), std::string::npos) << status;
          EXPECT_EQ(status.operation(), number);
        }
      });
      for (int number : {3, 4}) {
        run(3, [&](int rank) {
          Mesh& mesh = wires->mesh(rank);
          Bytes sent(5000, static_cast<std::byte>(rank + number)), received(5000);
          mesh.begin(static_cast<uint64_t>(number), kSignature);
          mesh.send((rank + 1) % 3, sent);
          mesh.receive((rank + 2) % 3, 5000, into(received));
          const Status status = mesh.wait(soon());
          EXPECT_TRUE(status.ok()) << status;
          EXPECT_EQ(received, Bytes(5000, static_cast<std::byte>((rank + 2) % 3 + number)));
        });
      }
    }
  }
}

TEST_P(MeshConformance, MessagesOfAnEarlierOperationAreThrownAwayAndLaterOnesWait) {
  const auto wires = connect(2);
  const Bytes fresh = random_bytes(1000);
  run(2, [&](int rank) {
    Mesh& mesh = wires->mesh(rank);
    if (rank == 0) {
      Bytes stale(5000);
      mesh.begin(1, kSignature);
      mesh.send(1, stale);
      EXPECT_TRUE(mesh.wait(soon()).ok());  // Thrown away by the receiver, which counts as moved.
      mesh.begin(3, kSignature);
      mesh.send(1, fresh);
      EXPECT_TRUE(mesh.wait(soon()).ok());
      return;
    }
    Bytes early(1000), received(1000);
    mesh.begin(2, kSignature);
    mesh.receive(0, 1000, into(early));
    Status status = mesh.wait(shortly());
    EXPECT_EQ(status.code(), Code::kTimeout) << status;
    mesh.begin(3, kSignature);
    mesh.receive(0, 1000, into(received));
    EXPECT_TRUE(mesh.wait(soon()).ok());
    EXPECT_EQ(received, fresh);
  });
}

TEST_P(MeshConformance, ATimeoutNamesTheRanksWaitedForAndTouchesNothingAfterwards) {
  const auto wires = connect(3);
  Mesh& mesh = wires->mesh(0);
  mesh.begin(7, kSignature);
  {
    Bytes sent = random_bytes(12 << 20), received(1 << 20);
    mesh.send(2, sent);
    mesh.receive(2, received.size(), into(received));
    Status status = mesh.wait(shortly());
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status;
    EXPECT_EQ(status.message().find("rank 1"), std::string::npos) << status;
  }
  // What was half way is completed or skipped, though its memory is gone.
  Bytes first = random_bytes(2 << 20), second = random_bytes(300000);
  run(2, [&](int side) {
    Mesh& here = wires->mesh(side * 2);
    Bytes received(side == 0 ? second.size() : first.size());
    here.begin(8, kSignature);
    here.send(2 - side * 2, side == 0 ? first : second);
    here.receive(2 - side * 2, received.size(), into(received));
    Status status = here.wait(soon());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(received == (side == 0 ? second : first));
  });
}

TEST_P(MeshConformance, NothingPostedIsDoneAtOnce) {
  const auto wires = connect(2);
  wires->mesh(0).begin(1, kSignature);
  EXPECT_TRUE(wires->mesh(0).poke().ok());
  EXPECT_TRUE(wires->mesh(0).wait(Deadline::after(Duration::zero())).ok());
}

TEST_P(MeshConformance, RevocationEndsAWaitAndAllLaterOnes) {
  const auto wires = connect(2);
  Bytes received(4);
  Mesh& mesh = wires->mesh(0);
  mesh.begin(1, kSignature);
  mesh.receive(1, 4, into(received));
  std::thread other([&] { mesh.revoke(); });
  EXPECT_EQ(mesh.wait(soon()).code(), Code::kStopped);
  other.join();
  mesh.begin(2, kSignature);
  mesh.receive(1, 4, into(received));
  EXPECT_EQ(mesh.wait(soon()).code(), Code::kStopped);
}

TEST_P(MeshConformance, RanksRevokedInTheMidstOfTrafficAllStop) {
  constexpr int kRanks = 3;
  const auto wires = connect(kRanks);
  std::atomic<int> rounds{0};
  std::thread revoker([&] {
    for (int seen = rounds.load(); seen < 100; seen = rounds.load()) rounds.wait(seen);
    for (int rank = 0; rank < kRanks; ++rank) wires->mesh(rank).revoke();
  });
  run(kRanks, [&](int rank) {
    Mesh& mesh = wires->mesh(rank);
    Status status;
    for (uint64_t number = 1; status.ok(); ++number) {
      Bytes sent(5000), received(5000);
      mesh.begin(number, kSignature);
      mesh.send((rank + 1) % kRanks, sent);
      mesh.receive((rank + kRanks - 1) % kRanks, received.size(), into(received));
      status = mesh.wait(soon());
      rounds++;
      rounds.notify_all();
    }
    EXPECT_EQ(status.code(), Code::kStopped) << status;
  });
  revoker.join();
}

TEST_P(MeshConformance, AnEndedRankIsLostToThoseWhoNeedIt) {
  const auto wires = connect(3);
  Bytes sent(8 << 20), received(4);
  for (int rank : {0, 1}) wires->mesh(rank).begin(1, kSignature);
  wires->mesh(0).receive(2, 4, into(received));
  wires->mesh(1).send(2, sent);
  std::thread killer([&] { wires->end(2); });
  for (int rank : {0, 1}) {
    Status status = wires->mesh(rank).wait(soon());
    EXPECT_EQ(status.code(), Code::kPeerLost) << status;
    EXPECT_EQ(status.lost(), std::vector<int>{2});
  }
  killer.join();
  // The others go on with each other, and find it lost again when they need it again.
  exchange(*wires, 2, 1000);
  wires->mesh(0).begin(3, kSignature);
  wires->mesh(0).receive(2, 4, into(received));
  EXPECT_EQ(wires->mesh(0).wait(soon()).code(), Code::kPeerLost);
}

}  // namespace horo::transport
