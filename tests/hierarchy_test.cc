// Groups that span hosts: shared memory within a host, messages between hosts. Hosts are pretended with HORO_HOST_ID.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>

#include "tests/job.h"
#include "tests/workload.h"

#include "horo/base/text.h"
#include "horo/kernel/reduce.h"

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;
using Variables = std::map<std::string, std::string, std::less<>>;

constexpr std::string_view kTwoLevels = "hierarchy+direct";

/// "aabb": ranks 0 and 1 on one host, 2 and 3 on another.
JobOptions on_hosts(const std::string& hosts, const Variables& environment = {}) {
  JobOptions options{.ranks = static_cast<int>(hosts.size()), .environment = environment};
  options.environment["HORO_INTERFACE"] = "127.0.0.1";
  options.per_rank = [hosts](int rank) {
    return Variables{{"HORO_HOST_ID", std::string(1, hosts[static_cast<size_t>(rank)])}};
  };
  return options;
}

int complain(const std::string& words) {
  tell(words + "\n");
  return 3;
}

void expect_all_zero(Job& job) {
  auto codes = job.wait(Deadline::after_seconds(100));
  ASSERT_TRUE(codes.ok()) << codes.status();
  for (size_t rank = 0; rank < codes->size(); ++rank) {
    EXPECT_EQ((*codes)[rank], 0) << "rank " << rank << ": " << job.told(static_cast<int>(rank));
  }
}

std::byte* bytes_of(std::vector<uint64_t>& values) { return reinterpret_cast<std::byte*>(values.data()); }

/// Which algorithm `operation` is to run with in a group of `hosts`.
std::string_view expected_algorithm(const std::string& hosts, const Operation& operation) {
  const bool runs = std::is_sorted(hosts.begin(), hosts.end());
  if (operation.kind == Kind::kAlltoall) return "pairwise";
  if (operation.kind == Kind::kReduceScatter && !runs) return "";
  return kTwoLevels;
}

class Hosts : public testing::TestWithParam<const char*> {};

