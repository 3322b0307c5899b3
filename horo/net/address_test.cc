#include "horo/net/address.h"

#include <gtest/gtest.h>

namespace horo::net {
namespace {

TEST(Address, PrintsWhatItParses) {
  for (const char* text :
       {"127.0.0.1:5000", "0.0.0.0:0", "[::1]:5000", "[2001:db8::7]:65535", "unix:@horo-1", "unix:/tmp/horo.socket"}) {
    auto address = Address::parse(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->to_string(), text);
    EXPECT_EQ(*address, *Address::parse(text));
  }
}

TEST(Address, RefusesWhatIsNoneAndSaysWhatToWrite) {
  for (const char* text : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:5x", "::1:5000",
                           "[::1]", "[::1:5000", "host:5000", "300.0.0.1:1", "unix:", "unix:@", "[fe80::1%nosuch]:1"}) {
    auto address = Address::parse(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), Code::kInvalidArgument);
  }
  EXPECT_NE(Address::parse("::1:5000").status().message().find("square brackets"), std::string::npos);
  EXPECT_FALSE(Address::unix_abstract(std::string(200, 'x')).ok());
}

TEST(Address, KnowsWhichAddressesStayOnThisMachine) {
  for (const char* text : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:@x", "unix:/x"}) {
    EXPECT_TRUE(Address::parse(text)->is_loopback()) << text;
  }
  for (const char* text : {"0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[::ffff:10.0.0.1]:1", "[2001:db8::1]:1"}) {
    EXPECT_FALSE(Address::parse(text)->is_loopback()) << text;
  }
  EXPECT_FALSE(Address().is_loopback());
  EXPECT_TRUE(Address::parse("0.0.0.0:1")->is_any());
  EXPECT_TRUE(Address::parse("[::]:1")->is_any());
}

TEST(Address, ChangesThePortOnly) {
  EXPECT_EQ(Address::parse("[::1]:5")->with_port(77).to_string(), "[::1]:77");
  EXPECT_EQ(Address::loopback(5).with_port(78).to_string(), "127.0.0.1:78");
  EXPECT_EQ(Address::parse("unix:@a")->with_port(78).to_string(), "unix:@a");
}

TEST(Resolve, FindsLocalhostAndTakesLiteralsAsTheyAre) {
  auto found = resolve("localhost:7");
  ASSERT_TRUE(found.ok()) << found.status();
  for (const Address& address : *found) {
    EXPECT_TRUE(address.is_loopback()) << address.to_string();
    EXPECT_EQ(address.port(), 7);
  }
  EXPECT_EQ(resolve("10.1.2.3:9")->at(0).to_string(), "10.1.2.3:9");
  EXPECT_EQ(resolve("unix:@x")->at(0).to_string(), "unix:@x");
  EXPECT_EQ(resolve("localhost:70000").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(resolve("localhost").status().code(), Code::kInvalidArgument);
}

TEST(Interfaces, ContainLoopbackAndCanBeChosenByName) {
  auto list = interfaces();
  ASSERT_TRUE(list.ok()) << list.status();
  auto chosen = choose_interface("lo");
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_TRUE(chosen->is_loopback());
  auto missing = choose_interface("nosuch0");
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_NE(missing.status().message().find("lo"), std::string::npos);
}

TEST(Interfaces, PreferRoutableIpv4AndTakeLoopbackLast) {
  auto at = [](const char* text) { return *Address::ip(text, 0); };
  std::vector<Interface> list = {{"lo", at("127.0.0.1")},  {"eth0", at("fe80::1")},  {"eth0", at("2001:db8::1")},
                                 {"eth0", at("10.0.0.1")}, {"eth1", at("10.0.1.1")}, {"eth2", at("169.254.1.1")}};
  EXPECT_EQ(choose_interface(list, "")->to_string(), "10.0.0.1:0");
  EXPECT_EQ(choose_interface(list, "eth1")->to_string(), "10.0.1.1:0");
  EXPECT_EQ(choose_interface(list, "eth2")->to_string(), "169.254.1.1:0");
  list.resize(3);
  EXPECT_EQ(choose_interface(list, "")->to_string(), "[2001:db8::1]:0");
  list.resize(1);
  EXPECT_EQ(choose_interface(list, "")->to_string(), "127.0.0.1:0");
  EXPECT_EQ(choose_interface({}, "").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace horo::net
