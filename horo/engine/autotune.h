// What the user asks of autotune.
#pragma once

#include <memory>
#include <optional>

#include "horo/base/config.h"
#include "horo/base/log.h"
#include "horo/engine/tuner.h"
#include "horo/engine/tuning_log.h"
#include "horo/group/group.h"

namespace horo::engine {

/// Nothing without HORO_AUTOTUNE. What the user has set stays as it is; `start` is where the search begins.
std::optional<TunerOptions> tuner_options(const Config& config, const Tuning& start, const group::Group& group);

/// HORO_AUTOTUNE_LOG, at the root. A file that cannot be written is no reason not to run: a warning says so.
std::unique_ptr<TuningLog> open_tuning_log(const Config& config, Log& log);

}  // namespace horo::engine
