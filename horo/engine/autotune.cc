#include "horo/engine/autotune.h"

#include "horo/engine/knobs.h"
#include "horo/group/knobs.h"

namespace horo::engine {

std::optional<TunerOptions> tuner_options(const Config& config, const Tuning& start, const group::Group& group) {
  if (!config.get(kAutotune) || group.size() == 1) return std::nullopt;
  const Fixed fixed{.threshold = config.is_set(kFusionThreshold), .window = config.is_set(kGatherWindow)};
  return TunerOptions{.space = tuning_space(start, fixed, group.ways()),
                      .warmup = static_cast<int>(config.get(kAutotuneWarmupSamples)),
                      .steps = static_cast<int>(config.get(kAutotuneStepsPerSample)),
                      .trials = static_cast<int>(config.get(kAutotuneTrials))};
}

std::unique_ptr<TuningLog> open_tuning_log(const Config& config, Log& log) {
  const std::string path = config.get(kAutotuneLog);
  if (path.empty()) return nullptr;
  auto opened = TuningLog::open(path);
  if (opened.ok()) return std::move(*opened);
  log.warning("autotune runs without a log: ", opened.status());
  return nullptr;
}

void explain_knobs_without_effect(const Config& config, Log& log) {
  if (config.is_set(kAutotuneNoise)) {
    log.warning(kAutotuneNoise.row.name,
                " has no effect: settings are compared with each other in turns, there is no model that assumes noise");
  }
  if (config.get(group::kTorusAllreduce)) {
    log.warning(group::kTorusAllreduce.row.name,
                " has no effect: allreduce in two levels already uses all ranks of a host in parallel between hosts");
  }
}

}  // namespace horo::engine
