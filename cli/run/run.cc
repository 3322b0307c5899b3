#include "cli/run/run.h"

#include <iostream>

#include "cli/run/check_build.h"
#include "cli/run/launcher.h"
#include "cli/run/mpi_command.h"
#include "cli/run/options.h"

#include "horo/base/build.h"
#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

constexpr int kWrongCommandLine = 2;

int refuse(const Status& status) {
  std::cerr << "horo run: " << status.message() << "\nRun it with --help for what there is.\n";
  return kWrongCommandLine;
}

}  // namespace

int run_command(const std::vector<std::string>& words) {
  auto flags = parse_flags(words);
  if (!flags.ok()) return refuse(flags.status());
  if (!flags->help.empty()) {
    std::cout << flags->help
              << "\nEverything from the first word that is no flag is the command: horo run -np 2 python x.py\n";
    return 0;
  }
  if (flags->is_on("--version")) {
    std::cout << build_info().version << '\n';
    return 0;
  }
  if (flags->is_on("--check-build")) {
    std::cout << check_build_text() << std::flush;
    return 0;
  }
  const auto options = make_options(std::move(*flags), Environment::of_process());
  if (!options.ok()) return refuse(options.status());
  if (!options->mpi.wanted) return run_job(*options);
  for (const std::string& note : options->notes) std::cerr << "horo run: " << note << '\n';
  return refuse(run_through_mpi(*options, Environment::of_process()));
}

}  // namespace horo::cli::launch
