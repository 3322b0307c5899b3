// What can be seen of a runtime: its timeline and its metrics.
#include <unistd.h>

#include <utility>

#include "horo/base/system.h"
#include "horo/base/text.h"
#include "horo/engine/exposition.h"
#include "horo/engine/knobs.h"
#include "horo/engine/metrics_server.h"
#include "horo/engine/process_set.h"
#include "horo/engine/runtime.h"

namespace horo::engine {

namespace {

/// Ranks that agree in it read the same monotonic clock: those of one boot of one machine that count from the same
/// zero.
std::string clock_name() {
  const Result<std::string> boot = System().boot_id();
  return boot.ok() ? text(*boot, " ", System().time_namespace()) : text("of process ", getpid());
}

}  // namespace

// A timeline that cannot be written is no reason not to run.
void Runtime::make_timeline() {
  timeline_ = std::make_unique<Timeline>(engine_->rank(), engine_->size(), clock_name(), engine_->log());
}

void Runtime::observe(Runtime* before, const std::string& generation) {
  if (before != nullptr) {
    before->stop_timeline();
    before->stop_serving();
  }
  begin_timeline(engine_->config(), generation);
  begin_serving(engine_->config());
}

void Runtime::begin_timeline(const Config& config, const std::string& generation) {
  std::string path = config.get(kTimeline);
  if (path.empty() || path == "DYNAMIC") return;
  // What was recorded of the job before it grew stays.
  if (!generation.empty()) path.insert(path.ends_with(".json") ? path.size() - 5 : path.size(), text("+", generation));
  const Status status = start_timeline(path, config.get(kTimelineMarkCycles));
  if (!status.ok()) engine_->log().warning(status.message(), "; HORO_TIMELINE asks for it; the job goes on without");
}

Status Runtime::start_timeline(const std::string& path, bool mark_cycles) {
  if (path.empty()) return {Code::kInvalidArgument, "a timeline needs the name of a file"};
  Status stopped(Code::kStopped, "horo was shut down on this rank");
  const auto ended = [this] {
    std::lock_guard lock(mutex_);
    return ended_;
  };
  if (ended()) return stopped;
  // Not under the lock, which the loop takes: files may be slow.
  HORO_TRY(timeline_->start(path, mark_cycles));
  if (!ended()) return {};
  timeline_->stop();
  return stopped;
}

// Ranks of one host count on from the port that was given. Metrics that cannot be served are no reason not to run.
void Runtime::begin_serving(const Config& config) {
  const int64_t first = config.get(kMetricsPort);
  if (first == 0) return;
  const int64_t port = first + position().local_rank;
  Result<net::Address> at = port > 65535 ? Status(Code::kInvalidArgument, text("there is no port ", port))
                                         : net::Address::ip(config.get(kMetricsAddress), static_cast<uint16_t>(port));
  Status status = at.status();
  if (status.ok()) {
    auto server = MetricsServer::start(
        *at, [this] { return metrics_text(); }, engine_->log());
    status = server.status();
    if (server.ok()) {
      std::lock_guard lock(mutex_);
      server_ = std::move(*server);
    }
  }
  if (status.ok()) return engine_->log().info("metrics are served at http://", at->to_string(), "/metrics");
  engine_->log().warning("metrics cannot be served as HORO_METRICS_PORT asks: ", status.message(),
                         "; the job goes on without");
}

std::string Runtime::metrics_text() const {
  return exposition(metrics_, {.rank = rank(),
                               .size = size(),
                               .epoch = engine_->epoch(),
                               .timeline_dropped = timeline_->dropped(),
                               .host = host_name()});
}

std::optional<net::Address> Runtime::metrics_address() const {
  std::lock_guard lock(mutex_);
  return server_ ? std::optional(server_->address()) : std::nullopt;
}

// Not under the lock: what it waits for may ask for the metrics.
void Runtime::stop_serving() {
  std::unique_ptr<MetricsServer> server;
  {
    std::lock_guard lock(mutex_);
    server = std::move(server_);
  }
}

void Runtime::stop_timeline() { timeline_->stop(); }

}  // namespace horo::engine
