#include "cli/run/results.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <nlohmann/json.hpp>

#include "horo/base/text.h"
#include "horo/net/system_error.h"

namespace horo::cli::launch {

namespace {

constexpr int kOnlyThisUser = 0600;

Result<net::UniqueFd> create(const std::string& path) {
  net::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kOnlyThisUser));
  if (file) return file;
  return Status(Code::kInvalidArgument, net::system_error(text("--result-folder: making ", path), errno).message());
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

Result<Results> Results::open(const std::string& folder, int ranks) {
  Results results(folder);
  for (int rank = 0; rank < ranks; ++rank) {
    HORO_ASSIGN(net::UniqueFd file, create(text(folder, "/rank.", rank)));
    results.files_.push_back({std::move(file)});
  }
  return results;
}

void Results::add_rank(int rank) {
  if (static_cast<size_t>(rank) >= files_.size()) files_.resize(static_cast<size_t>(rank) + 1);
  auto file = create(text(folder_, "/rank.", rank));
  RankFile& place = files_[static_cast<size_t>(rank)];
  place.lost = !file.ok();
  if (file.ok()) place.file = std::move(*file);
}

void Results::write(int rank, std::string_view bytes) {
  if (rank < 0 || static_cast<size_t>(rank) >= files_.size()) return;
  if (std::find(returned_.begin(), returned_.end(), rank) == returned_.end()) returned_.push_back(rank);
  RankFile& to = files_[static_cast<size_t>(rank)];
  if (!to.lost && !write_all(to.file.get(), bytes)) to.lost = true;
}

void Results::finish(const JobLife& life, const std::function<std::vector<std::string>(int rank)>& tail) {
  nlohmann::json outcome{{"code", life.exit_code()}, {"first", nullptr}, {"returned", returned_}};
  const auto& failure = life.failure();
  if (failure && failure->kind == JobLife::Failure::Kind::kRank) outcome["first"] = failure->rank.rank;
  outcome["ranks"] = nlohmann::json::array();
  for (const RankEnd& end : ends_) {
    outcome["ranks"].push_back({{"rank", end.rank},
                                {"code", end.code},
                                {"signal", end.signal},
                                {"asked", end.asked},
                                {"error", end.error},
                                {"lost", files_[static_cast<size_t>(end.rank)].lost},
                                {"tail", end.failed() ? tail(end.rank) : std::vector<std::string>()}});
  }
  const auto file = create(folder_ + "/outcome.json");
  // Who reads it misses it if this fails, and says so.
  using nlohmann::json;
  if (file.ok()) write_all(file->get(), outcome.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace horo::cli::launch
