// Whether something else used the processors while a measurement ran.
#pragma once

#include <cstdint>
#include <string_view>

#include "horo/base/deadline.h"
#include "horo/base/status.h"

namespace horo::bench {

/// Seconds of processor time since boot, of all processors.
struct CpuTimes {
  double busy = 0;    ///< User, nice and system. Interrupts are left out: those of a network belong to who uses it.
  double idle = 0;    ///< Waiting for disks included.
  double stolen = 0;  ///< Taken by the hypervisor.
};

/// Of the first line of /proc/stat.
Result<CpuTimes> parse_cpu_times(std::string_view stat, double ticks_per_second);

class QuietWatch {
 public:
  QuietWatch();
  /// Seconds that neither the ranks (`ours`, as they say) nor the idle loop had since this was made.
  struct Finding {
    double wall = 0;
    double others = 0;
    double stolen = 0;
    double doubt = 0;  ///< How far `others` may be off.
    /// More than 15 % of one processor, or 5 % stolen; and more than can be told from nothing.
    bool disturbed() const;
  };
  Finding look(double ours) const;

 private:
  Time start_;
  CpuTimes before_;
};

}  // namespace horo::bench
