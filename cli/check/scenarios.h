// `horo check --self-test`: kills, freezes, mismatches and throws garbage at a small job, and says what held.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace horo::cli {

struct SelfTestOptions {
  double seconds = 20;
  uint64_t seed = 1;
};

struct ScenarioResult {
  std::string name;
  std::string promise;  ///< What must hold.
  int runs = 0;
  int held = 0;
  std::vector<double> noticed_ms;  ///< By run: from the blow to the last survivor's error.
  uint64_t operations = 0;
  uint64_t strangers = 0;  ///< Connections with garbage.
  std::string complaint;   ///< The first thing that did not hold.
  std::string remark;      ///< A figure that belongs to it.
};

/// Every scenario runs at least once, then in turn until the time is up.
std::vector<ScenarioResult> run_self_test(const SelfTestOptions& options);

/// Prints them. True when everything held.
bool report_self_test(const std::vector<ScenarioResult>& results, const SelfTestOptions& options);

}  // namespace horo::cli
