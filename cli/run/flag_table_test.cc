#include "cli/run/flag_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "horo/base/text.h"

namespace horo::cli::launch {
namespace {

TEST(FlagTable, EveryRowNamesATestThatExistsAndIsDocumented) {
  std::set<std::string> tests;
  const auto& all = *testing::UnitTest::GetInstance();
  for (int suite = 0; suite < all.total_test_suite_count(); ++suite) {
    const auto& one = *all.GetTestSuite(suite);
    for (int test = 0; test < one.total_test_count(); ++test) {
      tests.insert(text(one.name(), ".", one.GetTestInfo(test)->name()));
    }
  }
  std::ifstream page(HORO_LAUNCHER_PAGE);
  const std::string documented{std::istreambuf_iterator<char>(page), {}};
  std::set<std::string_view> names;
  for (const FlagRow& row : flag_table()) {
    EXPECT_TRUE(documented.find(text("`", row.name, "`")) != documented.npos)
        << row.name << " is not in docs/launcher.md";
    EXPECT_EQ(tests.count(std::string(row.test)), 1u) << row.name << " names " << row.test;
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " appears twice";
    EXPECT_EQ(find_flag(row.name), &row);
  }
}

}  // namespace
}  // namespace horo::cli::launch
