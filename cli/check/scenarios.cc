#include "cli/check/scenarios.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <random>

#include "cli/bench/statistics.h"
#include "cli/check/job.h"
#include "cli/table.h"

#include "horo/api/horo.h"
#include "horo/base/text.h"
#include "horo/net/poller.h"
#include "horo/net/socket.h"

namespace horo::cli {

namespace {

constexpr double kHangSeconds = 10;  // What takes longer counts as a hang.
constexpr int kStrangers = 300;

using Random = std::mt19937_64;
/// What did not hold; empty when all did.
using Scenario = std::function<std::string(Random& random, ScenarioResult& result)>;

int pick(Random& random, int below) { return std::uniform_int_distribution<int>(0, below - 1)(random); }

/// Lets the job run on for a random time, so that the blow falls into any phase of any operation.
void let_run(Random& random, int most_milliseconds) {
  const Deadline until = Deadline::after(std::chrono::microseconds(pick(random, most_milliseconds * 1000)));
  while (!until.expired()) (void)net::poll_many({}, until).ok();
}

std::string complaint_of(int rank, const RankWord& word, int victim, uint64_t operation) {
  if (word.kind == RankWord::Kind::kWrong) return text("rank ", rank, " got a wrong sum");
  if (word.kind != RankWord::Kind::kFailed) return text("rank ", rank, " did not notice the loss");
  if (word.code != HORO_PEER_LOST) return text("rank ", rank, " ended with: ", word.message);
  if (std::find(word.lost.begin(), word.lost.end(), victim) == word.lost.end()) {
    return text("rank ", rank, " does not name rank ", victim, ": ", word.message);
  }
  if (!word.intact) return text("rank ", rank, ": the failed operation changed its input");
  if (word.operation != operation) {
    return text("rank ", rank, " failed in operation ", word.operation, ", another one in ", operation);
  }
  return {};
}

/// All but the victim must fail alike.
std::string hear_survivors(CheckJob& job, int victim, uint64_t blow, ScenarioResult& result) {
  const Deadline deadline = Deadline::after_seconds(kHangSeconds);
  uint64_t operation = 0;
  double last_ms = 0;
  for (int rank = 0; rank < job.size(); ++rank) {
    if (rank == victim) continue;
    const auto word = job.next_word(rank, deadline);
    if (!word.ok()) return text("rank ", rank, ": ", word.status().to_string());
    if (operation == 0) operation = word->operation;
    std::string complaint = complaint_of(rank, *word, victim, operation);
    if (!complaint.empty()) return complaint;
    result.operations += word->operations;
    if (word->at > blow) last_ms = std::max(last_ms, static_cast<double>(word->at - blow) * 1e-6);
  }
  result.noticed_ms.push_back(last_ms);
  return {};
}

uint64_t now() { return static_cast<uint64_t>(Clock::now().time_since_epoch().count()); }

Scenario kill_over(const std::string& transport) {
  return [transport](Random& random, ScenarioResult& result) -> std::string {
    auto job = CheckJob::start({.transport = transport});
    if (!job.ok()) return job.status().to_string();
    const int victim = pick(random, (*job)->size());
    let_run(random, 20);
    const uint64_t blow = now();
    (*job)->signal(victim, SIGKILL);
    return hear_survivors(**job, victim, blow, result);
  };
}

std::string freeze(Random& random, ScenarioResult& result) {
  auto job = CheckJob::start({});
  if (!job.ok()) return job.status().to_string();
  const int victim = pick(random, (*job)->size());
  let_run(random, 20);
  const uint64_t blow = now();
  (*job)->signal(victim, SIGSTOP);
  std::string complaint = hear_survivors(**job, victim, blow, result);
  (*job)->signal(victim, SIGCONT);
  if (!complaint.empty()) return complaint;
  const auto word = (*job)->next_word(victim, Deadline::after_seconds(kHangSeconds));
  if (!word.ok()) return text("the thawed rank: ", word.status().to_string());
  if (word->kind == RankWord::Kind::kFailed && word->code == HORO_EVICTED) return {};
  return text("the thawed rank was not told that it is out: ", encode(*word));
}

/// Every rank ends in peace, with as many mismatches as were made.
std::string hear_all_done(CheckJob& job, uint64_t mismatches, ScenarioResult& result) {
  job.stop();
  const Deadline deadline = Deadline::after_seconds(kHangSeconds);
  for (int rank = 0; rank < job.size(); ++rank) {
    const auto word = job.next_word(rank, deadline);
    if (!word.ok()) return text("rank ", rank, ": ", word.status().to_string());
    if (word->kind == RankWord::Kind::kWrong) return text("rank ", rank, " got a wrong sum");
    if (word->kind != RankWord::Kind::kDone) return text("rank ", rank, " failed: ", word->message);
    if (word->mismatches != mismatches) return text("rank ", rank, " did not notice the mismatch");
    result.operations += word->operations;
  }
  return {};
}

std::string mismatch(Random& random, ScenarioResult& result) {
  auto job = CheckJob::start({.mismatch = true});
  if (!job.ok()) return job.status().to_string();
  let_run(random, 20);
  return hear_all_done(**job, 1, result);
}

/// Random bytes, or the beginning of something that looks right and ends or goes wrong.
std::vector<std::byte> garbage(Random& random) {
  std::vector<std::byte> bytes(static_cast<size_t>(pick(random, 600)) + 1);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  constexpr unsigned char kClientHello[] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03};
  if (random() % 2 == 0) {
    for (size_t i = 0; i < std::min(bytes.size(), std::size(kClientHello)); ++i) {
      bytes[i] = static_cast<std::byte>(kClientHello[i]);
    }
  }
  return bytes;
}

/// One stranger: connects, talks nonsense, and hangs up unless `lingering` keeps it.
void knock(const net::Address& door, Random& random, ScenarioResult& result, std::vector<net::Socket>& lingering) {
  auto socket = net::Socket::connect(door, Deadline::after_seconds(1));
  if (!socket.ok()) return;  // Refusing is the ranks' right.
  const auto bytes = garbage(random);
  (void)socket->send(bytes);
  if (++result.strangers % 4 == 1) lingering.push_back(std::move(*socket));
}

std::string throw_garbage(Random& random, ScenarioResult& result) {
  auto job = CheckJob::start({.transport = "tcp"});
  if (!job.ok()) return job.status().to_string();
  const std::vector<net::Address> doors = (*job)->listening();
  if (doors.size() <= 1) return "found no listening socket of the ranks";
  std::vector<net::Socket> lingering;  // Some strangers say something and stay.
  for (int i = 0; i < kStrangers; ++i) {
    knock(doors[static_cast<size_t>(i) % doors.size()], random, result, lingering);
  }
  return hear_all_done(**job, 0, result);
}

/// The most that any rank used of a core while `disturb` ran for about a second and a half, every 1/200 s.
double busiest_share(const CheckJob& job, const std::function<void()>& disturb) {
  constexpr int kPerSecond = 200;
  constexpr int kTimes = 300;
  std::vector<double> before;
  for (int rank = 0; rank < job.size(); ++rank) before.push_back(job.cpu_seconds(rank));
  const Time start = Clock::now();
  for (int i = 0; i < kTimes; ++i) {
    disturb();
    const Deadline next(start + std::chrono::microseconds(1'000'000 / kPerSecond) * (i + 1));
    while (!next.expired()) (void)net::poll_many({}, next).ok();
  }
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  double most = 0;
  for (int rank = 0; rank < job.size(); ++rank) {
    most = std::max(most, (job.cpu_seconds(rank) - before[static_cast<size_t>(rank)]) / wall);
  }
  return most;
}

/// Ranks that have nothing to do but wait: what they use is what the strangers cost them.
std::string pester_idle(Random& random, ScenarioResult& result) {
  auto job = CheckJob::start({.transport = "tcp", .idle = true});
  if (!job.ok()) return job.status().to_string();
  std::vector<std::vector<net::Address>> doors;
  for (int rank = 0; rank < (*job)->size(); ++rank) doors.push_back((*job)->listening(rank));
  std::vector<net::Socket> lingering;
  const double idle = busiest_share(**job, [] {});
  size_t turn = 0;
  const double pestered = busiest_share(**job, [&] {
    for (const auto& own : doors) {
      if (!own.empty()) knock(own[turn % own.size()], random, result, lingering);
    }
    ++turn;
  });
  result.remark = text("the ranks' own time at 200 connections/s each: ", number(100 * pestered),
                       " % of a core; without: ", number(100 * idle), " %");
  if (result.strangers == 0) return "found no listening socket of the ranks";
  return hear_all_done(**job, 0, result);
}

struct Named {
  const char* name;
  const char* promise;
  Scenario run;
};

}  // namespace

