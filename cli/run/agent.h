// The agent of one host: starts its ranks, watches them, passes on what they write, and ends everything that they
// started when the launcher says so or is gone.
//
// The launcher's end of the duct is its life line: end of file there means that the launcher is gone, and the job ends
// within the grace period. An elastic job goes on instead: nobody enters any more, what ranks write goes to their files
// if there are any, and the agent ends with its last rank. If only the way to the launcher broke, though, the launcher
// has written this host off, and its ranks end. The agent is a subreaper: whatever a rank leaves behind becomes its
// child, and it does not end before there is none. Ranks get SIGKILL from the kernel if the agent itself is killed.
#pragma once

#include <string>
#include <vector>

namespace horo::cli::launch {

/// `horo agent [N]`: messages on standard input and output; descriptor N is for words to the user when the launcher is
/// gone. The exit code: 0 when all was orderly.
int run_agent(const std::vector<std::string>& words);

}  // namespace horo::cli::launch
