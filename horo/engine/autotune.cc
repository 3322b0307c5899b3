#include "horo/engine/autotune.h"

#include "horo/engine/knobs.h"

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

}  // namespace horo::engine
