// Members that are threads, and whose thresholds are small, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "horo/collective/direct/collectives.h"
#include "horo/collective/ranks_as_threads.h"
#include "horo/transport/inproc/space.h"

namespace horo::collective::direct {

using transport::inproc::Fabric;

inline constexpr size_t kStaging = 512 * 1024;
inline constexpr size_t kSegment = size_t{2} << 20;

/// With caches of different sizes, and processors of different habits, so that members choose differently how they copy
/// and how long their rings are.
enum class Rings : uint8_t { kMixed, kFar, kNear };
/// Who is for reading what the others keep for themselves.
enum class Readers : uint8_t { kSome, kAll };
inline Thresholds small_thresholds(int rank, Rings rings = Rings::kMixed, Readers readers = Readers::kSome) {
  const bool reads = readers == Readers::kAll || rank % 2 == 0;
  const size_t cache = size_t{rank % 3 == 0 ? 4096U : 12288U};
  return {.slot_bytes = 1024,
          .slot_bytes_many = 512,
          .pair_one_way_bytes = 512,
          .step_bytes = 4096,
          .least_step_bytes = 256,
          .pair_step_bytes = 1024,
          .cache_bytes = cache,
          .page_bytes = 128,
          .streams = rank % 4 < 2,
          .far_rings = rings == Rings::kMixed ? rank % 3 == 1 : rings == Rings::kFar,
          .read_bytes = reads ? SIZE_MAX : 0};
}

inline float value(int rank, uint64_t element) {
  return static_cast<float>((static_cast<uint64_t>(rank) * 31 + element * 7) % 17) - 8.0F;
}

inline std::vector<float> input_of(const Operation& operation, int rank) {
  std::vector<float> input(input_count_of(operation, rank));
  for (uint64_t i = 0; i < input.size(); ++i) input[i] = value(rank, i);
  return input;
}

inline std::vector<float> expected_of(const Operation& operation, int ranks, int rank, uint64_t count) {
  std::vector<float> expected;
  for (const Origin& origin : origins_of(operation, ranks, rank, count)) {
    float sum = 0;
    for (int from : origin.ranks) sum += value(from, origin.element);
    expected.push_back(sum);
  }
  return expected;
}

inline std::byte* bytes_of(std::vector<float>& values) { return reinterpret_cast<std::byte*>(values.data()); }

/// A member that makes one call after the other.
class Caller {
 public:
  Caller(Fabric& fabric, int rank, Rings rings = Rings::kMixed, Readers readers = Readers::kSome)
      : Caller(fabric.space(rank, kStaging), small_thresholds(rank, rings, readers)) {}
  Caller(Space space, const Thresholds& thresholds) : protocol_(std::move(space), thresholds) {}

  Status call(const Operation& operation, const std::byte* in, std::byte* out,
              Deadline deadline = Deadline::after_seconds(60)) {
    Call call{
        ++number_,
        {operation.kind, operation.dtype, operation.op, 0, static_cast<uint32_t>(operation.root), operation.count},
        deadline};
    return run(protocol_, call, operation, in, out);
  }
  Protocol& protocol() { return protocol_; }

 private:
  Protocol protocol_;
  uint64_t number_ = 0;
};

/// Calls of all sizes give what they should on all members, and leave inputs alone.
inline void run_collectives(int ranks, std::span<const Kind> kinds, Readers readers) {
  Fabric fabric(ranks, kSegment);
  std::atomic<int> failures{0};
  run_ranks(ranks, [&](int rank) {
    const auto rings = std::array{Rings::kMixed, Rings::kFar, Rings::kNear}[static_cast<size_t>(ranks) % 3];
    Caller caller(fabric, rank, rings, readers);
    for (Kind kind : kinds) {
      for (uint64_t count : {0, 1, 5, 10, 11, 130, 255, 257, 5000, 120000}) {
        const int root = static_cast<int>(count) % ranks;
        Operation operation = operation_of(kind, ranks, rank, count, root);
        std::vector<float> input = input_of(operation, rank);
        std::vector<float> output(operation.result_count(rank), -99);
        Status status = caller.call(operation, bytes_of(input), bytes_of(output));
        bool right = status.ok() && output == expected_of(operation, ranks, rank, count);
        if ((!right || input != input_of(operation, rank)) && failures++ < 5) {
          ADD_FAILURE() << transport::name(kind) << " of " << count << " on rank " << rank << " of " << ranks << ": "
                        << status;
        }
        if (!status.ok()) return fabric.kill(rank);
      }
    }
  });
}

}  // namespace horo::collective::direct
