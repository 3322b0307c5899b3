#include "cli/bench/wait.h"

#include <map>

#include <nlohmann/json.hpp>

#include "cli/bench/statistics.h"
#include "cli/table.h"

#include "horo/base/text.h"

namespace horo::bench {

namespace {

/// One line of the table, for every contender. The short ones show how long a rank spins before it sleeps.
struct Wait {
  Op kind;
  uint64_t microseconds;
  int repeats;  ///< Per round.
};
constexpr Wait kWaits[] = {
    {Op::kWait, 100, 200},     {Op::kWait, 1000, 50},     {Op::kWait, 10'000, 10},
    {Op::kWait, 1'000'000, 1}, {Op::kIdle, 1'000'000, 1},
};

std::string duration_text(double microseconds) {
  if (microseconds < 1000) return text(cli::number(microseconds), " us");
  if (microseconds < 1e6) return text(cli::number(microseconds * 1e-3), " ms");
  return text(cli::number(microseconds * 1e-6), " s");
}

std::string kind_text(Op kind) { return kind == Op::kWait ? "peer is late by" : "nobody calls for"; }

}  // namespace

Result<std::vector<WaitFigure>> measure_waits(const BenchOptions& options, Stage& stage, const ProgressLine& progress) {
  std::vector<WaitFigure> figures;
  for (const Wait& wait : kWaits) {
    std::map<const Contender*, std::vector<double>> times;
    for (int round = 0; round < options.rounds; ++round) {
      progress.show(text(name(wait.kind), " ", duration_text(static_cast<double>(wait.microseconds)), ": round ",
                         round + 1, " of ", options.rounds));
      for (const auto& contender : stage.contenders) {
        const Command command{.op = wait.kind, .count = wait.microseconds, .iterations = wait.repeats};
        auto sample = contender->measure(command, Deadline::after_seconds(60));
        if (!sample.ok() && contender->name() == "horo") return sample.status();
        if (!sample.ok()) continue;  // Left out, as the report shows.
        auto& all = times[contender.get()];
        all.insert(all.end(), sample->microseconds.begin(), sample->microseconds.end());
      }
    }
    for (const auto& contender : stage.contenders) {
      if (times[contender.get()].empty()) continue;
      figures.push_back({wait.kind, contender->name(), static_cast<double>(wait.microseconds),
                         median(times[contender.get()]), contender->transport()});
    }
  }
  return figures;
}

std::string waits_table(const std::vector<WaitFigure>& figures, bool colours) {
  cli::Table table({"", "", "", "cpu us per wait", "of a core"});
  table.flush_left(0);
  table.flush_left(2);
  const WaitFigure* before = nullptr;
  for (const WaitFigure& figure : figures) {
    const bool same = before != nullptr && before->kind == figure.kind && before->late_us == figure.late_us;
    if (before != nullptr && !same) table.gap();
    table.add({same ? "" : kind_text(figure.kind), same ? "" : duration_text(figure.late_us), figure.name,
               cli::number(figure.cpu_us), text(cli::number(100 * figure.cpu_us / figure.late_us), " %")});
    before = &figure;
  }
  return table.to_string(colours);
}

std::string waits_json(const BenchOptions& options, const cli::Machine& machine,
                       const std::vector<WaitFigure>& figures) {
  nlohmann::json waits = nlohmann::json::array();
  for (const WaitFigure& figure : figures) {
    waits.push_back({{"kind", std::string(name(figure.kind))},
                     {"name", figure.name},
                     {"transport", figure.transport},
                     {"microseconds", figure.late_us},
                     {"cpu_us", figure.cpu_us}});
  }
  const nlohmann::json whole{{"format", 1},
                             {"operation", "wait"},
                             {"ranks", options.ranks},
                             {"usable_cores", machine.usable_cores},
                             {"model", machine.model},
                             {"waits", waits}};
  return whole.dump(2);
}

}  // namespace horo::bench