TEST_P(Hosts, RunEveryCollectiveThroughSharedMemoryAndSockets) {
  const std::string hosts = GetParam();
  const uint64_t seed = test_seed("Hosts");
  const uint64_t turns = test_count("TEST_TURNS", 120);
  auto job = Job::start(on_hosts(hosts), [&](group::Engine& engine) {
    group::Group& world = engine.world();
    if (world.transport_name() != "shm+tcp") return complain(text("ran over ", world.transport_name()));
    for (uint64_t turn = 0; turn < turns; ++turn) {
      RandomCall call({.seed = seed, .turn = turn, .most_elements = 256 * 1024}, world.ranks(), world.member());
      const Status status = call.run(world, Deadline::after_seconds(30));
      if (!status.ok()) return complain(text(call.to_string(), ": ", status.to_string()));
      if (auto wrong = call.wrong_result(); !wrong.empty()) return complain(wrong);
      const auto expected = expected_algorithm(hosts, call.operation());
      if (!expected.empty() && world.algorithm_name() != expected) {
        return complain(text(call.to_string(), " ran as ", world.algorithm_name()));
      }
    }
    return 0;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  expect_all_zero(**job);
}

// ---- Bits.

/// Finite numbers whose sums are rounded.
std::vector<std::byte> random_elements(DType dtype, uint64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count * size_of(dtype));
  const auto put = [&](auto value, uint64_t index) {
    std::memcpy(bytes.data() + index * sizeof value, &value, sizeof value);
  };
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bits = random();
    const double real = static_cast<double>(bits % 20'000) / 7000.0 - 1.3;
    switch (dtype) {
      case DType::kF64:
        put(real, i);
        break;
      case DType::kF32:
        put(static_cast<float>(real), i);
        break;
      case DType::kF16:
        put(static_cast<uint16_t>((bits & 0x83FF) | (12 + bits / 65536 % 6) << 10), i);
        break;
      case DType::kBF16:
        put(static_cast<uint16_t>((bits & 0x807F) | (124 + bits / 65536 % 6) << 7), i);
        break;
      case DType::kC64:
        put(static_cast<float>(real), 2 * i);
        put(static_cast<float>(real * 0.3 + 0.1), 2 * i + 1);
        break;
      case DType::kBool:
        put(static_cast<uint8_t>(bits & 1), i);
        break;
      default:
        std::memcpy(bytes.data() + i * size_of(dtype), &bits, size_of(dtype));
    }
  }
  return bytes;
}

/// Rank order within each host, then host order; scaled with the last.
std::vector<std::byte> in_host_order(const Operation& operation, const std::vector<std::vector<std::byte>>& inputs,
                                     const collective::Shape& shape) {
  const auto combine = kernel::combine_many(operation.dtype, operation.op);
  std::vector<std::vector<std::byte>> sums;
  for (const auto& members : shape.hosts()) {
    std::vector<const std::byte*> sources;
    for (int member : members) sources.push_back(inputs[static_cast<size_t>(member)].data());
    sums.emplace_back(inputs[0].size());
    combine(sums.back().data(), sources, operation.total(), {});
  }
  std::vector<const std::byte*> sources;
  for (const auto& sum : sums) sources.push_back(sum.data());
  std::vector<std::byte> result(inputs[0].size());
  combine(result.data(), sources, operation.total(), collective::scaling_after(operation, shape.ranks()));
  return result;
}

/// Empty, or what is wrong with a reduction of these numbers.
std::string wrong_bits(group::Group& group, Operation operation, uint64_t count, uint64_t seed) {
  operation.count = operation.kind == Kind::kReduceScatter ? 0 : count;
  std::vector<std::vector<std::byte>> inputs;
  for (int member = 0; member < group.size(); ++member) {
    inputs.push_back(random_elements(operation.dtype, count, seed + static_cast<uint64_t>(member)));
  }
  const auto member = static_cast<size_t>(group.member());
  uint64_t before = 0;
  if (operation.kind == Kind::kReduceScatter) {
    for (int i = 0; i < group.size(); ++i) operation.counts.push_back(count / static_cast<uint64_t>(group.size()));
    operation.counts[0] += count - operation.total();
    before = std::accumulate(operation.counts.begin(), operation.counts.begin() + group.member(), uint64_t{0});
  }
  const size_t element = size_of(operation.dtype);
  const uint64_t results = operation.result_count(group.member());
  const auto expected = in_host_order(operation, inputs, group.shape());
  std::vector<std::byte> out(count * element);
  const Status status = group.run(operation, inputs[member].data(), out.data(), Deadline::after_seconds(30));
  const std::string what = text(transport::name(operation.kind), " of ", count, " ", name(operation.dtype), ", ",
                                name(operation.op), ", by ", group.algorithm_name());
  if (!status.ok()) return text(what, ": ", status.to_string());
  if (std::memcmp(out.data(), expected.data() + before * element, results * element) != 0) return what;
  return "";
}

TEST_P(Hosts, ReduceEveryTypeInHostOrderWhateverTheSize) {
  const std::string hosts = GetParam();
  // Two slots of 2 MiB: the largest size has no room in them and goes over the mesh.
  auto job = Job::start(on_hosts(hosts, {{"HORO_STAGING", "4MiB"}}), [&](group::Engine& engine) {
    const bool runs = std::is_sorted(hosts.begin(), hosts.end());
    for (DType dtype :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI32, DType::kU8, DType::kBool, DType::kC64}) {
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax, ReduceOp::kProduct}) {
        if (!can_reduce(dtype, op)) continue;
        for (Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReduceScatter}) {
          if (kind == Kind::kReduceScatter && !runs) continue;
          for (uint64_t bytes : {uint64_t{48}, uint64_t{70'000}, uint64_t{9} << 20}) {
            if (bytes > 1'000'000 && (dtype != DType::kF32 || op != ReduceOp::kSum)) continue;
            Operation operation;
            operation.kind = kind;
            operation.dtype = dtype;
            operation.op = op;
            operation.root = engine.size() - 1;
            const auto wrong = wrong_bits(engine.world(), operation, bytes / size_of(dtype), 7);
            if (!wrong.empty()) return complain(wrong);
            const bool two_levels = engine.world().algorithm_name() == kTwoLevels;
            if (two_levels == (bytes > 1'000'000)) return complain(text(bytes, " bytes the wrong way"));
          }
        }
      }
    }
    return 0;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  expect_all_zero(**job);
}

// ---- Mismatches.

/// How a call differs from that of the others: in a count, or so that it does not pass through the two levels.
enum class Odd : uint8_t { kCount, kKind, kSize };

/// A call that only `odd` members make, while the others make `operation`.
Operation differing(const Operation& operation, Odd how) {
  Operation other = operation;
  if (how == Odd::kKind) {
    other = Operation();
    other.kind = Kind::kSendRecv;
    other.dtype = operation.dtype;
    other.count = 10;
    other.root = 0;
    other.target = 1;
    return other;
  }
  if (how == Odd::kSize) {
    other = operation;
    other.kind = Kind::kAllreduce;
    other.counts.clear();
    other.count = 600'000;  // More than a slot.
    return other;
  }
  if (operation.counts.empty()) {
    other.count += 1;
  } else {
    other.counts[0] += 1;
  }
  return other;
}

Operation of_kind(Kind kind, int size, uint64_t count) {
  Operation operation = sum_of(count);
  operation.kind = kind;
  if (kind == Kind::kReduceScatter || kind == Kind::kAllgather || kind == Kind::kGather || kind == Kind::kScatter) {
    operation.counts.assign(static_cast<size_t>(size), count / static_cast<uint64_t>(size));
    operation.count = 0;
  }
  return operation;
}

TEST_P(Hosts, AMismatchFailsOnAllAndTheGroupGoesOn) {
  const std::string hosts = GetParam();
  JobOptions options = on_hosts(hosts);
  options.environment["HORO_STAGING"] = "4MiB";
  auto job = Job::start(options, [&](group::Engine& engine) {
    group::Group& world = engine.world();
    uint64_t number = 0;
    std::vector<uint64_t> in(600'000, 1), out(600'000);
    for (Kind kind : {Kind::kAllreduce, Kind::kBroadcast, Kind::kAllgather, Kind::kGather, Kind::kScatter,
                      Kind::kReduceScatter, Kind::kReduce}) {
      for (uint64_t count : {600, 60'000}) {
        // One rank alone, each in turn; then all ranks of the first host.
        for (int odd = 0; odd <= world.size(); ++odd) {
          const bool differs =
              odd == world.size() ? hosts[static_cast<size_t>(engine.rank())] == hosts[0] : odd == engine.rank();
          const Operation usual = of_kind(kind, world.size(), count);
          const Odd how = kind == Kind::kAllreduce && count == 600   ? Odd::kKind
                          : kind == Kind::kBroadcast && count == 600 ? Odd::kSize
                                                                     : Odd::kCount;
          std::fill(in.begin(), in.end(), 1);
          ++number;
          const Status status = world.run(differs ? differing(usual, how) : usual, bytes_of(in), bytes_of(out),
                                          Deadline::after_seconds(20));
          if (status.code() != Code::kMismatch || status.operation() != number) {
            return complain(text(transport::name(kind), " of ", count, ", odd ", odd, ", operation ", number, ": ",
                                 status.to_string()));
          }
          if (in != std::vector<uint64_t>(in.size(), 1)) return complain("the input has changed");
          ++number;
          const Status after = world.run(sum_of(100), bytes_of(in), bytes_of(out), Deadline::after_seconds(20));
          if (!after.ok() || out[99] != static_cast<uint64_t>(world.size())) {
            return complain(
                text("after a mismatch of ", transport::name(kind), ", odd ", odd, ": ", after.to_string()));
          }
        }
      }
    }
    return 0;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  expect_all_zero(**job);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Hosts, testing::Values("aabb", "aaab", "abbccc", "abab"),
                         [](const auto& one) { return std::string(one.param); });

// ---- Choice.

TEST(Hierarchy, IsForcedAndForbiddenByName) {
  const std::map<std::string, std::string_view> expected = {
      {"hierarchy", kTwoLevels}, {"pairwise", "pairwise"}, {"allreduce=hierarchy-flood", "hierarchy-flood"}};
  for (const auto& [knob, named] : expected) {
    const std::string_view algorithm = named;  // clang 14 captures no structured binding.
    auto job = Job::start(on_hosts("aabb", {{"HORO_ALGORITHM", knob}}), [&](group::Engine& engine) {
      std::vector<uint64_t> values(1000, 1);
      const Status status = engine.world().run(sum_of(values.size()), bytes_of(values), bytes_of(values));
      if (!status.ok() || values.back() != 4) return complain(status.to_string());
      if (engine.world().algorithm_name() != algorithm) return complain(std::string(engine.world().algorithm_name()));
      return 0;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_all_zero(**job);
  }
}

TEST(Hierarchy, RanksThatForceDifferentAlgorithmsAreToldAndDoNotHang) {
  JobOptions options = on_hosts("aabb");
  options.per_rank = [](int rank) {
    Variables variables{{"HORO_HOST_ID", rank < 2 ? "a" : "b"}};
    if (rank == 2) variables["HORO_ALGORITHM"] = "allreduce=ring";
    return variables;
  };
  auto job = Job::start(options, [](group::Engine&) { return 0; });
  ASSERT_TRUE(job.ok()) << job.status();
  auto codes = (*job)->wait(Deadline::after_seconds(20));
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_EQ(*codes, std::vector<int>(4, 91));
  for (int rank = 0; rank < 4; ++rank) {
    const std::string told = (*job)->told(rank);
    EXPECT_NE(told.find("HORO_ALGORITHM='allreduce=ring'"), std::string::npos) << told;
    EXPECT_NE(told.find("rank 2"), std::string::npos) << told;
  }
}

TEST(Hierarchy, GroupsOfSomeRanksOfSeveralHostsWorkSideBySide) {
  auto job = Job::start(on_hosts("aabbb"), [](group::Engine& engine) {
    const bool first = engine.rank() == 0 || engine.rank() == 2 || engine.rank() == 3;
    const std::vector<int> ranks = first ? std::vector<int>{0, 2, 3} : std::vector<int>{1, 4};
    auto group = engine.create_group(ranks, Deadline::after_seconds(20));
    if (!group.ok()) return complain(group.status().to_string());
    if ((*group)->transport_name() != (first ? "shm+tcp" : "tcp")) return complain("the wrong transport");
    for (int turn = 0; turn < 20; ++turn) {
      for (group::Group* one : {&engine.world(), group->get()}) {
        std::vector<uint64_t> values(30'000, 1);
        const Status status = one->run(sum_of(values.size()), bytes_of(values), bytes_of(values));
        if (!status.ok() || values.back() != static_cast<uint64_t>(one->size())) return complain(status.to_string());
      }
    }
    engine.remove_group(*group);
    return 0;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  expect_all_zero(**job);
}

/// Not a bound: what the two ways of moving 16 MiB between two hosts of two ranks give on this machine.
TEST(Hierarchy, PrintsItsBandwidth) {
  for (const char* transport : {"tcp", "auto"}) {
    auto job = Job::start(on_hosts("aabb", {{"HORO_TRANSPORT", transport}}), [](group::Engine& engine) {
      std::vector<float> values(4 << 20, 0);
      Operation operation = sum_of(values.size());
      operation.dtype = DType::kF32;
      auto* bytes = reinterpret_cast<std::byte*>(values.data());
      std::vector<double> seconds;
      for (int turn = 0; turn < 12; ++turn) {
        const Time start = Clock::now();
        if (!engine.world().run(operation, bytes, bytes).ok()) return 3;
        seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      }
      std::sort(seconds.begin() + 2, seconds.end());
      const double median = seconds[7];
      tell(text(engine.world().transport_name(), ", ", engine.world().algorithm_name(), ": ", median * 1e3, " ms, ",
                static_cast<double>(values.size() * 4) / median / 1e9, " GB/s"));
      return 0;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_all_zero(**job);
    std::printf("  allreduce of 16 MiB f32, 2 hosts of 2 ranks, over %s\n", (*job)->told(0).c_str());
  }
}

}  // namespace
}  // namespace horo::test
