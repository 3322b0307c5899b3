// What every Mesh promises, as tests that are instantiated once per transport.
//
// Each names its way to connect ranks:
//
//   INSTANTIATE_TEST_SUITE_P(Name, MeshConformance, ::testing::Values(WiresMaker{"Name", make}));
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "horo/base/text.h"
#include "horo/transport/mesh.h"

namespace horo::transport {

using Bytes = std::vector<std::byte>;

/// Ranks that are connected with each other.
class Wires {
 public:
  virtual ~Wires() = default;
  virtual Mesh& mesh(int rank) = 0;
  /// As if the rank's process had died; no thread is in its mesh.
  virtual void end(int rank) = 0;
};

struct WiresMaker {
  std::string name;
  std::function<std::unique_ptr<Wires>(int size)> make;

  friend void PrintTo(const WiresMaker& maker, std::ostream* out) { *out << maker.name; }
};

class MeshConformance : public ::testing::TestWithParam<WiresMaker> {
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

  static std::unique_ptr<Wires> connect(int size) { return GetParam().make(size); }

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

}  // namespace horo::transport
