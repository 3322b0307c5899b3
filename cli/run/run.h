// `horo run`, also called horovodrun.
#pragma once

#include <string>
#include <vector>

namespace horo::cli::launch {

/// `words` are those behind "run". The exit code: 2 when they are wrong, else that of the job (launcher.h).
int run_command(const std::vector<std::string>& words);

/// The name under which Horovod's launcher is known: a program of that name is `horo run`.
inline constexpr const char* kLegacyName = "horovodrun";

}  // namespace horo::cli::launch
