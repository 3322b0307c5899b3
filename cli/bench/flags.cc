#include "cli/bench/flags.h"

#include <sstream>

#include "horo/base/text.h"

namespace horo::bench {

namespace {

constexpr const char* kFooter =
    "The ranks are started by this command and end with it. Times are those of the slowest rank. Every result is\n"
    "checked. A size is that of the whole tensor: the output of an allgather, the input of a reducescatter, what the\n"
    "root of a gather or scatter has (rank 0). sendrecv is from the first to the last rank.\n"
    "--json writes: machine, operation, dtype, ranks, hosts, transport; results[] with bytes, rounds, dropped_rounds,\n"
    "disturbed, copy_floor_us, stream_us, ratios and contenders[] (name, buffers, transport, algorithm, median_us,\n"
    "p99_us, minimum_us, back_to_back_us, algorithm_gbps, bus_gbps, cpu_seconds_per_gib, round_medians_us);\n"
    "left_out[] with name and reason. 'engine' writes figures[] with name, value, unit, aim, met instead.\n"
    "docs/performance.md explains each.";

std::vector<std::string> operation_names() {
  std::vector<std::string> names = collective_names();
  names.emplace_back(name(Op::kWait));
  names.emplace_back(name(Op::kEngine));
  return names;
}

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

}  // namespace

void Flags::add_to(CLI::App& command) {
  command.footer(kFooter);
  command
      .add_option("operation", op,
                  "What to measure; wait: the processor time of waiting; engine: named tensors, "
                  "idleness, memory and the launcher")
      ->required()
      ->check(CLI::IsMember(operation_names()));
  // CLI11 takes -np for -n p; main() rewrites it.
  command.add_option("-n,--np,--ranks", ranks, "How many ranks")->check(CLI::Range(1, 64))->capture_default_str();
  command.add_option("--sizes", sizes, "Bytes of the tensor, with commas: 4,64K,16M")->capture_default_str();
  command.add_option("--dtype", dtype, "Of the elements; several (f32,bf16) compare equal counts of them")
      ->capture_default_str();
  command.add_option("--variant", variants, "One more job of horo with this set: HORO_CHECKSUM=0");
  command.add_option("--json", json, "Write the figures to this file (- for standard output)");
  command.add_option("--peers", peers, "Others to measure in turn: gloo,openmpi,openmpi-tuned,torch-gloo,bare");
  command.add_option("--rounds", rounds, "Rounds in which each has its turn")
      ->take_last()
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--hosts", hosts, "Spread the ranks over so many network namespaces (needs root)")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command.add_option("--shape", shape, "Limit each host's rate: 1gbit, 10gbit");
  command.add_option("--buffers", buffers, "Whose memory: ordinary, library (no copy in), both")
      ->check(CLI::IsMember({"ordinary", "library", "both"}))
      ->capture_default_str();
  auto* in = command.add_flag("--in-place", in_place, "Input and output are the same memory");
  command.add_flag("--out-of-place", out_of_place, "Input and output lie apart")->excludes(in);
  command.add_option("--transport", transport, "auto, shm or tcp")
      ->check(CLI::IsMember({"auto", "shm", "tcp"}))
      ->capture_default_str();
  command.add_option("--seconds", seconds, "About how long one turn takes")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  command.add_option("--seed", seed, "Of the random data")->capture_default_str();
  command.add_option("--operations", operations, "engine: so many operations, for the memory")->capture_default_str();
  command.add_option("--idle-seconds", idle_seconds, "engine: how long nobody calls anything")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command.add_option("--python", python, "engine: the interpreter that has horo installed")->capture_default_str();
  command.add_flag("--verbose", verbose, "Show progress without a terminal, and what peers print");
}

Result<BenchOptions> Flags::options() const {
  BenchOptions options;
  options.op = *op_named(op);
  options.ranks = ranks;
  HORO_ASSIGN(options.sizes, parse_sizes(sizes));
  for (const std::string& word : words_of(dtype)) {
    const auto type = dtype_named(word);
    if (!type)
      return Status(Code::kInvalidArgument, text("--dtype ", word, " is unknown: take f32, bf16, f16, f64, i32"));
    options.more_dtypes.push_back(*type);
  }
  if (options.more_dtypes.empty()) return Status(Code::kInvalidArgument, "--dtype needs a value, such as f32");
  options.dtype = options.more_dtypes.front();
  options.more_dtypes.erase(options.more_dtypes.begin());
  options.variants = variants;
  options.json = json;
  options.peers = words_of(peers);
  options.rounds = rounds;
  options.hosts = hosts;
  if (!shape.empty()) {
    HORO_ASSIGN(options.bits_per_second, parse_rate(shape));
  }
  options.buffers = buffers == "both" ? Buffers::kBoth : buffers == "library" ? Buffers::kLibrary : Buffers::kOrdinary;
  options.place = in_place ? Place::kIn : out_of_place ? Place::kOut : Place::kUsual;
  options.transport = transport;
  options.seconds = seconds;
  options.seed = seed;
  options.operations = operations;
  options.idle_seconds = idle_seconds;
  options.python = python;
  options.verbose = verbose;
  HORO_TRY(validate(options));
  return options;
}

}  // namespace horo::bench
