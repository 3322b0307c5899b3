#include "horo/group/signature.h"

#include <gtest/gtest.h>

#include <set>

namespace horo::group {
namespace {

using collective::Kind;
using collective::Operation;

/// Those that 64 operations have, each changed by its number.
template <class Change>
std::set<uint32_t> signatures(Kind kind, Change change) {
  std::set<uint32_t> found;
  for (int number = 0; number < 64; ++number) {
    Operation operation;
    operation.kind = kind;
    operation.dtype = DType::kF32;
    operation.count = 100;
    change(operation, number);
    found.insert(signature_of(operation, 1).root);
  }
  return found;
}

// Sixteen bits: two of 64 may be equal by chance, one pair in thirty times; these are not.
TEST(Signature, TellsTargetsOfMessagesApart) {
  EXPECT_EQ(signatures(Kind::kSendRecv, [](Operation& operation, int number) { operation.target = number; }).size(),
            64u);
}

TEST(Signature, TellsWaysApart) {
  const auto ways = signatures(Kind::kAllreduce, [](Operation& operation, int number) {
    operation.way.algorithm = static_cast<uint8_t>(number / 2);
    operation.way.one_level = number % 2 == 1;
  });
  EXPECT_EQ(ways.size(), 64u);
}

TEST(Signature, TellsCountsAndFactorsApart) {
  EXPECT_EQ(signatures(Kind::kAllgather,
                       [](Operation& operation, int number) {
                         operation.counts = {static_cast<uint64_t>(number), static_cast<uint64_t>(100 - number)};
                       })
                .size(),
            64u);
  EXPECT_EQ(signatures(Kind::kAllreduce, [](Operation& operation, int number) { operation.postscale = number; }).size(),
            64u);
}

}  // namespace
}  // namespace horo::group
