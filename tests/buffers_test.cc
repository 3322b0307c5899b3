// The memory in which tensors are put together: one pool for all process sets, given back when it is not used.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/launcher/launched.h"
#include "tests/process.h"
#include "tests/runtime_job.h"
#include "tests/workload.h"

#include "horo/base/text.h"
#include "horo/engine/buffer_pool.h"

namespace horo::test {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kMiB = 1 << 20;
constexpr size_t kTensors = 32;
constexpr size_t kElements = 1 << 17;  ///< Of each tensor: 512 KiB, so that 16 MiB are put together.

/// Bytes of a rank's segment and buffers that are real, and what all its mappings hold of shared memory.
uint64_t shared_bytes(pid_t pid, int rank) {
  const std::string folder = text("/proc/", pid, "/fd/");
  const std::string segment = text("/memfd:horo-rank-", rank, " "), buffers = text("/memfd:horo-buffers-", rank, " ");
  std::map<std::string, uint64_t> bytes;  // By name: a file may have several descriptors.
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    struct stat file {};
    if (!target.starts_with(segment) && !target.starts_with(buffers)) continue;
    if (stat(entry.path().c_str(), &file) == 0) bytes[target] = static_cast<uint64_t>(file.st_blocks) * 512;
  }
  return bytes[segment + "(deleted)"] + bytes[buffers + "(deleted)"];
}

uint64_t resident_shared_bytes(pid_t pid) {
  std::ifstream status(text("/proc/", pid, "/status"));
  for (std::string word; status >> word;) {
    uint64_t kib = 0;
    if (word == "RssShmem:" && status >> kib) return kib * 1024;
  }
  return 0;
}

/// A group of tensors, put together into one operation in every one of `sets` at the same time.
Status burst(Runtime& runtime, const std::vector<int>& sets) {
  struct Handed {
    int set;
    Handle handle;
    std::vector<std::vector<float>> data;
  };
  std::vector<Handed> all;
  for (int set : sets) {
    Handed& handed = all.emplace_back(Handed{set, nullptr, {}});
    handed.data.assign(kTensors, std::vector<float>(kElements, static_cast<float>(runtime.rank() + 1)));
    std::vector<Call> calls;
    for (size_t i = 0; i < kTensors; ++i) {
      calls.push_back(in_place(text("tensor ", i), handed.data[i]));
    }
    HORO_ASSIGN(handed.handle, runtime.submit(set, std::move(calls)));
  }
  for (Handed& handed : all) {
    HORO_TRY(runtime.wait(handed.set, handed.handle));
    float expected = 0;
    HORO_ASSIGN(const std::vector<int> ranks, runtime.set_ranks(handed.set));
    for (int rank : ranks) expected += static_cast<float>(rank + 1);
    for (const auto& values : handed.data) {
      for (float value : values) {
        if (value != expected) return {Code::kInternal, text("got ", value, " instead of ", expected)};
      }
    }
  }
  return {};
}

Status wait_until_the_pool_is_empty(Runtime& runtime) {
  const bool empty = eventually([&] { return runtime.pool().counts().idle_bytes == 0; }, Deadline::after_seconds(20));
  return empty ? Status() : Status(Code::kTimeout, "the pool keeps its buffers");
}

TEST(Buffers, PagesGoBackToTheSystemAfterABurstAndThenNothingWakesUp) {
  Hold hold;
  auto job = start({.ranks = 2}, [&](Runtime& runtime) -> Status {
    hold.take_part();
    for (int i = 0; i < 3; ++i) HORO_TRY(burst(runtime, {0}));
    tell("burst\n");
    HORO_TRY(wait_until_the_pool_is_empty(runtime));
    tell("idle\n");
    return hold.wait(Deadline::after_seconds(60)) ? Status() : Status(Code::kTimeout, "not let go");
  });
  ASSERT_TRUE(job);
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(job->next_line(rank, Deadline::after_seconds(30)).ok());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_GE(shared_bytes(job->pid(rank), rank), kTensors * kElements * sizeof(float)) << "rank " << rank;
  }
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(job->next_line(rank, Deadline::after_seconds(30)).ok());
  for (int rank = 0; rank < 2; ++rank) {
    const auto returned = [&] {
      return shared_bytes(job->pid(rank), rank) <= 2 * kMiB && resident_shared_bytes(job->pid(rank)) <= 8 * kMiB;
    };
    EXPECT_TRUE(eventually(returned, Deadline::after_seconds(10)))
        << "rank " << rank << " shares " << shared_bytes(job->pid(rank), rank) << " bytes and sees "
        << resident_shared_bytes(job->pid(rank)) << ", its peer's too";
  }
  EXPECT_EQ(job->next_line(0, Deadline::after(milliseconds(300))).status().code(), Code::kTimeout);
  const Use before = use_of(job->pid(0));
  EXPECT_EQ(job->next_line(0, Deadline::after(milliseconds(1500))).status().code(), Code::kTimeout);
  if (!sanitized()) {
    EXPECT_EQ(use_of(job->pid(0)).switches - before.switches, 0) << "woke up though there is nothing to do";
  }
  hold.let_go();
  expect_zero(*job);
}

