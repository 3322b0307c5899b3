#include "cli/bench/engine_launch.h"

#include "cli/bench/statistics.h"
#include "cli/process.h"

#include "horo/base/text.h"

namespace horo::bench {

namespace {

constexpr int kStarts = 10;
constexpr int kManyRanks = 64;
constexpr double kLongest = 120;

constexpr const char* kPythonRank = "import horo; horo.init(); horo.barrier(); horo.shutdown()";

/// Seconds from the start of a command to its end.
Result<double> time_of(const std::vector<std::string>& words, bool quiet = false) {
  const Time begin = Clock::now();
  // The launcher would choose a number of threads for each rank, and say so.
  HORO_ASSIGN(auto process,
              cli::Process::start(
                  {.arguments = words, .environment = {{"OMP_NUM_THREADS", "1"}}, .quiet = quiet, .death_signal = 15}));
  const auto code = process->wait(Deadline::after_seconds(kLongest));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (code == 0) return seconds;
  return Status(Code::kUnavailable, text("'", words.back(), "' ended with ", code.value_or(-1)));
}

std::vector<std::string> launched(int ranks, const std::vector<std::string>& words) {
  std::vector<std::string> all{cli::own_path(), "run", "-np", text(ranks)};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

Result<double> median_time_of(int starts, const std::vector<std::string>& words) {
  std::vector<double> times;
  for (int i = 0; i < starts; ++i) {
    HORO_ASSIGN(const double time, time_of(words));
    times.push_back(time);
  }
  return median(times);
}

}  // namespace

Status add_launches(const BenchOptions& options, const ProgressLine& progress, EngineReport& report) {
  std::vector<EngineFigure>& figures = report.figures;
  progress.show("horo run -np 2 true");
  std::vector<double> plain, run;
  for (int i = 0; i < kStarts; ++i) {  // In turns, as everything that is compared.
    HORO_ASSIGN(const double alone, time_of({"/bin/true"}));
    HORO_ASSIGN(const double under, time_of(launched(2, {"/bin/true"})));
    plain.push_back(alone * 1e3);
    run.push_back(under * 1e3);
  }
  figures.push_back({"process_ms", "process start and end: true", median(plain), "ms"});
  figures.push_back({"run_true_ms", "  horo run -np 2 true", median(run), "ms"});
  figures.push_back({"run_above_process_ms", "  the difference", median(run) - median(plain), "ms", 150});
  progress.show("64 ranks");
  HORO_ASSIGN(const double many, median_time_of(3, launched(kManyRanks, {cli::own_path(), "bench-engine-rank"})));
  figures.push_back({"many_ranks_s", text(kManyRanks, " ranks start, meet and end: C++"), many, "s", 5});
  const std::vector<std::string> python{options.python, "-c", kPythonRank};
  const auto one = time_of({"/usr/bin/env", options.python, "-c", "from horo import init"}, true);
  if (!one.ok()) {
    report.left_out.emplace_back("python", text(options.python, " cannot import horo (--python names another)"));
    return {};
  }
  HORO_ASSIGN(const double in_python, time_of(launched(kManyRanks, python)));
  figures.push_back({"python_import_s", "  one process of Python that imports horo", *one, "s"});
  figures.push_back({"many_python_s", text("  ", kManyRanks, " ranks, Python"), in_python, "s"});
  return {};
}

}  // namespace horo::bench
