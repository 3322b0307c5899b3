#include "tests/workload.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "horo/base/text.h"

namespace horo::test {

using collective::Kind;

namespace {

constexpr uint64_t kUntouched = 0xC0FFEE00C0FFEE00;

constexpr Kind kKinds[] = {Kind::kAllreduce, Kind::kReduce,    Kind::kReduceScatter, Kind::kAllgather, Kind::kGather,
                           Kind::kScatter,   Kind::kBroadcast, Kind::kAlltoall,      Kind::kBarrier};

uint64_t sum(const std::vector<uint64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }

/// Of a block for one of four ranks: too much for one exchange, and little enough in all not to pass through rings.
constexpr uint64_t kReadElements = 8 * 1024;

/// Small ones as often as large ones.
uint64_t random_size(std::mt19937_64& random, uint64_t most) {
  const double exponent = std::uniform_real_distribution<double>(0, std::log(static_cast<double>(most) + 1))(random);
  return std::min<uint64_t>(most, static_cast<uint64_t>(std::exp(exponent)));
}

}  // namespace

uint64_t test_seed(const char* test) {
  const uint64_t seed = test_count("TEST_SEED", std::random_device{}());
  std::printf("%s: TEST_SEED=%llu\n", test, static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

uint64_t test_count(const char* variable, uint64_t quick, uint64_t thorough) {
  return test_count(variable, long_tests() ? thorough : quick);
}

collective::Operation sum_of(uint64_t count, DType dtype) {
  collective::Operation operation;
  operation.kind = collective::Kind::kAllreduce;
  operation.dtype = dtype;
  operation.count = count;
  return operation;
}

bool sum_works(group::Group& group, uint64_t count) {
  std::vector<uint64_t> values(count, 1);
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  return group.run(sum_of(count), bytes, bytes, Deadline::after_seconds(20)).ok() &&
         values == std::vector<uint64_t>(count, static_cast<uint64_t>(group.size()));
}

bool long_tests() { return std::getenv("LONG_TESTS") != nullptr; }

bool sanitized() { return *HORO_SANITIZED != '\0'; }

std::string percentiles_text(std::vector<double> milliseconds) {
  if (milliseconds.empty()) return "";
  std::sort(milliseconds.begin(), milliseconds.end());
  const auto at = [&](double share) {
    return milliseconds[static_cast<size_t>(share * static_cast<double>(milliseconds.size() - 1))];
  };
  char words[128];
  std::snprintf(words, sizeof words, "p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, max %.1f ms", at(0.5), at(0.9), at(0.99),
                milliseconds.back());
  return words;
}

uint64_t test_count(const char* variable, uint64_t fallback) {
  const char* value = std::getenv(variable);
  return value == nullptr ? fallback : std::strtoull(value, nullptr, 10);
}

RandomCall::RandomCall(const Of& of, std::vector<int> ranks, int member)
    : of_(of), ranks_(std::move(ranks)), member_(member) {
  std::seed_seq words{of.seed, of.seed >> 32, of.turn};
  std::mt19937_64 random(words);
  operation_.kind = of.read ? Kind::kAlltoall : kKinds[random() % std::size(kKinds)];
  operation_.dtype = DType::kU64;
  operation_.root = static_cast<int>(random() % ranks_.size());
  in_place_ = random() % 2 == 0;
  choose_counts(random, of.most_elements);
  for (int rank : ranks_) all_ |= uint64_t{1} << (4 * rank);
  fill();
}

void RandomCall::choose_counts(std::mt19937_64& random, uint64_t most) {
  const size_t members = ranks_.size();
  switch (operation_.kind) {
    case Kind::kAllreduce:
    case Kind::kReduce:
    case Kind::kBroadcast:
      operation_.count = random_size(random, most);
      return;
    case Kind::kAlltoall:
      matrix_.assign(members, std::vector<uint64_t>(members));
      for (auto& row : matrix_) {
        for (uint64_t& count : row)
          count = of_.read ? kReadElements + random() % kReadElements : random_size(random, most / members / 2);
      }
      operation_.counts = matrix_[static_cast<size_t>(member_)];
      for (const auto& row : matrix_) operation_.receive_counts.push_back(row[static_cast<size_t>(member_)]);
      return;
    case Kind::kBarrier:
    case Kind::kSendRecv:
      return;
    default:
      operation_.counts.resize(members);
      for (uint64_t& count : operation_.counts) count = random_size(random, most / members);
      if (random() % 4 == 0) operation_.counts[random() % members] = 0;
  }
}

uint64_t RandomCall::input_count() const {
  const bool is_root = operation_.root == member_;
  switch (operation_.kind) {
    case Kind::kBroadcast:
      return is_root ? operation_.count : 0;
    case Kind::kScatter:
      return is_root ? sum(operation_.counts) : 0;
    case Kind::kAllgather:
    case Kind::kGather:
      return operation_.counts[static_cast<size_t>(member_)];
    case Kind::kReduceScatter:
    case Kind::kAlltoall:
      return sum(operation_.counts);
    default:
      return operation_.count;
  }
}

uint64_t RandomCall::input_value(int rank, uint64_t index) const {
  if (operation_.reduces()) return uint64_t{1} << (4 * rank);
  return uint64_t(rank + 1) << 56 ^ of_.turn << 32 ^ index;
}

void RandomCall::fill() {
  const int rank = ranks_[static_cast<size_t>(member_)];
  const uint64_t count = input_count();
  const uint64_t results = operation_.result_count(member_);
  const uint64_t inputs = (in_place_ ? std::max(count, results) : count) + 1;
  const uint64_t outputs = in_place_ ? 0 : results + 1;
  std::span<uint64_t> memory = of_.memory;
  if (memory.empty()) {
    own_.resize(inputs + outputs);
    memory = own_;
  } else {
    memory = memory.subspan((of_.turn * 37 + static_cast<uint64_t>(rank) * 131) % (kBeside / 2));
  }
  in_ = memory.first(inputs);
  out_ = memory.subspan(inputs, outputs);
  std::fill(in_.begin(), in_.end(), kUntouched);
  std::fill(out_.begin(), out_.end(), kUntouched);
  for (uint64_t i = 0; i < count; ++i) in_[i] = input_value(rank, i);
}

Status RandomCall::run(group::Group& group, Deadline deadline) {
  auto* in = reinterpret_cast<std::byte*>(in_.data());
  return group.run(operation_, in, in_place_ ? in : reinterpret_cast<std::byte*>(out_.data()), deadline);
}

uint64_t RandomCall::expected(uint64_t index) const {
  const auto member = static_cast<size_t>(member_);
  switch (operation_.kind) {
    case Kind::kBroadcast:
      return input_value(ranks_[static_cast<size_t>(operation_.root)], index);
    case Kind::kScatter: {
      const auto begin = std::accumulate(operation_.counts.begin(), operation_.counts.begin() + member_, uint64_t{0});
      return input_value(ranks_[static_cast<size_t>(operation_.root)], begin + index);
    }
    case Kind::kAllgather:
    case Kind::kGather: {
      size_t from = 0;
      for (; index >= operation_.counts[from]; ++from) index -= operation_.counts[from];
      return input_value(ranks_[from], index);
    }
    case Kind::kAlltoall: {
      size_t from = 0;
      for (; index >= matrix_[from][member]; ++from) index -= matrix_[from][member];
      const auto begin = std::accumulate(matrix_[from].begin(), matrix_[from].begin() + member_, uint64_t{0});
      return input_value(ranks_[from], begin + index);
    }
    default:
      return all_;
  }
}

std::string RandomCall::wrong_result() const {
  const std::span<const uint64_t> result = in_place_ ? in_ : out_;
  const uint64_t count = operation_.result_count(member_);
  for (uint64_t i = 0; i < count; ++i) {
    if (result[i] == expected(i)) continue;
    return text(to_string(), ": element ", i, " of ", count, " is 0x", std::hex, result[i], ", expected 0x",
                expected(i));
  }
  if (result.back() != kUntouched) return text(to_string(), ": written behind the result");
  return in_place_ ? "" : changed_input();
}

std::string RandomCall::changed_input() const {
  const int rank = ranks_[static_cast<size_t>(member_)];
  const uint64_t count = input_count();
  for (uint64_t i = 0; i < count; ++i) {
    if (in_[i] == input_value(rank, i)) continue;
    return text(to_string(), ": input ", i, " of ", count, " is now 0x", std::hex, in_[i], " instead of 0x",
                input_value(rank, i));
  }
  return in_.back() == kUntouched ? "" : text(to_string(), ": written behind the input");
}

std::string RandomCall::to_string() const {
  const uint64_t count = operation_.counts.empty() ? operation_.count : sum(operation_.counts);
  return text(transport::name(operation_.kind), " of ", count, in_place_ ? " in place" : " out of place", ", root ",
              operation_.root, ", turn ", of_.turn);
}

}  // namespace horo::test
