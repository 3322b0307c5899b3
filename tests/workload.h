// Random collectives whose results show every missing, double or misplaced share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/group/group.h"

namespace horo::test {

/// TEST_SEED, or a new one; printed either way, so that a failure can be run again.
uint64_t test_seed(const char* test);
/// The number in an environment variable, or `fallback`.
uint64_t test_count(const char* variable, uint64_t fallback);
/// The same, with more of it where LONG_TESTS is set (make test-all).
uint64_t test_count(const char* variable, uint64_t quick, uint64_t thorough);
/// Whether LONG_TESTS is set: what takes minutes or gigabytes runs only then.
bool long_tests();
/// Whether this is built with sanitizers, whose own threads, mappings and slowness spoil some measures.
bool sanitized();

/// An allreduce with sum.
collective::Operation sum_of(uint64_t count, DType dtype = DType::kU64);
/// Whether a sum of ones over the group comes out right, within 20 s.
bool sum_works(group::Group& group, uint64_t count);

/// "p50 1.0 ms, p90 ..., p99 ..., max ..."; empty without values.
std::string percentiles_text(std::vector<double> milliseconds);

/// One collective as one member of a group makes it: all members that make it from the same seed and turn make the
/// same.
///
/// Elements are u64. To a reduction rank r gives 16^r, so that each digit of the sum counts one rank's shares;
/// elsewhere every element tells whose it is, where it stood and in which turn.
class RandomCall {
 public:
  struct Of {
    uint64_t seed = 0;
    uint64_t turn = 0;
    uint64_t most_elements = 512 * 1024;
    /// Where the call puts what it gives and gets: room for both, and for kBeside elements. Else in memory of its own.
    std::span<uint64_t> memory{};
    /// Only alltoalls of blocks that members read where their givers keep them, if they may.
    bool read = false;
  };
  static constexpr uint64_t kBeside = 4096;
  RandomCall(const Of& of, std::vector<int> ranks, int member);

  const collective::Operation& operation() const { return operation_; }
  bool in_place() const { return in_place_; }
  Status run(group::Group& group, Deadline deadline = Deadline::never());

  /// Empty, or what is wrong with the result of a success.
  std::string wrong_result() const;
  /// Empty, or what is wrong with the memory after a failure.
  std::string changed_input() const;
  /// "allreduce of 17 in place"
  std::string to_string() const;

 private:
  void choose_counts(std::mt19937_64& random, uint64_t most);
  void fill();
  uint64_t input_value(int rank, uint64_t index) const;
  uint64_t expected(uint64_t index) const;
  uint64_t input_count() const;

  const Of of_;
  const std::vector<int> ranks_;
  const int member_;
  collective::Operation operation_;
  std::vector<std::vector<uint64_t>> matrix_;  ///< Of an alltoall: sent by each to each.
  bool in_place_ = false;
  uint64_t all_ = 0;           ///< The sum of everybody's 16^rank.
  std::vector<uint64_t> own_;  ///< Unless memory was given.
  std::span<uint64_t> in_, out_;
};

}  // namespace horo::test
