#include "horo/net/route.h"

#include <gtest/gtest.h>

namespace horo::net {
namespace {

TEST(Route, ToThisHostIsLoopback) {
  const auto source = source_address(Address::loopback(80));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE(source->is_loopback());
  EXPECT_EQ(source->port(), 0);
  EXPECT_EQ(ip_text(*source), "127.0.0.1");
}

TEST(Route, IsFoundWithoutAPort) { EXPECT_TRUE(source_address(Address::loopback(0)).ok()); }

TEST(Route, ToAnythingButAnIpAddressIsAMistake) {
  EXPECT_EQ(source_address(*Address::unix_abstract("x")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(source_address(Address()).status().code(), Code::kInvalidArgument);
}

TEST(Route, TextsHaveNoPortAndNoBrackets) {
  EXPECT_EQ(ip_text(*Address::parse("10.0.0.1:80")), "10.0.0.1");
  EXPECT_EQ(ip_text(*Address::parse("[fd00::1]:80")), "fd00::1");
  EXPECT_EQ(ip_text(*Address::unix_abstract("x")), "");
}

}  // namespace
}  // namespace horo::net
