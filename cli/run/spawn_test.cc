#include "cli/run/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run/capture.h"

#include "horo/base/text.h"

namespace horo::cli::launch {
namespace {

int code_of(const Child& child) {
  int status = 0;
  waitpid(child.pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

SpawnOptions shell(const std::string& script) {
  SpawnOptions options;
  options.program = "/bin/sh";
  options.arguments = {"sh", "-c", script};
  return options;
}

TEST(Spawn, GivesTheChildASessionAndTheUsualSignals) {
  sigset_t block;
  sigemptyset(&block);
  sigaddset(&block, SIGTERM);
  sigset_t old;
  sigprocmask(SIG_BLOCK, &block, &old);
  // Field 6 of stat is the session; the mask of blocked signals has no bit.
  auto child =
      spawn(shell("read -r a b c d e session rest < /proc/$$/stat; [ \"$session\" = $$ ] && "
                  "grep -q 'SigBlk:.0*$' /proc/self/status"));
  sigprocmask(SIG_SETMASK, &old, nullptr);
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(code_of(*child), 0);
  EXPECT_EQ(child->start_error(), 0);
}

TEST(Spawn, ChildrenKeepOneDescriptorAndNoOther) {
  auto pipe = Pipe::create();
  ASSERT_TRUE(pipe.ok());
  ASSERT_EQ(write(pipe->to.get(), "x", 1), 1);
  const net::UniqueFd other(open("/dev/null", O_RDONLY | O_CLOEXEC));
  // What this process itself was started with (the descriptors of a lock, say) is not counted.
  SpawnOptions options =
      shell(text("for fd in ", other.get(), " ", pipe->from.get(), " ", pipe->to.get(),
                 "; do [ ! -e /proc/$$/fd/$fd ] || exit 1; done; ", "[ \"$(head -c 1 /proc/self/fd/40)\" = x ]"));
  options.kept = {{pipe->from.get(), 40}};
  options.environment = {{"PATH", "/usr/bin:/bin"}};
  auto child = spawn(options);
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(code_of(*child), 0);
}

TEST(Spawn, TellsWhyAProgramCouldNotBeRun) {
  SpawnOptions options = shell("");
  options.program = "/no/such/program";
  auto child = spawn(options);
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(code_of(*child), 127);
  EXPECT_EQ(child->start_error(), ENOENT);
  options = shell("exit 127");
  child = spawn(options);
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(code_of(*child), 127);
  EXPECT_EQ(child->start_error(), 0);
}

TEST(FindProgram, LooksThroughThePath) {
  EXPECT_EQ(*find_program("sh", "/nowhere:/bin"), "/bin/sh");
  EXPECT_EQ(*find_program("./x", "/bin"), "./x");
  const auto missing = find_program("no-such-program", "/bin");
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_NE(missing.status().message().find("'no-such-program'"), std::string::npos);
}

TEST(Capture, TakesWhatIsPrintedAndSaysHowItFailed) {
  EXPECT_EQ(*capture({"sh", "-c", "echo a; echo b"}, Deadline::after_seconds(30)), "a\nb\n");
  EXPECT_NE(capture({"sh", "-c", "exit 3"}, Deadline::after_seconds(30)).status().message().find("code 3"),
            std::string::npos);
  EXPECT_EQ(capture({"tail", "-f", "/dev/null"}, Deadline::after_seconds(0.05)).status().code(), Code::kTimeout);
}

}  // namespace
}  // namespace horo::cli::launch
