// What the user typed: subcommands and flags, and words for what is wrong with them.
#pragma once

namespace horo::cli {

/// The exit code: 0, 1 when something did not hold or failed, 2 when the command line is wrong.
int run(int argc, char** argv);

}  // namespace horo::cli
