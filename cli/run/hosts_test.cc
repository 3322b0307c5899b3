#include "cli/run/hosts.h"

#include <gtest/gtest.h>

namespace horo::cli::launch {
namespace {

using Hosts = std::vector<Host>;

std::string message_of(const Result<Hosts>& result) { return result.ok() ? "" : result.status().message(); }

void expect_error(const Result<Hosts>& result, const std::string& words) {
  EXPECT_FALSE(result.ok());
  EXPECT_NE(message_of(result).find(words), std::string::npos) << message_of(result);
}

TEST(Hosts, AreNamesWithSlots) {
  EXPECT_EQ(*parse_hosts("a:2,b:4"), (Hosts{{"a", 2}, {"b", 4}}));
  EXPECT_EQ(*parse_hosts("localhost"), (Hosts{{"localhost", 1}}));
  EXPECT_EQ(*parse_hosts("me@node-1.example.org:8"), (Hosts{{"me@node-1.example.org", 8}}));
  EXPECT_EQ(*parse_hosts("10.0.0.1:2, 10.0.0.2"), (Hosts{{"10.0.0.1", 2}, {"10.0.0.2", 1}}));
}

TEST(Hosts, Ipv6AddressesStandInBrackets) {
  EXPECT_EQ(*parse_hosts("[fd00::1]:2,[fe80::2%eth0]"), (Hosts{{"fd00::1", 2}, {"fe80::2%eth0", 1}}));
  expect_error(parse_hosts("fd00::1:2"), "in brackets");
  expect_error(parse_hosts("[fd00::1:2"), "closing bracket");
}

TEST(Hosts, ThatAppearTwiceHaveTheSumOfSlots) { EXPECT_EQ(*parse_hosts("a,b:2,a:3"), (Hosts{{"a", 4}, {"b", 2}})); }

TEST(Hosts, BadPiecesAreNamed) {
  expect_error(parse_hosts("a:2,b:x"), "'b:x'");
  expect_error(parse_hosts("a:0"), "'a:0'");
  expect_error(parse_hosts("a:-1"), "'a:-1'");
  expect_error(parse_hosts("a:70000"), "65536");
  expect_error(parse_hosts("a:2,,b"), "names no host");
  expect_error(parse_hosts(""), "names no host");
  expect_error(parse_hosts("-oProxyCommand=evil"), "begins with '-'");
  expect_error(parse_hosts("a;reboot"), "contains ';'");
  expect_error(parse_hosts("a b"), "contains ' '");
}

TEST(Hostfile, HasCommentsBlankLinesAndSlots) {
  const auto hosts =
      parse_hostfile("# the cluster\n\nnode1 slots=4\r\nnode2:2  # old\n node3\nnode1 slots=1 max_slots=9\n", "h");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_EQ(*hosts, (Hosts{{"node1", 5}, {"node2", 2}, {"node3", 1}}));
}

TEST(Hostfile, BadLinesAreNamedByNumber) {
  expect_error(parse_hostfile("a slots=2\nb slots=many\n", "hosts.txt"), "hosts.txt:2: 'slots=many'");
  expect_error(parse_hostfile("\n\na two\n", "hosts.txt"), "hosts.txt:3: 'two'");
  expect_error(parse_hostfile("a:2:3\n", "hosts.txt"), "hosts.txt:1");
  expect_error(parse_hostfile("# nothing\n", "hosts.txt"), "names no host");
}

TEST(Discovery, GivesHostsWithoutANumberTheDefault) {
  EXPECT_EQ(*parse_discovered("a:2\nb\n", "find.sh", 3), (Hosts{{"a", 2}, {"b", 3}}));
  expect_error(parse_discovered("", "find.sh", 1), "output of find.sh");
}

TEST(Placement, FillsHostsInOrder) {
  const auto placement = place_ranks({{"a", 2}, {"b", 1}, {"c", 4}}, 5);
  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_EQ(placement->hosts, (Hosts{{"a", 2}, {"b", 1}, {"c", 2}}));
  // rank, host, local rank and size, cross rank and size.
  EXPECT_EQ(placement->ranks, (std::vector<RankPlace>{
                                  {0, 0, 0, 2, 0, 3},
                                  {1, 0, 1, 2, 0, 2},
                                  {2, 1, 0, 1, 1, 3},
                                  {3, 2, 0, 2, 2, 3},
                                  {4, 2, 1, 2, 1, 2},
                              }));
  EXPECT_EQ(placement->ranks_of(2), (std::vector<int>{3, 4}));
}

TEST(Placement, HostsWithoutRanksAreLeftOut) {
  EXPECT_EQ(place_ranks({{"a", 2}, {"b", 2}}, 2)->hosts, (Hosts{{"a", 2}}));
}

TEST(Placement, TooFewSlotsNamesBothNumbers) {
  const auto placement = place_ranks({{"a", 2}, {"b", 1}}, 4);
  ASSERT_FALSE(placement.ok());
  EXPECT_NE(placement.status().message().find("4 ranks, the hosts offer 3 (a:2, b:1)"), std::string::npos)
      << placement.status();
  EXPECT_FALSE(place_ranks({{"a", 2}}, 0).ok());
}

}  // namespace
}  // namespace horo::cli::launch
