#include "cli/timeline/flags.h"

#include <iostream>

#include "cli/timeline/merge.h"

namespace horo::cli::timeline {

void Flags::add_to(CLI::App& command) {
  command.require_subcommand(1);
  CLI::App* merge = command.add_subcommand(
      "merge",
      "Make one trace of several ranks' timelines, with one process per rank.\n\n"
      "Ranks on one host read the same clock and fit exactly. Clocks of different hosts are aligned by the operations\n"
      "that the ranks ran together: no rank leaves one before all have entered it. What is printed for each rank is "
      "how\n"
      "far off its times can be at most, whatever the network did; the error is usually a small part of that. Files\n"
      "that are still being written, or whose rank was killed, are read as far as they go.");
  merge->add_option("out", out, "The file to write")->required();
  merge->add_option("files", files, "The ranks' timelines")->required()->expected(-1);
}

Status run(const Flags& flags) {
  HORO_ASSIGN(MergeSummary summary, merge(flags.out, flags.files));
  for (const std::string& sentence : summary.ranks) std::cout << sentence << '\n';
  std::cout << summary.records << " records in " << flags.out;
  if (summary.skipped > 0) std::cout << "; " << summary.skipped << " lines were cut off and left out";
  std::cout << '\n';
  return {};
}

}  // namespace horo::cli::timeline
