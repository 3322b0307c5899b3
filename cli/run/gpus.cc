#include "cli/run/gpus.h"

#include <filesystem>
#include <sstream>
#include <vector>

#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

std::vector<std::string> names_of(const GpuTerms& terms, size_t needed) {
  std::vector<std::string> names;
  std::istringstream words(terms.visible);
  for (std::string word; std::getline(words, word, ',');) {
    if (!word.empty()) names.push_back(word);
  }
  if (!terms.visible.empty()) return names;
  const size_t count = terms.present > 0 ? static_cast<size_t>(terms.present) : needed;
  for (size_t i = 0; i < count; ++i) names.push_back(text(i));
  return names;
}

}  // namespace

Result<std::string> gpus_of(const GpuTerms& terms, int local_rank, int ranks) {
  const auto each = static_cast<size_t>(terms.each);
  const size_t needed = each * static_cast<size_t>(ranks);
  const std::vector<std::string> names = names_of(terms, needed);
  if (names.size() < (terms.share ? each : needed)) {
    return Status(Code::kInvalidArgument,
                  text("--gpus-per-rank ", each, " for ", ranks, ranks == 1 ? " rank" : " ranks", " of a host needs ",
                       terms.share ? each : needed, " GPUs, and it has ", names.size(),
                       terms.visible.empty() ? "" : text(" (CUDA_VISIBLE_DEVICES=", terms.visible, ")"),
                       terms.share ? "" : "; start fewer ranks there, or let them share with --share-gpus"));
  }
  std::string value;
  for (size_t i = 0; i < each; ++i) {
    value += text(i == 0 ? "" : ",", names[(static_cast<size_t>(local_rank) * each + i) % names.size()]);
  }
  return value;
}

int count_gpus() {
  std::error_code ignored;
  int count = 0;
  for (const auto& one : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    count += one.path().empty() ? 0 : 1;
  }
  return count;
}

}  // namespace horo::cli::launch
