#include "cli/bench/bench.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>

#include "cli/bench/contender.h"
#include "cli/bench/network.h"
#include "cli/bench/report.h"
#include "cli/bench/rounds.h"
#include "cli/table.h"

#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::bench {

namespace {

/// One line that is overwritten on a terminal; a line each elsewhere only when asked.
class ProgressLine {
 public:
  explicit ProgressLine(bool verbose) : terminal_(isatty(2) == 1), verbose_(verbose) {}
  ~ProgressLine() { clear(); }
  void show(const std::string& line) {
    if (terminal_) std::fprintf(stderr, "\r\033[K%s", line.c_str());
    if (!terminal_ && verbose_) std::fprintf(stderr, "%s\n", line.c_str());
  }
  void clear() const {
    if (terminal_) std::fputs("\r\033[K", stderr);
  }

 private:
  bool terminal_;
  bool verbose_;
};

struct Contenders {
  std::vector<std::unique_ptr<Contender>> all;  ///< horo first.
  std::vector<std::pair<std::string, std::string>> left_out;
};

Result<Contenders> start_contenders(const BenchOptions& options, const Field& field, ProgressLine& progress) {
  Contenders contenders;
  progress.show("starting horo");
  HORO_ASSIGN(auto horo, Contender::start_horo(field));
  contenders.all.push_back(std::move(horo));
  for (size_t i = 0; i < options.variants.size(); ++i) {
    Field varied = field;
    varied.variant = options.variants[i];
    varied.number = static_cast<int>(i) + 1;
    HORO_ASSIGN(auto variant, Contender::start_horo(varied));
    contenders.all.push_back(std::move(variant));
  }
  for (const std::string& name : options.peers) {
    progress.show("starting " + name);
    auto peer = Contender::start_peer(name, field);
    if (peer.ok()) {
      contenders.all.push_back(std::move(*peer));
    } else {
      contenders.left_out.emplace_back(name, peer.status().message());
    }
  }
  return contenders;
}

std::vector<Lane> lanes_of(const BenchOptions& options, const Contenders& contenders, bool with_stream) {
  std::vector<Lane> lanes;
  Contender* horo = contenders.all.front().get();
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
  for (size_t i = 1; i < contenders.all.size(); ++i) {
    lanes.push_back(usual);
    lanes.back().name = lanes.back().label = contenders.all[i]->name();
    lanes.back().contender = contenders.all[i].get();
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

Status write_json(const Report& report, const std::string& file) {
  if (file == "-") {
    std::cout << to_json(report) << std::endl;
    return {};
  }
  std::ofstream out(file);
  out << to_json(report) << '\n';
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

}  // namespace

Status run_bench(const BenchOptions& options) {
  HORO_TRY(validate(options));
  HORO_ASSIGN(const auto janitor, cli::Janitor::start());
  HORO_ASSIGN(const std::string folder, janitor->make_folder());
  std::unique_ptr<Network> network;
  if (options.hosts > 1) {
    HORO_ASSIGN(network, Network::make({.hosts = options.hosts, .bits_per_second = options.bits_per_second}, *janitor));
  }
  ProgressLine progress(options.verbose);
  Field field{.ranks = options.ranks,
              .transport = options.hosts > 1 ? "tcp" : options.transport,
              .network = network.get(),
              .folder = folder,
              .oversubscribed = options.ranks > System().usable_cores(),
              .verbose = options.verbose};
  HORO_ASSIGN(auto contenders, start_contenders(options, field, progress));
  Report report{.machine = cli::this_machine(),
                .options = options,
                .transport = contenders.all.front()->transport(),
                .sizes = {},
                .left_out = contenders.left_out};
  HORO_TRY(check_transport(options, report.transport));
  const std::vector<Lane> lanes = lanes_of(options, contenders, report.transport == "tcp");
  HORO_ASSIGN(report.sizes, measure_all(options, lanes, [&](const std::string& line) { progress.show(line); }));
  progress.clear();
  if (options.json == "-") return write_json(report, options.json);
  std::cout << report.machine.to_string() << '\n'
            << headline(report) << "\n\n"
            << to_table(report, cli::colours_on(1)) << std::flush;
  return options.json.empty() ? Status() : write_json(report, options.json);
}

}  // namespace horo::bench
