#include "horo/base/json.h"

#include <gtest/gtest.h>

namespace horo {
namespace {

TEST(Json, QuotesWhatJsonWantsQuotedAndKeepsTheRest) {
  EXPECT_EQ(json_quoted(""), R"("")");
  EXPECT_EQ(json_quoted("layer1/weight:0"), R"("layer1/weight:0")");
  EXPECT_EQ(json_quoted("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_quoted(std::string_view("\n\0\x1f", 3)), R"("\u000a\u0000\u001f")");
  EXPECT_EQ(json_quoted("Größe ≥ 𝄞"), "\"Größe ≥ 𝄞\"");
}

TEST(Json, BytesThatAreNoUtf8BecomeReplacementCharacters) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(json_quoted("a\xFFz"), "\"a" + bad + "z\"");
  EXPECT_EQ(json_quoted("\xC0\xAF"), "\"" + bad + bad + "\"") << "overlong";
  EXPECT_EQ(json_quoted("\xED\xA0\x80"), "\"" + bad + bad + bad + "\"") << "a surrogate";
  EXPECT_EQ(json_quoted("\xF4\x90\x80\x80"), "\"" + bad + bad + bad + bad + "\"") << "beyond Unicode";
  EXPECT_EQ(json_quoted("\xE2\x82"), "\"" + bad + bad + "\"") << "cut off";
}

}  // namespace
}  // namespace horo
