#include "horo/net/key.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "horo/net/identity.h"
#include "horo/net/testing.h"

namespace horo::net {
namespace {

using testing::bytes_of;

bool same(const Key& a, const Key& b) { return std::ranges::equal(a.secret(), b.secret()); }

class KeyFile : public ::testing::Test {
 protected:
  KeyFile() : path_(::testing::TempDir() + text("horo-key-", getpid())) { std::filesystem::remove(path_); }
  ~KeyFile() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST_F(KeyFile, IsReadBackAndNeverOverwritten) {
  Key key = *Key::random();
  ASSERT_TRUE(key.save(path_).ok());
  struct stat found {};
  stat(path_.c_str(), &found);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_TRUE(same(*Key::from_file(path_), key));
  EXPECT_FALSE(key.save(path_).ok());
}

TEST_F(KeyFile, IsRefusedWhenOthersMayReadItOrItHasAnotherSize) {
  ASSERT_TRUE(Key::random()->save(path_).ok());
  chmod(path_.c_str(), 0640);
  EXPECT_NE(Key::from_file(path_).status().message().find("chmod 600"), std::string::npos);
  chmod(path_.c_str(), 0600);
  std::filesystem::resize_file(path_, 31);
  EXPECT_NE(Key::from_file(path_).status().message().find("fewer"), std::string::npos);
  std::filesystem::resize_file(path_, 33);
  EXPECT_NE(Key::from_file(path_).status().message().find("more"), std::string::npos);
  EXPECT_EQ(Key::from_file(path_ + "-missing").status().code(), Code::kNotFound);
  EXPECT_FALSE(Key::from_file("/dev/zero").ok());
}

TEST(Key, ComesThroughADescriptorWhichIsClosed) {
  size_t before = testing::open_descriptors();
  Key key = *Key::random();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], key.secret().data(), Key::kBytes), 32);
  close(ends[1]);
  EXPECT_TRUE(same(*Key::from_fd(ends[0]), key));
  EXPECT_EQ(testing::open_descriptors(), before);
  EXPECT_FALSE(Key::from_fd(-1).ok());
}

TEST(Key, OfZerosIsThePublicOneAndNeverASecret) {
  std::array<std::byte, Key::kBytes> zeros{};
  EXPECT_FALSE(Key::from_bytes(zeros).ok());
  EXPECT_TRUE(Key::none()->is_none());
  EXPECT_FALSE(Key::random()->is_none());
}

TEST(Key, IsEmptyInAForkedChild) {
  Key key = *Key::random();
  pid_t child = fork();
  if (child == 0) _exit(key.is_none() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(key.is_none());
}

TEST(Key, DerivesWhatLabelAndContextSayAndNothingElse) {
  Key key = *Key::random();
  Key other = *Key::random();
  EXPECT_TRUE(same(*key.derive("a", bytes_of("b")), *key.copy()->derive("a", bytes_of("b"))));
  EXPECT_FALSE(same(*key.derive("a", bytes_of("b")), *key.derive("a", bytes_of("c"))));
  EXPECT_FALSE(same(*key.derive("a", bytes_of("b")), *key.derive("ab", bytes_of(""))));
  EXPECT_FALSE(same(*key.derive("a", bytes_of("b")), *other.derive("a", bytes_of("b"))));
  EXPECT_FALSE(same(*key.derive("a", bytes_of("b")), key));
}

TEST(Key, AuthenticatesAsRfc4231Says) {
  // Test case 2 has a shorter key; HMAC pads keys with zeros, so it can be given in 32 bytes.
  std::array<std::byte, Key::kBytes> bytes{};
  std::ranges::copy(bytes_of("Jefe"), bytes.begin());
  Mac mac = Key::from_bytes(bytes)->mac({bytes_of("what do ya want "), bytes_of("for nothing?")});
  std::string hex;
  for (std::byte byte : mac) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(byte));
    hex += digits;
  }
  EXPECT_EQ(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

Identity sample() { return {"job-1", Purpose::kControl, 4, 1, 0}; }

TEST(Identity, IsReadAsItWasWritten) {
  auto bytes = encode(sample());
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*decode_identity(*bytes), sample());
  for (size_t length = 0; length < bytes->size(); ++length) {
    EXPECT_FALSE(decode_identity(std::span(*bytes).first(length)).ok());
  }
  bytes->push_back(std::byte{0});
  EXPECT_FALSE(decode_identity(*bytes).ok());
}

TEST(Identity, CannotBeOfOneselfOrOfAnEndlessJobName) {
  Identity self = sample();
  self.acceptor = self.connector;
  EXPECT_EQ(encode(self).status().code(), Code::kInvalidArgument);
  Identity endless = sample();
  endless.job.assign(65, 'x');
  EXPECT_EQ(encode(endless).status().code(), Code::kInvalidArgument);
}

TEST(Identity, IsOnlyTakenByTheOneItIsAddressedTo) {
  EXPECT_TRUE(check_addressed(sample(), "job-1", 0).ok());
  EXPECT_EQ(check_addressed(sample(), "job-1", 1).code(), Code::kUnauthenticated) << "sent back to its sender";
  EXPECT_EQ(check_addressed(sample(), "job-1", 2).code(), Code::kUnauthenticated);
  EXPECT_EQ(check_addressed(sample(), "job-2", 0).code(), Code::kUnauthenticated);
}

TEST(Identity, GivesEveryPairDirectionAndEpochAKeyOfItsOwn) {
  Key job = *Key::random();
  auto psk = [&](const Identity& identity) { return *derive_psk(job, *encode(identity)); };
  Identity swapped = sample(), later = sample(), purpose = sample();
  std::swap(swapped.connector, swapped.acceptor);
  later.epoch++;
  purpose.purpose = Purpose::kRendezvous;
  for (const Identity& other : {swapped, later, purpose}) EXPECT_FALSE(same(psk(sample()), psk(other)));
  EXPECT_NE(anonymous_member(), anonymous_member());
  EXPECT_EQ(member_text(anonymous_member()), "an unranked process");
}

}  // namespace
}  // namespace horo::net
