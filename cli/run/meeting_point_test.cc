#include "cli/run/meeting_point.h"

#include <gtest/gtest.h>

#include "cli/run/interfaces.h"

#include "horo/base/system.h"
#include "horo/net/route.h"

namespace horo::cli::launch {
namespace {

TEST(MeetingPlan, OfOneHostStaysOnLoopback) {
  const auto plan = plan_meeting({{"localhost", true, "", ""}}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->listen.is_loopback());
  EXPECT_EQ(plan->seen, std::vector<std::string>{"127.0.0.1"});
  EXPECT_TRUE(plan->peers[0].empty());
}

TEST(MeetingPlan, TwoNamesOfThisHostShareLoopback) {
  const auto plan = plan_meeting({{"localhost", true, "", ""}, {"127.0.0.1", true, "", ""}}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->seen, (std::vector<std::string>{"127.0.0.1", "127.0.0.1"}));
  EXPECT_TRUE(plan->peers[1].empty());
}

TEST(MeetingPlan, TheChosenInterfaceIsUsedForAll) {
  const auto plan = plan_meeting({{"localhost", true, "", ""}, {"far", false, "", "10.0.0.9"}}, {"nothing0", "lo"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(net::ip_text(plan->listen), "127.0.0.1");
  EXPECT_EQ(plan->seen, (std::vector<std::string>{"127.0.0.1", "127.0.0.1"}));
  // The far host finds its interface by the way to this one, this host by the way there.
  EXPECT_EQ(plan->peers[0], std::vector<std::string>{"10.0.0.9"});
  EXPECT_EQ(plan->peers[1], std::vector<std::string>{"127.0.0.1"});
}

TEST(MeetingPlan, AHostWithoutAWayToItIsNamed) {
  const auto plan = plan_meeting({{"host.invalid", false, "", ""}}, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("host.invalid"), std::string::npos) << plan.status();
}

TEST(Interfaces, ThisHostHasManyNames) {
  EXPECT_TRUE(is_this_host("localhost"));
  EXPECT_TRUE(is_this_host("127.0.0.1"));
  EXPECT_TRUE(is_this_host("::1"));
  EXPECT_TRUE(is_this_host(host_name()));
  EXPECT_FALSE(is_this_host("192.0.2.7"));
  EXPECT_FALSE(is_this_host("somebody@127.0.0.1"));
  EXPECT_FALSE(is_this_host("host.invalid"));
}

TEST(Interfaces, WithoutPeersLoopbackWillDo) {
  EXPECT_TRUE(address_towards({})->is_loopback());
  EXPECT_EQ(net::ip_text(*first_interface({"nothing0", "127.0.0.1"})), "127.0.0.1");
  EXPECT_EQ(first_interface({"nothing0"}).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace horo::cli::launch
