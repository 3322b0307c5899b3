#include "cli/bench/bench.h"

#include <fstream>
#include <iostream>

#include "cli/bench/engine.h"
#include "cli/bench/report.h"
#include "cli/bench/rounds.h"
#include "cli/bench/stage.h"
#include "cli/bench/wait.h"
#include "cli/table.h"

#include "horo/base/text.h"

namespace horo::bench {

namespace {

std::vector<Lane> lanes_of(const BenchOptions& options, const Stage& stage, bool with_stream) {
  std::vector<Lane> lanes;
  Contender* horo = stage.contenders.front().get();
  const Lane usual{.name = "horo",
                   .label = "horo",
                   .contender = horo,
                   .op = options.op,
                   .dtype = options.dtype,
                   .in_place = options.in_place()};
  if (options.buffers != Buffers::kLibrary) lanes.push_back(usual);
  if (options.buffers != Buffers::kOrdinary) {
    lanes.push_back(usual);
    lanes.back().label = "horo, library buffers";
    lanes.back().library = true;
  }
  for (DType dtype : options.more_dtypes) {
    lanes.push_back(usual);
    lanes.back().name = lanes.back().label = text("horo ", name(dtype));
    lanes.back().dtype = dtype;
  }
  for (size_t i = 1; i < stage.contenders.size(); ++i) {
    Contender* contender = stage.contenders[i].get();
    lanes.push_back(usual);
    lanes.back().name = lanes.back().label = contender->name();
    lanes.back().contender = contender;
    if (contender->name() != "bare" || options.buffers == Buffers::kOrdinary) continue;
    lanes.push_back(lanes.back());  // The only peer with memory of its own.
    lanes.back().label = "bare, its buffers";
    lanes.back().library = true;
  }
  if (options.op == Op::kBarrier) return lanes;
  for (bool streamed : {false, true}) {
    lanes.push_back({.name = "copy",
                     .label = streamed ? "copy past the cache" : "copy",
                     .contender = horo,
                     .op = Op::kCopy,
                     .dtype = options.dtype,
                     .library = streamed,
                     .is_limit = true});
  }
  if (with_stream) {
    lanes.push_back({.name = "stream",
                     .label = "raw stream",
                     .contender = horo,
                     .op = Op::kStream,
                     .dtype = options.dtype,
                     .is_limit = true});
  }
  return lanes;
}

Status check_transport(const BenchOptions& options, const std::string& ran) {
  const bool must_be_tcp = options.hosts > 1 || options.transport == "tcp";
  const bool must_be_shm = options.transport == "shm";
  if (options.ranks == 1 || (!must_be_tcp && !must_be_shm)) return {};
  const char* wanted = must_be_tcp ? "tcp" : "shm";
  if (ran == wanted) return {};
  return Status(Code::kInternal, text("horo ran on ", ran, " where the command asks for ", wanted,
                                      ": these figures would be about something else"));
}

/// "-" is standard output.
Status write_json(const std::string& json, const std::string& file) {
  if (file == "-") {
    std::cout << json << std::endl;
    return {};
  }
  std::ofstream out(file);
  out << json << '\n';
  out.close();
  return out ? Status() : Status(Code::kUnavailable, text("cannot write ", file));
}

std::string headline(const Report& report) {
  const BenchOptions& options = report.options;
  std::string line = text(name(options.op), " ", name(options.dtype), ", ", options.ranks, " ranks");
  if (options.hosts > 1) line += text(" on ", options.hosts, " hosts (network namespaces)");
  if (options.bits_per_second > 0) {
    line += text(" at ", cli::number(static_cast<double>(options.bits_per_second) * 1e-9), " Gbit/s");
  }
  line += text(", transport ", report.transport, ", ", options.in_place() ? "in place" : "out of place");
  return line + text("; medians of ", options.rounds, " interleaved rounds");
}

/// `table` unless the figures themselves go to standard output.
Status publish(const BenchOptions& options, const std::string& table, const std::string& json) {
  if (options.json != "-") std::cout << table << std::flush;
  return options.json.empty() ? Status() : write_json(json, options.json);
}

Status run_waits(const BenchOptions& options, Stage& stage, const ProgressLine& progress) {
  const cli::Machine machine = cli::this_machine();
  HORO_ASSIGN(const auto figures, measure_waits(options, stage, progress));
  progress.clear();
  std::string out = text(machine.to_string(), "\nwaiting, ", options.ranks, " ranks, transport ",
                         stage.contenders.front()->transport(), "; processor time of the rank that used most\n\n",
                         waits_table(figures, cli::colours_on(1)));
  for (const auto& [name, why] : stage.left_out) out += text("left out: ", name, ": ", why, "\n");
  return publish(options, out, waits_json(options, machine, figures));
}

Status run_engine(const BenchOptions& options, const ProgressLine& progress) {
  const cli::Machine machine = cli::this_machine();
  HORO_ASSIGN(const EngineReport report, measure_engine(options, progress));
  HORO_TRY(check_transport(options, report.transport));
  progress.clear();
  const std::string out =
      text(machine.to_string(), "\nengine, ", options.ranks, " ranks, transport ", report.transport,
           ", orders of seed ", options.seed, "; medians of ", options.rounds,
           " interleaved rounds, of the slowest rank\n\n", engine_table(report, cli::colours_on(1)));
  return publish(options, out, engine_json(options, machine, report));
}

}  // namespace

Status run_bench(const BenchOptions& options) {
  HORO_TRY(validate(options));
  const ProgressLine progress(options.verbose);
  if (options.op == Op::kEngine) return run_engine(options, progress);
  HORO_ASSIGN(Stage stage, set_stage(options, progress));
  if (options.op == Op::kWait) return run_waits(options, stage, progress);
  Report report{.machine = cli::this_machine(),
                .options = options,
                .transport = stage.contenders.front()->transport(),
                .sizes = {},
                .left_out = stage.left_out};
  HORO_TRY(check_transport(options, report.transport));
  const std::vector<Lane> lanes = lanes_of(options, stage, report.transport == "tcp");
  HORO_ASSIGN(report.sizes, measure_all(options, lanes, [&](const std::string& line) { progress.show(line); }));
  progress.clear();
  return publish(options,
                 text(report.machine.to_string(), '\n', headline(report), "\n\n", to_table(report, cli::colours_on(1))),
                 to_json(report));
}

}  // namespace horo::bench
