#include "cli/run/remote.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace horo::cli::launch {
namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST(SshWords, ChecksHostKeysAsConfiguredAndAsksNothing) {
  const auto words = ssh_words({}, "node1", "/opt/horo");
  EXPECT_EQ(words.front(), "ssh");
  EXPECT_TRUE(contains(words, "BatchMode=yes"));
  for (const std::string& word : words) EXPECT_EQ(word.find("StrictHostKeyChecking"), std::string::npos);
  EXPECT_EQ(words[words.size() - 3], "--");
  EXPECT_EQ(words[words.size() - 2], "node1");
}

TEST(SshWords, TakesPortIdentityAndProgram) {
  SshOptions options;
  options.command = "ssh -F my.config";
  options.port = 2222;
  options.identity_file = "key";
  const auto words = ssh_words(options, "node1", "/opt/horo");
  EXPECT_EQ(words[1], "-F");
  EXPECT_EQ(words[2], "my.config");
  EXPECT_TRUE(contains(words, "2222"));
  EXPECT_TRUE(contains(words, "key"));
}

TEST(SshWords, QuotesAnyPath) {
  EXPECT_EQ(quoted("a b"), "'a b'");
  EXPECT_EQ(quoted("it's"), "'it'\\''s'");
}

TEST(SshTroubles, AreExplained) {
  EXPECT_NE(explain_ssh(255, "b", "Host key verification failed.").find("connect once by hand (ssh b)"),
            std::string::npos);
  EXPECT_NE(explain_ssh(255, "b", "Permission denied (publickey).").find("without a password"), std::string::npos);
  EXPECT_NE(explain_ssh(255, "b", "connect to host b port 22: Connection refused").find("sshd"), std::string::npos);
  EXPECT_NE(explain_ssh(127, "b", "sh: 1: horo: not found").find("not found there"), std::string::npos);
  EXPECT_NE(explain_ssh(3, "b", "").find("code 3"), std::string::npos);
}

}  // namespace
}  // namespace horo::cli::launch
