// Encrypted data streams in jobs of real processes.
#include <gtest/gtest.h>

#include "tests/job.h"

#include "horo/base/text.h"

namespace horo::test {
namespace {

/// Two hosts, in name.
std::map<std::string, std::string, std::less<>> place_of(int rank) {
  return {{"HORO_HOST_ID", rank % 2 == 0 ? "a" : "b"}, {"HORO_INTERFACE", "127.0.0.1"}};
}

Status sum(group::Group& group, std::vector<float>& values) {
  collective::Operation operation;
  operation.kind = collective::Kind::kAllreduce;
  operation.dtype = DType::kF32;
  operation.count = values.size();
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  return group.run(operation, bytes, bytes);
}

TEST(Encryption, RanksOfDifferentHostsReduceAsWithout) {
  JobOptions options{.ranks = 4, .environment = {{"HORO_ENCRYPT", "1"}}, .per_rank = place_of};
  auto job = Job::start(options, [](group::Engine& engine) {
    if (engine.world().transport_name() != "shm+tcp") return 2;
    for (size_t count : {size_t{1}, size_t{100}, size_t{5000}, size_t{300001}, size_t{3000000}}) {
      std::vector<float> values(count, static_cast<float>(engine.rank() + 1));
      Status status = sum(engine.world(), values);
      if (!status.ok() || values != std::vector<float>(count, 10)) return 1;
    }
    return 0;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  auto codes = (*job)->wait(Deadline::after_seconds(60));
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_EQ(*codes, std::vector<int>(4, 0));
}

TEST(Encryption, ADifferenceIsRefusedOnBothSidesWithTheKnobAndBothRanks) {
  for (int encrypting : {0, 1}) {
    JobOptions options{.ranks = 2, .environment = {{"HORO_TIMEOUT", "2s"}}};
    options.per_rank = [encrypting](int rank) {
      auto variables = place_of(rank);
      variables["HORO_ENCRYPT"] = rank == encrypting ? "1" : "0";
      return variables;
    };
    options.enter = [](int) {
      tell_log();
      return true;
    };
    auto job = Job::start(options, [](group::Engine&) { return 0; });
    ASSERT_TRUE(job.ok()) << job.status();
    auto codes = (*job)->wait(Deadline::after_seconds(30));
    ASSERT_TRUE(codes.ok()) << codes.status();
    EXPECT_EQ(*codes, std::vector<int>(2, 91)) << "no engine starts";
    for (int rank : {0, 1}) {
      const std::string told = (*job)->told(rank);
      for (const char* words : {"rank 0", "rank 1", "HORO_ENCRYPT=1", "HORO_ENCRYPT=0", "equally on all ranks"}) {
        EXPECT_NE(told.find(words), std::string::npos) << words << " is not in what rank " << rank << " says: " << told;
      }
    }
  }
}

}  // namespace
}  // namespace horo::test
