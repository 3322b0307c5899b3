#include "cli/bench/quiet.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "horo/base/text.h"

namespace horo::bench {

Result<CpuTimes> parse_cpu_times(std::string_view stat, double ticks_per_second) {
  std::istringstream words{std::string(stat.substr(0, stat.find('\n')))};
  std::string label;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, hard = 0, soft = 0, stolen = 0;
  if (!(words >> label >> user >> nice >> system >> idle >> waiting >> hard >> soft >> stolen) || label != "cpu") {
    return Status(Code::kCorrupt, text("/proc/stat begins with '", stat.substr(0, 40), "'"));
  }
  return CpuTimes{(user + nice + system) / ticks_per_second, (idle + waiting) / ticks_per_second,
                  stolen / ticks_per_second};
}

namespace {

/// The ranks know their time exactly, the kernel samples: at every tick it charges the whole tick to what runs then.
/// Processors that are busy all the time are known exactly even so; the doubt is about those that come and go.
double doubt_of(double busy, double idle) {
  constexpr double kTick = 0.004;
  constexpr double kRounding = 0.02;  // Three figures of 0.01 s are added up.
  const double all = busy + idle;
  return kRounding + (all > 0 ? 2 * std::sqrt(kTick * busy * idle / all) : 0);
}

CpuTimes now() {
  std::ifstream file("/proc/stat");
  std::string line;
  std::getline(file, line);
  auto times = parse_cpu_times(line, static_cast<double>(sysconf(_SC_CLK_TCK)));
  return times.ok() ? *times : CpuTimes{};
}

}  // namespace

QuietWatch::QuietWatch() : start_(Clock::now()), before_(now()) {}

QuietWatch::Finding QuietWatch::look(double ours) const {
  const CpuTimes after = now();
  Finding finding;
  finding.wall = std::chrono::duration<double>(Clock::now() - start_).count();
  finding.others = std::max(0.0, after.busy - before_.busy - ours);
  finding.stolen = after.stolen - before_.stolen;
  finding.doubt = doubt_of(after.busy - before_.busy, after.idle - before_.idle);
  return finding;
}

bool QuietWatch::Finding::disturbed() const {
  constexpr double kTicks = 0.03;
  return others > std::max(doubt, 0.15 * wall) || stolen > std::max(kTicks, 0.05 * wall);
}

}  // namespace horo::bench
