#include "cli/check/rank.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "horo/api/horo.h"
#include "horo/base/deadline.h"
#include "horo/base/text.h"
#include "horo/net/poller.h"

namespace horo::cli {

namespace {

constexpr const char* kWords[] = {"ready", "done", "failed", "wrong"};
constexpr uint64_t kMismatchTurn = 5;
constexpr uint64_t kCounts[] = {2, 700, 9000, 70000};

uint64_t now() { return static_cast<uint64_t>(Clock::now().time_since_epoch().count()); }

/// Rank r contributes 16^r, so that a share that is missing or counted twice shows in its own digit.
uint64_t share_of(int rank) { return uint64_t{1} << (4 * rank); }

class CheckRank {
 public:
  CheckRank(const CheckRankOptions& options, horo_engine* engine)
      : options_(options), world_(horo_engine_world(engine)), rank_(horo_engine_rank(engine)) {
    for (int rank = 0; rank < horo_engine_size(engine); ++rank) expected_ += share_of(rank);
  }

  RankWord run() {
    for (uint64_t turn = 0;; ++turn) {
      const bool mismatched = options_.mismatch && turn == kMismatchTurn;
      may_stop_ = !options_.mismatch || turn > kMismatchTurn;
      if (options_.idle && turn > 0) stay_away();
      const auto ended = reduce(kCounts[turn % std::size(kCounts)] + (mismatched && rank_ == 1 ? 1 : 0), mismatched);
      if (ended) return *ended;
      if (turn == 0) say(word(RankWord::Kind::kReady));
      if (stopped_) return word(RankWord::Kind::kDone);
    }
  }

  void say(const RankWord& word) const {
    const std::string line = encode(word) + "\n";
    if (write(options_.report, line.data(), line.size()) < 0) _exit(3);
  }

 private:
  RankWord word(RankWord::Kind kind) const {
    return {.kind = kind, .at = now(), .operations = operations_, .mismatches = mismatches_, .message = {}};
  }

  /// The last element carries rank 0's wish to stop, so that all stop after the same operation.
  std::optional<RankWord> reduce(uint64_t count, bool mismatched) {
    std::vector<uint64_t> values(count, share_of(rank_));
    values.back() = rank_ == 0 && wants_to_stop() ? 1 : 0;
    const uint64_t wish = values.back();
    horo_status* status = horo_allreduce(world_, values.data(), values.data(), count, HORO_U64, HORO_SUM);
    if (status != nullptr) {
      const bool intact = values.back() == wish && std::all_of(values.begin(), values.end() - 1,
                                                               [&](uint64_t v) { return v == share_of(rank_); });
      return failed(status, intact, mismatched);
    }
    if (!std::all_of(values.begin(), values.end() - 1, [&](uint64_t v) { return v == expected_; })) {
      return word(RankWord::Kind::kWrong);
    }
    ++operations_;
    stopped_ = values.back() != 0;
    return std::nullopt;
  }

  std::optional<RankWord> failed(horo_status* status, bool intact, bool mismatched) {
    RankWord ended = word(RankWord::Kind::kFailed);
    ended.code = horo_status_code(status);
    ended.operation = horo_status_operation(status);
    ended.intact = intact;
    ended.lost.resize(horo_status_lost(status, nullptr, 0));
    horo_status_lost(status, ended.lost.data(), ended.lost.size());
    ended.message = horo_status_message(status);
    horo_status_free(status);
    if (!mismatched || ended.code != HORO_MISMATCH || !intact) return ended;
    ++mismatches_;
    return std::nullopt;
  }

  /// Until the stop pipe ends. Everybody but rank 0 has none, and goes on to wait in the operation.
  void stay_away() const {
    if (options_.stop < 0) return;
    (void)net::wait_ready(options_.stop, net::Interest::kRead, Deadline(), "the end of the self-test").ok();
  }

  bool wants_to_stop() const {
    char byte = 0;
    return may_stop_ && options_.stop >= 0 && read(options_.stop, &byte, 1) == 0;
  }

  const CheckRankOptions options_;
  horo_group* world_;
  int rank_;
  uint64_t expected_ = 0;
  uint64_t operations_ = 0;
  uint64_t mismatches_ = 0;
  bool may_stop_ = true;
  bool stopped_ = false;
};

}  // namespace

std::string encode(const RankWord& word) {
  std::ostringstream out;
  out << kWords[static_cast<int>(word.kind)] << ' ' << word.at << ' ' << word.operations << ' ' << word.mismatches
      << ' ' << word.code << ' ' << word.operation << ' ' << word.intact << ' ' << word.lost.size();
  for (int rank : word.lost) out << ' ' << rank;
  std::string message = word.message;
  std::replace(message.begin(), message.end(), '\n', ' ');
  out << ' ' << message;
  return std::move(out).str();
}

std::optional<RankWord> decode_word(std::string_view line) {
  std::istringstream in{std::string(line)};
  std::string kind;
  RankWord word;
  size_t lost = 0;
  in >> kind >> word.at >> word.operations >> word.mismatches >> word.code >> word.operation >> word.intact >> lost;
  const auto found = std::find(std::begin(kWords), std::end(kWords), kind);
  if (!in || found == std::end(kWords) || lost > 1024) return std::nullopt;
  word.kind = static_cast<RankWord::Kind>(found - std::begin(kWords));
  word.lost.resize(lost);
  for (int& rank : word.lost) in >> rank;
  if (!in) return std::nullopt;
  std::getline(in >> std::ws, word.message);
  return word;
}

int run_check_rank(const CheckRankOptions& options) {
  if (options.stop >= 0) fcntl(options.stop, F_SETFL, O_NONBLOCK);
  horo_engine* engine = nullptr;
  const horo_engine_options start = HORO_ENGINE_OPTIONS_INIT;
  if (horo_status* status = horo_engine_start(&start, &engine)) {
    RankWord word{
        .kind = RankWord::Kind::kFailed, .at = now(), .code = horo_status_code(status), .lost = {}, .message = {}};
    word.message = horo_status_message(status);
    horo_status_free(status);
    const std::string line = encode(word) + "\n";
    return write(options.report, line.data(), line.size()) > 0 ? 1 : 3;
  }
  CheckRank rank(options, engine);
  const RankWord word = rank.run();
  rank.say(word);
  horo_engine_destroy(engine);
  return word.kind == RankWord::Kind::kWrong ? 1 : 0;
}

}  // namespace horo::cli
