#include "horo/base/recycled_map.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace horo {
namespace {

using Map = RecycledMap<std::string, std::vector<int>>;

TEST(RecycledMap, HoldsWhatWasPutInUntilItIsErased) {
  Map map;
  auto [one, fresh] = map.get("one");
  EXPECT_TRUE(fresh);
  one->second = {1};
  EXPECT_FALSE(map.get("one").second);
  EXPECT_EQ(map.find("one")->second, std::vector<int>{1});
  map.get("two");
  EXPECT_EQ(map.size(), 2u);
  map.erase("one");
  map.erase("three");
  EXPECT_FALSE(map.contains("one"));
  EXPECT_TRUE(map.contains("two"));
}

TEST(RecycledMap, UsesTheMemoryOfWhatWasErased) {
  Map map;
  map.get("a").first->second = std::vector<int>(100);
  map.erase("a");
  EXPECT_EQ(map.spare(), 1u);
  auto [again, fresh] = map.get("b");
  EXPECT_TRUE(fresh);
  EXPECT_EQ(again->second.size(), 100u) << "what the erased one was left with";
  EXPECT_EQ(map.spare(), 0u);
  map.erase("b");
  map.get("c");
  map.get("d");
  map.erase("c");
  EXPECT_FALSE(map.get("d").second);
  EXPECT_EQ(map.spare(), 1u) << "nothing new was needed";
  EXPECT_TRUE(map.get("e").second);
  EXPECT_EQ(map.size(), 2u);
}

TEST(RecycledMap, KeepsNotMoreThanItSays) {
  Map map;
  for (size_t i = 0; i < Map::kMostSpare + 100; ++i) map.get(std::to_string(i));
  for (size_t i = 0; i < Map::kMostSpare + 100; ++i) map.erase(std::to_string(i));
  EXPECT_EQ(map.size(), 0u);
  EXPECT_EQ(map.spare(), Map::kMostSpare);
}

}  // namespace
}  // namespace horo
