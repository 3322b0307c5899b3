#include "horo/base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <sstream>
#include <string>

namespace horo {
namespace {

TEST(Status, IsOkByDefault) {
  Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(status);
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_TRUE(status.lost().empty());
  EXPECT_EQ(status.operation(), std::nullopt);
  EXPECT_TRUE(status.contents_intact());
  EXPECT_EQ(status.to_string(), "ok");
}

TEST(Status, CarriesWhatHappened) {
  Status status = Status(Code::kPeerLost, "rank 2 is gone").with_lost({2}).with_operation(7).with_contents_lost();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(status.lost(), std::vector<int>{2});
  EXPECT_EQ(status.operation(), 7u);
  EXPECT_FALSE(status.contents_intact());
  std::ostringstream out;
  out << status.prefixed("allreduce");
  EXPECT_EQ(out.str(), "peer-lost: allreduce: rank 2 is gone");
}

TEST(Status, ChangingACopyLeavesTheOriginalAlone) {
  const Status original(Code::kTimeout, "too late");
  Status changed = original.with_operation(1).prefixed("x");
  EXPECT_EQ(original.operation(), std::nullopt);
  EXPECT_EQ(original.message(), "too late");
  EXPECT_EQ(changed.message(), "x: too late");
}

TEST(Status, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code) {
    EXPECT_NE(code_name(static_cast<Code>(code)), "unknown") << code;
    EXPECT_TRUE(names.insert(code_name(static_cast<Code>(code))).second) << code;
  }
  EXPECT_EQ(code_name(static_cast<Code>(static_cast<int>(Code::kInternal) + 1)), "unknown");
  EXPECT_EQ(code_name(static_cast<Code>(-1)), "unknown");
}

TEST(StatusDeathTest, AnErrorNeedsAnErrorCode) {
  EXPECT_DEATH((void)Status(Code::kOk, "x"), "an OK status has no message");
}

TEST(Result, HoldsAValue) {
  Result<std::string> result = std::string("word");
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.status().ok());
  EXPECT_EQ(*result, "word");
  EXPECT_EQ(result->size(), 4u);
}

TEST(Result, HoldsTheReasonWhyThereIsNoValue) {
  Result<int> result = Status(Code::kNotFound, "no such thing");
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kNotFound);
}

TEST(Result, HandsOverWhatCanOnlyBeMoved) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  std::unique_ptr<int> value = *std::move(result);
  EXPECT_EQ(*value, 5);
}

TEST(ResultDeathTest, TheValueOfAFailureIsOurOwnMistake) {
  Result<int> result = Status(Code::kNotFound, "no such thing");
  EXPECT_DEATH((void)*result, "not-found: no such thing");
}

Result<int> half(int number) {
  if (number % 2 != 0) return Status(Code::kInvalidArgument, "odd");
  return number / 2;
}

Result<int> quarter(int number) {
  HORO_ASSIGN(const int first, half(number));
  HORO_ASSIGN(const int second, half(first));
  return second;
}

Status must_quarter(int number) {
  HORO_TRY(quarter(number).status());
  return {};
}

TEST(Result, ErrorsPassUpwardThroughTheMacros) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).status().message(), "odd");
  EXPECT_TRUE(must_quarter(8).ok());
  EXPECT_EQ(must_quarter(7).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace horo
