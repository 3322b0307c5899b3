// The agent of one host: starts its ranks, watches them, passes on what they write, and ends everything that they
// started when the launcher says so or is gone.
//
// The launcher's end of the duct is its life line: end of file there means that the launcher is gone, and the job ends
// within the grace period. The agent is a subreaper: whatever a rank leaves behind becomes its child, and it does not
// end before there is none. Ranks get SIGKILL from the kernel if the agent itself is killed.
#pragma once

namespace horo::cli::launch {

/// `horo agent`: messages on standard input and output. The exit code: 0 when all was orderly.
int run_agent();

}  // namespace horo::cli::launch
