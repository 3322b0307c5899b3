// What the bench and its ranks say to each other arrives as it was meant.
#include "cli/bench/protocol.h"

#include <gtest/gtest.h>

namespace horo::bench {
namespace {

TEST(BenchProtocol, ACommandArrivesAsItWasSent) {
  const Command sent{.op = Op::kAlltoall,
                     .mode = Mode::kBatch,
                     .dtype = DType::kBF16,
                     .count = 1ull << 40,
                     .iterations = 77,
                     .in_place = false,
                     .library = true,
                     .seed = 5};
  const auto got = decode_command(encode(sent));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(encode(*got), encode(sent));
  EXPECT_EQ(got->count, sent.count);
  EXPECT_EQ(got->op, sent.op);
  EXPECT_TRUE(got->library);
}

TEST(BenchProtocol, AReplyArrivesAsItWasSent) {
  Reply sent;
  sent.transport = "shm";
  sent.cpu_seconds = 0.25;
  sent.nanoseconds = {5, 7, 1'000'000'000'000};
  const auto got = decode_reply(encode(sent));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->transport, "shm");
  EXPECT_EQ(got->algorithm, "-");
  EXPECT_EQ(got->nanoseconds, sent.nanoseconds);
  EXPECT_DOUBLE_EQ(got->cpu_seconds, 0.25);
}

TEST(BenchProtocol, AnErrorKeepsItsWordsOnOneLine) {
  Reply sent;
  sent.kind = Reply::Kind::kError;
  sent.message = "rank 2 is gone\nkilled";
  EXPECT_EQ(encode(sent).find('\n'), std::string::npos);
  EXPECT_EQ(decode_reply(encode(sent))->message, "rank 2 is gone killed");
}

TEST(BenchProtocol, WhatIsNotOursIsRefused) {
  for (const char* line :
       {"", "measure", "measure op=allreduce", "measure op=x mode=latency dtype=f32 count=1",
        "measure op=allreduce mode=latency dtype=f32 count=1x iterations=1 in_place=1 library=0 seed=1"}) {
    EXPECT_FALSE(decode_command(line).ok()) << line;
  }
  for (const char* line : {"", "okay", "ok", "ok transport=shm"}) EXPECT_FALSE(decode_reply(line).ok()) << line;
}

}  // namespace
}  // namespace horo::bench
