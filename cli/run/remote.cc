#include "cli/run/remote.h"

#include <sstream>
#include <string_view>

#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

constexpr int kSshFailed = 255;
constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;

bool has(const std::string& said, std::string_view words) { return said.find(words) != said.npos; }

std::string advice(const std::string& host, const std::string& said) {
  if (has(said, "Host key verification failed")) {
    return text("; its host key is not known or has changed: connect once by hand (ssh ", host, ") and check it");
  }
  if (has(said, "Permission denied")) return text("; ssh ", host, " must work without a password (a key, an agent)");
  if (has(said, "Could not resolve hostname")) return "; check the name";
  if (has(said, "Connection refused")) return "; is sshd running there, and at this port (-p)?";
  return {};
}

}  // namespace

std::string quoted(const std::string& word) {
  std::string out = "'";
  for (char letter : word) out += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return out + "'";
}

std::vector<std::string> ssh_words(const SshOptions& options, const std::string& host, const std::string& own_path) {
  std::vector<std::string> words;
  std::istringstream command(options.command);
  for (std::string word; command >> word;) words.push_back(word);
  const auto add = [&](const std::vector<std::string>& more) { words.insert(words.end(), more.begin(), more.end()); };
  // No terminal, no questions; a host that vanishes is noticed within half a minute.
  add({"-T", "-x", "-o", "BatchMode=yes", "-o", text("ConnectTimeout=", options.connect_timeout_seconds)});
  add({"-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"});
  if (options.port > 0) add({"-p", text(options.port)});
  if (!options.identity_file.empty()) add({"-i", options.identity_file});
  // The same place as here, or wherever the PATH there leads. The login shell may be any: sh gets it in one word.
  const std::string script = text("p=", quoted(own_path), "; [ -x \"$p\" ] || p=horo; exec \"$p\" agent");
  add({"--", host, text("exec /bin/sh -c ", quoted(script))});
  return words;
}

std::string explain_ssh(int code, const std::string& host, const std::string& said) {
  const std::string words = said.empty() ? "" : text(": ", said);
  if (code == kSshFailed) return text("cannot be reached through ssh", words, advice(host, said));
  if (code == kNotFound) {
    return text("horo was not found there", words, "; install it at the same path as here, or put it into the PATH");
  }
  if (code == kNotExecutable) return text("horo cannot be run there", words, "; is it built for that machine?");
  return text("its agent ended with code ", code, words);
}

}  // namespace horo::cli::launch
