#include "cli/bench/rounds.h"

#include <algorithm>
#include <set>

#include "cli/bench/quiet.h"
#include "cli/bench/statistics.h"

#include "horo/base/text.h"

namespace horo::bench {

namespace {

constexpr double kTurnLimitSeconds = 180;
constexpr uint64_t kBatchUpTo = 64 << 10;
constexpr int kMostIterations = 2000;
constexpr int kFewestIterations = 3;
constexpr int kShortestBatch = 16;
constexpr int kLongestBatch = 65536;

Command command_of(const BenchOptions& options, const Lane& lane, uint64_t count) {
  Command command;
  command.op = lane.op;
  command.dtype = lane.dtype;
  command.count = count;
  command.in_place = lane.in_place;
  command.library = lane.library;
  command.seed = options.seed;
  return command;
}

bool is_fatal(const Lane& lane, const Status& status) {
  return lane.contender->name() == "horo" && status.code() != Code::kUnavailable;
}

class SizeRun {
 public:
  SizeRun(const BenchOptions& options, const std::vector<Lane>& lanes, std::set<const Contender*>& broken,
          uint64_t bytes)
      : options_(options), broken_(broken), count_(whole_count(options.op, bytes, options.dtype, options.ranks)) {
    result_.asked_bytes = bytes;
    result_.bytes = options.op == Op::kBarrier ? 0 : count_ * size_of(options.dtype);
    result_.wanted = options.rounds;
    for (const Lane& lane : lanes) {
      result_.lanes.emplace_back();
      result_.lanes.back().lane = &lane;
      result_.lanes.back().bytes = options.op == Op::kBarrier ? 0 : count_ * size_of(lane.dtype);
    }
  }

  Result<SizeResult> run(const Progress& progress) {
    for (LaneResult& lane : result_.lanes) HORO_TRY(calibrate(lane));
    int quiet = 0;
    // Disturbed rounds are repeated, up to as many again.
    for (int round = 0; round < 2 * options_.rounds && quiet < options_.rounds; ++round) {
      progress(text(name(options_.op), " ", bytes_text(result_.asked_bytes), ": round ", round + 1, " of ",
                    options_.rounds + round - quiet));
      bool disturbed = false;
      for (LaneResult& lane : result_.lanes) {
        HORO_TRY(take_turn(lane, progress));
        disturbed = disturbed || (lane.left_out.empty() && lane.turns.back().disturbed);
      }
      result_.disturbed.push_back(disturbed);
      ++result_.rounds;
      quiet += disturbed ? 0 : 1;
    }
    return std::move(result_);
  }

 private:
  Status leave_out(LaneResult& lane, const Status& why) {
    if (is_fatal(*lane.lane, why)) return why;
    if (why.code() != Code::kUnavailable) broken_.insert(lane.lane->contender);
    lane.left_out = why.message();
    return {};
  }

  Result<Sample> ask(const LaneResult& lane, Mode mode, int iterations) {
    Command command = command_of(options_, *lane.lane, count_);
    command.mode = mode;
    command.iterations = iterations;
    return lane.lane->contender->measure(command, Deadline::after_seconds(kTurnLimitSeconds));
  }

  /// Warms up, and finds how many operations fill the time of a turn.
  Status calibrate(LaneResult& lane) {
    if (broken_.count(lane.lane->contender) != 0) {
      lane.left_out = "it failed at an earlier size";
      return {};
    }
    const Time start = Clock::now();
    auto sample = ask(lane, Mode::kLatency, kFewestIterations);
    if (!sample.ok()) return leave_out(lane, sample.status());
    const double each = std::chrono::duration<double>(Clock::now() - start).count() / (kFewestIterations + 1);
    lane.iterations = std::clamp(static_cast<int>(options_.seconds / each), kFewestIterations, kMostIterations);
    if (result_.bytes > kBatchUpTo || lane.lane->is_limit) return {};
    return calibrate_batch(lane);
  }

  /// What an operation of a row costs is learned from rows that get longer: after a barrier it may cost many times as
  /// much, and a short row is mostly the time until the scheduler has let all ranks begin.
  Status calibrate_batch(LaneResult& lane) {
    const double wanted = options_.seconds / kBatches;
    for (lane.batch = kShortestBatch; lane.batch < kLongestBatch; lane.batch *= 4) {
      auto sample = ask(lane, Mode::kBatch, lane.batch);
      if (!sample.ok()) return leave_out(lane, sample.status());
      const double each = std::max(median(sample->microseconds), 0.05) * 1e-6;
      if (each * lane.batch < wanted / 8) continue;
      lane.batch = std::clamp(static_cast<int>(wanted / each), kShortestBatch, kLongestBatch);
      break;
    }
    return {};
  }

  Status take_turn(LaneResult& lane, const Progress& progress) {
    if (!lane.left_out.empty()) return {};
    Turn turn;
    const QuietWatch watch;
    auto latency = ask(lane, Mode::kLatency, lane.iterations);
    if (!latency.ok()) return leave_out(lane, latency.status());
    turn.latency = std::move(*latency);
    if (lane.batch > 0) {
      auto batch = ask(lane, Mode::kBatch, lane.batch);
      if (!batch.ok()) return leave_out(lane, batch.status());
      turn.batch = std::move(*batch);
    }
    const QuietWatch::Finding finding = watch.look(turn.latency.total_cpu + turn.batch.total_cpu);
    turn.disturbed = finding.disturbed();
    if (turn.disturbed) {
      progress(text(bytes_text(result_.asked_bytes), ": ", lane.lane->label, ": disturbed: in ", finding.wall,
                    " s something else used ", finding.others, " s (+- ", finding.doubt, " s), ", finding.stolen,
                    " s were stolen"));
      result_.taken = std::max(result_.taken, finding.others / finding.wall);
      result_.stolen = std::max(result_.stolen, finding.stolen / finding.wall);
    }
    lane.turns.push_back(std::move(turn));
    return {};
  }

  const BenchOptions& options_;
  std::set<const Contender*>& broken_;
  uint64_t count_;
  SizeResult result_;
};

}  // namespace

std::vector<size_t> SizeResult::counted() const {
  std::vector<size_t> quiet, all;
  for (size_t i = 0; i < disturbed.size(); ++i) {
    all.push_back(i);
    if (!disturbed[i]) quiet.push_back(i);
  }
  return 2 * quiet.size() >= static_cast<size_t>(wanted) ? quiet : all;
}

Result<std::vector<SizeResult>> measure_all(const BenchOptions& options, const std::vector<Lane>& lanes,
                                            const Progress& progress) {
  std::vector<SizeResult> results;
  std::set<const Contender*> broken;
  const std::vector<uint64_t> sizes = options.op == Op::kBarrier ? std::vector<uint64_t>{0} : options.sizes;
  for (uint64_t bytes : sizes) {
    HORO_ASSIGN(SizeResult result, SizeRun(options, lanes, broken, bytes).run(progress));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace horo::bench
