// Every element type and reduction, and that bits depend on nothing but the group.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <random>
#include <set>

#include "horo/base/text.h"
#include "horo/collective/ranks_as_threads.h"

namespace horo::collective {
namespace {

uint64_t seed_of_this_run() {
  const char* given = std::getenv("TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 20240229;
}

/// Random elements: `exact` ones have few significant bits, so that no order of combination rounds.
Bytes random_elements(DType dtype, ReduceOp op, uint64_t count, std::mt19937_64& random, bool exact) {
  Bytes bytes(count * size_of(dtype));
  if (!is_float(dtype) && !is_complex(dtype)) {
    for (auto& byte : bytes) byte = static_cast<std::byte>(dtype == DType::kBool ? random() % 2 : random());
    return bytes;
  }
  // Floats of all widths are cast from f32; complex numbers are two of them.
  DType part = dtype == DType::kC64 ? DType::kF32 : dtype == DType::kC128 ? DType::kF64 : dtype;
  std::vector<float> values(bytes.size() / size_of(part));
  std::normal_distribution<float> normal;
  for (float& value : values) {
    auto whole = static_cast<float>(static_cast<int>(random() % 9) - 4);
    value = !exact ? normal(random) : op == ReduceOp::kProduct ? (random() % 2 == 0 ? 1.0F : -1.0F) : whole;
  }
  const auto* from = reinterpret_cast<const std::byte*>(values.data());
  if (part == DType::kF32) {
    std::memcpy(bytes.data(), from, bytes.size());
  } else {
    kernel::cast(part, DType::kF32)(bytes.data(), from, values.size());
  }
  return bytes;
}

struct Job {
  std::string algorithm;
  Operation operation;
  Shape shape = Shape::on_one_host(1);
  Table table;
  std::vector<Bytes> inputs;
};

std::vector<Bytes> run(const Job& job) {
  transport::InprocFabric fabric(job.shape.ranks());
  std::vector<Bytes> outputs(job.inputs.size());
  run_ranks(job.shape.ranks(), [&](int rank) {
    Member member(fabric.mesh(rank));
    auto self = static_cast<size_t>(rank);
    auto output = member.run(*find_algorithm(job.algorithm), job.operation, job.shape, job.table, job.inputs[self]);
    EXPECT_TRUE(output.ok()) << job.algorithm << ": " << output.status();
    if (output.ok()) outputs[self] = std::move(output).value();
  });
  return outputs;
}

Bytes reference(const Job& job) {
  const Operation& operation = job.operation;
  Bytes out(operation.count * size_of(operation.dtype));
  std::vector<const std::byte*> pointers;
  for (const Bytes& input : job.inputs) pointers.push_back(input.data());
  auto combine = kernel::combine_many(operation.dtype, operation.op, kernel::Isa::kGeneric);
  combine(out.data(), pointers, operation.count, scaling_after(operation, job.shape.ranks()));
  return out;
}

/// Complex products have zeros whose sign depends on the order.
Bytes without_signs_of_zeros(Bytes bytes, DType dtype) {
  auto clear = [&]<class Float>(Float zero) {
    for (size_t at = 0; at < bytes.size(); at += sizeof(Float)) {
      Float value;
      std::memcpy(&value, &bytes[at], sizeof(Float));
      if (value == zero) std::memcpy(&bytes[at], &zero, sizeof(Float));
    }
  };
  if (dtype == DType::kC64) clear(0.0F);
  if (dtype == DType::kC128) clear(0.0);
  return bytes;
}

Shape halves(int ranks, bool two_hosts) {
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) host_of.push_back(two_hosts && rank >= (ranks + 1) / 2 ? 1 : 0);
  return Shape(host_of);
}

/// One choice for each question.
struct Choice {
  DType dtype;
  ReduceOp op;
  size_t algorithm;
  int ranks;
  uint64_t count;
  bool two_hosts;
  std::vector<std::string> pairs() const {
    std::vector<std::string> answers{text("d", static_cast<int>(dtype)),
                                     text("o", static_cast<int>(op)),
                                     text("a", algorithm),
                                     text("r", ranks),
                                     text("c", count),
                                     text("h", two_hosts)};
    std::vector<std::string> out;
    for (size_t i = 0; i < answers.size(); ++i) {
      for (size_t j = 0; j < i; ++j) out.push_back(answers[j] + answers[i]);
    }
    return out;
  }
};

bool allowed(const Choice& choice) {
  if (!can_reduce(choice.dtype, choice.op)) return false;
  Operation operation;
  operation.kind = Kind::kAllreduce;
  return registry()[choice.algorithm].refusal(operation, halves(choice.ranks, choice.two_hosts)).empty();
}

/// Covers every pair of answers that is allowed together: repeatedly the best of some random choices.
std::vector<Choice> all_pairs(std::mt19937_64& random) {
  constexpr uint64_t kCounts[] = {1, 7, 100, 1000};
  auto draw = [&] {
    return Choice{static_cast<DType>(random() % kDTypeCount),
                  static_cast<ReduceOp>(random() % kReduceOpCount),
                  random() % registry().size(),
                  2 + static_cast<int>(random() % 8),
                  kCounts[random() % 4],
                  random() % 2 == 0};
  };
  std::set<std::string> covered;
  std::vector<Choice> choices;
  for (int barren = 0; barren < 400;) {
    Choice best{};
    size_t most = 0;
    for (int attempt = 0; attempt < 60; ++attempt) {
      Choice choice = draw();
      if (!allowed(choice)) continue;
      auto pairs = choice.pairs();
      auto fresh = static_cast<size_t>(
          std::count_if(pairs.begin(), pairs.end(), [&](const auto& pair) { return covered.count(pair) == 0; }));
      if (fresh > most) {
        most = fresh;
        best = choice;
      }
    }
    if (most == 0) {
      ++barren;
      continue;
    }
    for (const auto& pair : best.pairs()) covered.insert(pair);
    choices.push_back(best);
  }
  return choices;
}

TEST(Bits, AllPairsOfTypesReductionsAlgorithmsAndGroupsGiveTheReference) {
  uint64_t seed = seed_of_this_run();
  SCOPED_TRACE(text("TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  for (const Choice& choice : all_pairs(random)) {
    Job job;
    job.algorithm = registry()[choice.algorithm].name;
    job.shape = halves(choice.ranks, choice.two_hosts);
    job.table.segment_bytes = 256;
    job.operation = operation_of(Kind::kAllreduce, choice.ranks, 0, choice.count, 0);
    job.operation.dtype = choice.dtype;
    job.operation.op = choice.op;
    for (int rank = 0; rank < choice.ranks; ++rank) {
      job.inputs.push_back(random_elements(choice.dtype, choice.op, choice.count, random, true));
    }
    Bytes expected = without_signs_of_zeros(reference(job), choice.dtype);
    for (const Bytes& output : run(job)) {
      ASSERT_EQ(without_signs_of_zeros(output, choice.dtype), expected)
          << job.algorithm << ", " << name(choice.op) << " of " << choice.count << " " << name(choice.dtype) << ", "
          << choice.ranks << " ranks, two hosts " << choice.two_hosts;
    }
  }
}

class SameBits : public testing::TestWithParam<DType> {};

/// All algorithms of one order, any segment size: the same bits on all ranks, although the inputs are not exact.
TEST_P(SameBits, AlgorithmsOfOneOrderAgreeWhateverTheSegments) {
  uint64_t seed = seed_of_this_run();
  SCOPED_TRACE(text("TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  for (int ranks : {2, 3, 4, 5, 7, 8}) {
    std::map<Order, Bytes> bits;
    Job job;
    job.operation = operation_of(Kind::kAllreduce, ranks, 0, 503, 0);
    job.operation.dtype = GetParam();
    job.operation.op = ReduceOp::kAverage;
    for (int rank = 0; rank < ranks; ++rank) {
      job.inputs.push_back(random_elements(GetParam(), ReduceOp::kSum, 503, random, false));
    }
    for (const Algorithm& algorithm : registry()) {
      for (uint64_t segment_bytes : {40, 1000, 1 << 20}) {
        job.algorithm = algorithm.name;
        job.table.segment_bytes = segment_bytes;
        job.shape = halves(ranks, algorithm.order == Order::kHost && ranks > 2);
        if (algorithm.order == Order::kSlice || !algorithm.refusal(job.operation, job.shape).empty()) continue;
        for (const Bytes& output : run(job)) {
          auto [found, is_first] = bits.try_emplace(algorithm.order, output);
          ASSERT_TRUE(is_first || found->second == output)
              << algorithm.name << " differs within " << name(algorithm.order) << " for " << ranks << " ranks";
        }
      }
    }
    EXPECT_EQ(bits[Order::kRank], reference(job));
  }
}

TEST_P(SameBits, AnElementHasTheSameBitsAloneAndAmongOthers) {
  std::mt19937_64 random(seed_of_this_run());
  for (const Algorithm& algorithm : registry()) {
    Job job;
    job.algorithm = algorithm.name;
    job.shape = halves(5, algorithm.order == Order::kHost);
    job.operation = operation_of(Kind::kAllreduce, 5, 0, 200, 0);
    job.operation.dtype = GetParam();
    job.table.segment_bytes = 64;
    if (algorithm.order == Order::kSlice || !algorithm.refusal(job.operation, job.shape).empty()) continue;
    for (int rank = 0; rank < 5; ++rank) {
      job.inputs.push_back(random_elements(GetParam(), ReduceOp::kSum, 200, random, false));
    }
    Bytes together = run(job)[0];
    size_t element = size_of(GetParam());
    Job alone = job;
    alone.operation.count = 30;
    for (Bytes& input : alone.inputs) input = Bytes(&input[90 * element], &input[90 * element] + 30 * element);
    EXPECT_EQ(run(alone)[3], Bytes(&together[90 * element], &together[90 * element] + 30 * element)) << algorithm.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Floats, SameBits,
                         testing::Values(DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kC64),
                         [](const auto& one) { return std::string(name(one.param)); });

TEST(Bits, PrescaleAndPostscaleApplyOnceEach) {
  for (const Algorithm& algorithm : registry()) {
    Job job;
    job.algorithm = algorithm.name;
    job.shape = halves(4, true);
    job.operation = operation_of(Kind::kAllreduce, 4, 0, 33, 0);
    job.operation.prescale = 0.5;
    job.operation.postscale = 4;
    if (!algorithm.refusal(job.operation, job.shape).empty()) continue;
    std::vector<float> expected(33);
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<float> values;
      for (int i = 0; i < 33; ++i) values.push_back(static_cast<float>(i * (rank + 1)));
      for (size_t i = 0; i < 33; ++i) expected[i] += values[i] * 2;
      auto* bytes = reinterpret_cast<const std::byte*>(values.data());
      job.inputs.emplace_back(bytes, bytes + 33 * sizeof(float));
    }
    auto* bytes = reinterpret_cast<const std::byte*>(expected.data());
    for (const Bytes& output : run(job)) EXPECT_EQ(output, Bytes(bytes, bytes + 33 * sizeof(float))) << algorithm.name;
  }
}

}  // namespace
}  // namespace horo::collective
