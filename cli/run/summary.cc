#include "cli/run/summary.h"

#include <signal.h>

#include <cstring>

#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

std::string signal_text(int number) { return text("signal ", number, " (", strsignal(number), ")"); }

std::string host_of(int rank, const JobLife& life) {
  const auto host = life.host_of(rank);
  return host ? life.host_name(*host) : "an unknown host";
}

void add_rank(std::vector<std::string>& lines, const JobLife::Failure& failure, const JobLife& life,
              const std::vector<std::string>& tail) {
  const int rank = failure.rank.rank;
  if (!failure.rank.error.empty()) {
    lines.push_back(text("rank ", rank, " on ", host_of(rank, life), " did not start: ", failure.rank.error));
    return;
  }
  lines.push_back(text("rank ", rank, " on ", host_of(rank, life), " failed first: ", how(failure.rank),
                       tail.empty() ? "; it wrote nothing" : ". Its last lines:"));
  for (const std::string& line : tail) lines.push_back(text("  [", rank, "]", line));
}

}  // namespace

std::string how(const RankEnd& end) { return end.signal != 0 ? signal_text(end.signal) : text("exit code ", end.code); }

std::vector<std::string> summary(const JobLife& life, const std::function<std::vector<std::string>(int rank)>& tail) {
  std::vector<std::string> lines;
  if (!life.failure()) return lines;
  const JobLife::Failure& failure = *life.failure();
  using Kind = JobLife::Failure::Kind;
  if (failure.kind == Kind::kRank) {
    add_rank(lines, failure, life, tail(failure.rank.rank));
    // The same command is missing on every rank: once is enough.
    if (!failure.rank.error.empty()) return lines;
  } else if (failure.kind == Kind::kSignal) {
    lines.push_back(text("ended by ", signal_text(failure.signal)));
  } else {
    lines.push_back(failure.words);
  }
  for (const RankEnd& end : life.also_failed()) {
    lines.push_back(text("rank ", end.rank, " on ", host_of(end.rank, life), " failed too: ", how(end)));
  }
  return lines;
}

}  // namespace horo::cli::launch