TEST(Buffers, AreSharedByAllProcessSets) {
  const std::vector<std::vector<int>> sets = {{0, 1}, {0, 2}, {1, 2}};
  const StatusBody body = [&](Runtime& runtime) -> Status {
    std::vector<int> mine = {0};
    for (size_t i = 0; i < sets.size(); ++i) {
      if (std::find(sets[i].begin(), sets[i].end(), runtime.rank()) != sets[i].end()) {
        mine.push_back(static_cast<int>(i) + 1);
      }
    }
    // One after the other: all of them use one buffer.
    for (int set : mine) {
      HORO_TRY(burst(runtime, {set}));
      const auto counts = runtime.pool().counts();
      if (counts.lent + counts.idle > 1) {
        return {Code::kInternal, text(counts.lent + counts.idle, " buffers after set ", set)};
      }
    }
    // At the same time: never more buffers than sets, however often.
    for (int round = 0; round < 3; ++round) {
      HORO_TRY(burst(runtime, mine));
      const auto counts = runtime.pool().counts();
      if (counts.lent != 0 || counts.idle > mine.size()) return {Code::kInternal, "more buffers than sets"};
    }
    HORO_TRY(wait_until_the_pool_is_empty(runtime));
    return burst(runtime, mine);  // What went back comes again.
  };
  auto job = start({.ranks = 3}, body, sets);
  ASSERT_TRUE(job);
  expect_zero(*job);
}

TEST(Buffers, AreGivenBackWithoutSharedMemoryToo) {
  for (const char* transport : {"tcp", "auto"}) {
    const int ranks = transport == std::string("tcp") ? 2 : 1;
    auto job = start({.ranks = ranks, .environment = {{"HORO_TRANSPORT", transport}, {"HORO_INTERFACE", "127.0.0.1"}}},
                     [](Runtime& runtime) -> Status {
                       HORO_TRY(burst(runtime, {0}));
                       HORO_TRY(wait_until_the_pool_is_empty(runtime));
                       return burst(runtime, {0});
                     });
    ASSERT_TRUE(job);
    expect_zero(*job);
  }
}

/// A sum of large numbers of all ranks, in place; `values` are this rank's.
Status sum_in_place(Runtime& runtime, const char* name, std::span<float> values) {
  std::fill(values.begin(), values.end(), static_cast<float>(runtime.rank() + 1));
  Call call;
  call.tensor.name = name;
  call.tensor.kind = Kind::kAllreduce;
  call.tensor.dtype = DType::kF32;
  call.tensor.shape = {static_cast<int64_t>(values.size())};
  call.input = call.output = reinterpret_cast<std::byte*>(values.data());
  HORO_ASSIGN(Handle handle, runtime.submit(0, {call}));
  HORO_TRY(runtime.wait(0, handle));
  const auto sum = static_cast<float>(runtime.size() * (runtime.size() + 1) / 2);
  const auto wrong = std::find_if(values.begin(), values.end(), [&](float value) { return value != sum; });
  return wrong == values.end() ? Status() : Status(Code::kInternal, text("got ", *wrong, " instead of ", sum));
}

Status two_at_once(Runtime& runtime, std::span<float> first, std::span<float> second) {
  std::vector<Call> calls(2);
  const std::span<float> data[] = {first, second};
  for (size_t i = 0; i < 2; ++i) {
    std::fill(data[i].begin(), data[i].end(), static_cast<float>(runtime.rank() + 1));
    calls[i].tensor.name = text("half ", i);
    calls[i].tensor.kind = Kind::kAllreduce;
    calls[i].tensor.dtype = DType::kF32;
    calls[i].tensor.shape = {static_cast<int64_t>(data[i].size())};
    calls[i].input = calls[i].output = reinterpret_cast<std::byte*>(data[i].data());
  }
  HORO_ASSIGN(Handle handle, runtime.submit(0, std::move(calls)));
  HORO_TRY(runtime.wait(0, handle));
  const auto counts = runtime.pool().counts();
  return counts.lent + counts.idle == 0 ? Status() : Status(Code::kInternal, "large tensors were put together");
}

TEST(Buffers, WhatLiesInTheRuntimesMemoryIsReducedWhereItIs) {
  constexpr size_t kCount = 4 << 20;
  for (int ranks : {2, 3}) {
    auto job = start({.ranks = ranks}, [](Runtime& runtime) -> Status {
      HORO_ASSIGN(std::span<std::byte> memory, runtime.allocate(kCount * sizeof(float)));
      const std::span<float> values(reinterpret_cast<float*>(memory.data()), kCount);
      const uint64_t before = shared_bytes(getpid(), runtime.rank());
      HORO_TRY(sum_in_place(runtime, "everybody's", values));
      HORO_TRY(two_at_once(runtime, values.first(kCount / 2), values.last(kCount / 2)));
      const uint64_t after = shared_bytes(getpid(), runtime.rank());
      if (after > before + kMiB) return {Code::kInternal, text(after - before, " bytes were staged")};
      // One rank's data lies elsewhere, and in another place of the memory on each of the others.
      std::vector<float> own(kCount / 2);
      const bool mine = runtime.rank() == 0;
      const auto part = values.subspan(static_cast<size_t>(runtime.rank()) * 64, kCount / 2);
      HORO_TRY(sum_in_place(runtime, "not rank 0's", mine ? std::span<float>(own) : part));
      // What it holds outlives the job.
      runtime.shutdown();
      std::fill(values.begin(), values.end(), 1.0F);
      runtime.free(memory.data());
      return {};
    });
    ASSERT_TRUE(job);
    expect_zero(*job);
  }
}

}  // namespace
}  // namespace horo::test