std::vector<ScenarioResult> run_self_test(const SelfTestOptions& options) {
  const Named scenarios[] = {
      {"kill, shared memory", "survivors fail alike and name it", kill_over("auto")},
      {"kill, sockets", "survivors fail alike and name it", kill_over("tcp")},
      {"freeze for more than 1 s", "evicted after 1 s; told so when it thaws", freeze},
      {"mismatched call", "fails on all ranks; the group goes on", mismatch},
      {"garbage at the sockets", "the job does not notice", throw_garbage},
      {"garbage, idle ranks", "the job does not notice", pester_idle},
  };
  Random random(options.seed);
  std::vector<ScenarioResult> results;
  for (const Named& one : scenarios)
    results.push_back({.name = one.name, .promise = one.promise, .complaint = {}, .remark = {}});
  const Deadline deadline = Deadline::after_seconds(options.seconds);
  for (size_t turn = 0; turn < std::size(scenarios) || !deadline.expired(); ++turn) {
    const size_t index = turn % std::size(scenarios);
    ScenarioResult& result = results[index];
    if (isatty(2) == 1) std::cerr << "\r\033[K" << result.name << std::flush;
    std::string complaint = scenarios[index].run(random, result);
    ++result.runs;
    result.held += complaint.empty() ? 1 : 0;
    if (result.complaint.empty()) result.complaint = complaint;
  }
  if (isatty(2) == 1) std::cerr << "\r\033[K" << std::flush;
  return results;
}

bool report_self_test(const std::vector<ScenarioResult>& results, const SelfTestOptions& options) {
  Table table({"scenario (4 ranks)", "held", "p50 ms", "p99 ms", "max ms", "operations", "must hold"});
  table.flush_left(0);
  table.flush_left(6);
  bool all = true;
  std::string complaints;
  for (const ScenarioResult& result : results) {
    std::vector<std::string> row{result.name, text(result.held, " of ", result.runs)};
    for (double share : {0.5, 0.99, 1.0}) {
      row.push_back(result.noticed_ms.empty() ? "" : number(bench::quantile(result.noticed_ms, share)));
    }
    row.insert(row.end(), {text(result.operations), result.promise});
    table.add(std::move(row));
    all = all && result.held == result.runs;
    if (!result.complaint.empty()) complaints += text(result.name, ": ", result.complaint, "\n");
    if (result.strangers > 0) complaints += text(result.name, ": ", result.strangers, " connections\n");
    if (!result.remark.empty()) complaints += text(result.name, ": ", result.remark, "\n");
  }
  std::cout << table.to_string(colours_on(1)) << complaints << (all ? "everything held" : "NOT EVERYTHING HELD")
            << " (seed " << options.seed << ")\n";
  return all;
}

}  // namespace horo::cli
