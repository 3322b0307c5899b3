#include "cli/bench/engine.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "cli/bench/engine_launch.h"
#include "cli/bench/quiet.h"
#include "cli/bench/statistics.h"
#include "cli/process.h"
#include "cli/table.h"

#include "horo/base/build.h"
#include "horo/base/text.h"

namespace horo::bench {

namespace {

using nlohmann::json;

constexpr double kLongestRun = 900;

/// What all ranks wrote down, by rank. They are started as a user starts them.
Result<std::vector<json>> run_ranks(const BenchOptions& options, const std::string& folder) {
  cli::ProcessOptions process;
  process.arguments = {cli::own_path(),
                       "run",
                       "-np",
                       text(options.ranks),
                       cli::own_path(),
                       "bench-engine-rank",
                       "--report",
                       folder,
                       "--rounds",
                       text(options.rounds),
                       "--operations",
                       text(options.operations),
                       "--idle-seconds",
                       text(options.idle_seconds),
                       "--seed",
                       text(options.seed)};
  process.environment = {{"OMP_NUM_THREADS", "1"}};  // They compute nothing; and the launcher need not say so.
  if (options.transport != "auto") process.environment["HORO_TRANSPORT"] = options.transport;
  process.death_signal = 15;
  HORO_ASSIGN(auto ranks, cli::Process::start(process));
  const auto code = ranks->wait(Deadline::after_seconds(kLongestRun + options.idle_seconds));
  if (code != 0) return Status(Code::kInternal, text("the ranks ended with ", code.value_or(-1)));
  std::vector<json> all;
  for (int rank = 0; rank < options.ranks; ++rank) {
    std::ifstream file(text(folder, "/", rank, ".json"));
    all.push_back(json::parse(file, nullptr, false));
    if (all.back().is_discarded()) return Status(Code::kInternal, text("rank ", rank, " left no figures"));
  }
  return all;
}

/// The slowest rank of each call.
std::vector<double> slowest(const std::vector<json>& ranks, size_t round, const char* path) {
  std::vector<double> times;
  for (const json& rank : ranks) {
    const auto& mine = rank["rounds"][round][path]["times_us"];
    times.resize(mine.size());
    for (size_t i = 0; i < times.size(); ++i) times[i] = std::max(times[i], mine[i].get<double>());
  }
  return times;
}

struct SmallCalls {
  double median_us = 0, p99_us = 0, row_us = 0;
};

SmallCalls small_calls(const std::vector<json>& ranks, const char* path) {
  std::vector<double> medians, all, rows;
  for (size_t round = 0; round < ranks[0]["rounds"].size(); ++round) {
    const std::vector<double> times = slowest(ranks, round, path);
    medians.push_back(median(times));
    all.insert(all.end(), times.begin(), times.end());
    double row = 0;
    for (const json& rank : ranks) row = std::max(row, rank["rounds"][round][path]["row_us"].get<double>());
    rows.push_back(row);
  }
  return {median(medians), quantile(all, 0.99), median(rows)};
}

double median_time(const std::vector<json>& ranks, const char* what) {
  std::vector<double> times;
  for (size_t round = 0; round < ranks[0]["rounds"].size(); ++round) {
    double time = 0;
    for (const json& rank : ranks) time = std::max(time, rank["rounds"][round][what].get<double>());
    times.push_back(time);
  }
  return median(times);
}

/// Of the rank with most.
template <class Get>
double most(const std::vector<json>& ranks, const Get& get) {
  double most = 0;
  for (const json& rank : ranks) most = std::max(most, static_cast<double>(get(rank)));
  return most;
}

void add_speed(const std::vector<json>& ranks, std::vector<EngineFigure>& figures) {
  const SmallCalls ordered = small_calls(ranks, "ordered"), named = small_calls(ranks, "negotiated");
  figures.push_back({"ordered_median_us", "4 B allreduce, ordered: median", ordered.median_us, "us"});
  figures.push_back({"ordered_p99_us", "  p99", ordered.p99_us, "us"});
  figures.push_back({"ordered_row_us", "  each of 1,000 in a row", ordered.row_us, "us"});
  figures.push_back({"named_median_us", "4 B allreduce by name, handed in to done: median", named.median_us, "us", 20});
  figures.push_back({"named_p99_us", "  p99", named.p99_us, "us"});
  figures.push_back({"named_row_us", "  each of 1,000 in a row", named.row_us, "us"});
  figures.push_back(
      {"named_above_ordered_us", "  median above the ordered path's", named.median_us - ordered.median_us, "us", 15});
  const double alone = median_time(ranks, "one_by_one_us"), together = median_time(ranks, "any_order_us");
  figures.push_back({"one_by_one_ms", "1,000 tensors of 4 KiB, one by one", alone * 1e-3, "ms"});
  figures.push_back({"any_order_ms", "  all at once, each rank in its own random order", together * 1e-3, "ms"});
  figures.push_back({"any_order_gain", "  so many times as fast", alone / together, "x", 5, true});
}

void add_idle(const std::vector<json>& ranks, std::vector<EngineFigure>& figures) {
  const double share = most(ranks, [](const json& rank) {
    return 100 * rank["idle"]["cpu_seconds"].get<double>() / rank["idle"]["seconds"].get<double>();
  });
  const double seconds = ranks[0]["idle"]["seconds"];
  figures.push_back({"idle_core_percent", text("idle for ", cli::number(seconds), " s: of a core"), share, "%", 0.1});
  figures.push_back({"idle_messages", "  messages sent",
                     most(ranks, [](const json& rank) { return rank["idle"]["messages"].get<double>(); }), "", 0});
  figures.push_back({"idle_wake_ups", "  wake-ups of the library's threads",
                     most(ranks, [](const json& rank) { return rank["idle"]["wake_ups"].get<double>(); }), "", 0});
}

void add_memory(const std::vector<json>& ranks, std::vector<EngineFigure>& figures) {
  const auto operations = ranks[0]["memory"]["operations"].get<uint64_t>();
  if (operations == 0) return;
  const auto grown = [&](const char* what) {
    return most(ranks, [&](const json& rank) {
      const json& memory = rank["memory"];
      return (memory["after"][what].get<double>() - memory["before"][what].get<double>()) / 1024;
    });
  };
  const double resident =
      most(ranks, [](const json& rank) { return rank["memory"]["after"]["resident_bytes"].get<double>() / (1 << 20); });
  figures.push_back({"memory_operations", "operations for the memory", static_cast<double>(operations), ""});
  figures.push_back({"resident_mib", "  resident at the end", resident, "MiB"});
  figures.push_back({"resident_growth_kib", "  more than after the first tenth", grown("resident_bytes"), "KiB"});
  figures.push_back({"heap_growth_kib", "  allocated, more than then", grown("heap_bytes"), "KiB"});
}

}  // namespace

Result<EngineReport> measure_engine(const BenchOptions& options, const ProgressLine& progress) {
  EngineReport report;
  HORO_ASSIGN(const auto janitor, cli::Janitor::start());
  HORO_ASSIGN(const std::string folder, janitor->make_folder());
  const QuietWatch watch;
  progress.show(text("the ranks work, then idle for ", cli::number(options.idle_seconds), " s"));
  HORO_ASSIGN(const std::vector<json> ranks, run_ranks(options, folder));
  double ours = 0;
  for (const json& rank : ranks) ours += rank["cpu_seconds"].get<double>();
  const QuietWatch::Finding finding = watch.look(ours);
  report.taken_processors = finding.others / finding.wall;
  report.disturbed = finding.disturbed();
  report.transport = ranks[0]["transport"];
  add_speed(ranks, report.figures);
  add_idle(ranks, report.figures);
  add_memory(ranks, report.figures);
  HORO_TRY(add_launches(options, progress, report));
  return report;
}

std::string engine_table(const EngineReport& report, bool colours) {
  cli::Table table({"", "measured", "", "aim", ""});
  for (size_t column : {0, 2, 4}) table.flush_left(column);
  for (const EngineFigure& figure : report.figures) {
    const std::string limit = figure.at_least ? ">= " : "<= ";
    table.add({figure.what, cli::number(figure.value), figure.unit, figure.aim ? limit + cli::number(*figure.aim) : "",
               !figure.aim    ? ""
               : figure.met() ? "met"
                              : "NOT MET"});
  }
  std::string out = table.to_string(colours);
  if (report.disturbed)
    out += text("DISTURBED: something else had ", cli::number(report.taken_processors), " processors\n");
  for (const auto& [name, why] : report.left_out) out += text("left out: ", name, ": ", why, "\n");
  return out;
}

std::string engine_json(const BenchOptions& options, const cli::Machine& machine, const EngineReport& report) {
  json figures = json::array(), left_out = json::array();
  for (const EngineFigure& figure : report.figures) {
    figures.push_back({{"name", figure.name},
                       {"value", figure.value},
                       {"unit", figure.unit},
                       {"aim", figure.aim ? json(*figure.aim) : json(nullptr)},
                       {"met", figure.met()}});
  }
  for (const auto& [name, why] : report.left_out) left_out.push_back({{"name", name}, {"reason", why}});
  const json whole{{"format", 1},
                   {"horo", std::string(build_info().version)},
                   {"operation", "engine"},
                   {"ranks", options.ranks},
                   {"transport", report.transport},
                   {"seed", options.seed},
                   {"usable_cores", machine.usable_cores},
                   {"model", machine.model},
                   {"taken_processors", report.taken_processors},
                   {"disturbed", report.disturbed},
                   {"figures", figures},
                   {"left_out", left_out}};
  return whole.dump(2);
}

}  // namespace horo::bench
