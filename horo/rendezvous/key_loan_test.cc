#include "horo/rendezvous/key_loan.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "horo/base/text.h"
#include "horo/rendezvous/knobs.h"

namespace horo::rendezvous {
namespace {

Config config_of(const Environment::Variables& variables) { return *Config::read({kKnobs}, Environment(variables)); }

/// A pipe with a key in it, as a launcher hands it over: its number is inherited by what is started.
int pipe_with_key(std::byte letter) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const std::vector<std::byte> secret(net::Key::kBytes, letter);
  EXPECT_EQ(write(ends[1], secret.data(), secret.size()), static_cast<ssize_t>(secret.size()));
  close(ends[1]);
  return ends[0];
}

TEST(KeyLoan, OfADescriptorIsClosedOnceTheJobIsJoined) {
  const int fd = pipe_with_key(std::byte{7});
  auto loan = KeyLoan::take(config_of({{"HORO_KEY_FD", text(fd)}}));
  ASSERT_TRUE(loan.ok()) << loan.status();
  EXPECT_FALSE(loan->key()->is_none());
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC) << "the number stays taken, and no child inherits it";
  loan->keep();
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

TEST(KeyLoan, IsThereAgainAfterAnAttemptThatFailed) {
  const int fd = pipe_with_key(std::byte{9});
  const Config config = config_of({{"HORO_KEY_FD", text(fd)}});
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto loan = KeyLoan::take(config);
    ASSERT_TRUE(loan.ok()) << loan.status();
    EXPECT_EQ(loan->key()->secret()[31], std::byte{9});
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  auto last = KeyLoan::take(config);
  last->keep();
  EXPECT_FALSE(KeyLoan::take(config).ok()) << "it was used";
}

TEST(KeyLoan, OfAFileIsReadAsOftenAsOneLikes) {
  const std::string path = testing::TempDir() + text("horo-key-", getpid());
  const auto made = net::Key::random();
  ASSERT_TRUE(made->save(path).ok());
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto loan = KeyLoan::take(config_of({{"HORO_KEY_FILE", path}}));
    ASSERT_TRUE(loan.ok()) << loan.status();
    EXPECT_TRUE(std::equal(made->secret().begin(), made->secret().end(), loan->key()->secret().begin()));
  }
  unlink(path.c_str());
}

TEST(KeyLoan, OfBothPlacesAtOnceIsRefused) {
  const int fd = pipe_with_key(std::byte{1});
  const auto refused = KeyLoan::take(config_of({{"HORO_KEY_FD", text(fd)}, {"HORO_KEY_FILE", "/some/file"}}));
  EXPECT_NE(refused.status().message().find("both set"), std::string::npos) << refused.status();
  EXPECT_EQ(fcntl(fd, F_GETFD), -1) << "it is taken in any case";
}

TEST(KeyLoan, IsThePublicKeyWhenNothingIsSet) { EXPECT_TRUE(KeyLoan::take(config_of({}))->key()->is_none()); }

}  // namespace
}  // namespace horo::rendezvous
