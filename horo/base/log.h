// One line per event, with rank and epoch, to standard error or to a sink of the embedding program.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "horo/base/deadline.h"
#include "horo/base/text.h"

namespace horo {

enum class LogLevel : uint8_t { kTrace = 0, kDebug, kInfo, kWarning, kError, kOff };

std::string_view name(LogLevel level);
/// "trace", "debug", "info", "warning" ("warn"), "error" ("fatal"), "off", in any case.
std::optional<LogLevel> log_level_named(std::string_view name);

/// Thread-safe. One per engine: there is no process-wide logger.
class Log {
 public:
  using Sink = std::function<void(LogLevel level, std::string_view line)>;

  explicit Log(LogLevel level = LogLevel::kWarning, Sink sink = {});

  bool enabled(LogLevel level) const { return level >= level_.load(std::memory_order_relaxed); }
  void set_level(LogLevel level) { level_.store(level, std::memory_order_relaxed); }
  /// Lines begin with the time unless it is hidden.
  void set_hide_time(bool hidden) { hide_time_.store(hidden, std::memory_order_relaxed); }
  void set_rank(int rank) { rank_.store(rank, std::memory_order_relaxed); }
  void set_epoch(uint64_t epoch) { epoch_.store(epoch, std::memory_order_relaxed); }

  template <class... Parts>
  void write(LogLevel level, const Parts&... parts) {
    if (enabled(level)) emit(level, text(parts...));
  }
  template <class... Parts>
  void debug(const Parts&... parts) {
    write(LogLevel::kDebug, parts...);
  }
  template <class... Parts>
  void info(const Parts&... parts) {
    write(LogLevel::kInfo, parts...);
  }
  template <class... Parts>
  void warning(const Parts&... parts) {
    write(LogLevel::kWarning, parts...);
  }
  template <class... Parts>
  void error(const Parts&... parts) {
    write(LogLevel::kError, parts...);
  }

  /// Like write(), but at most one line per second and `key`; the next one tells how many were left out.
  template <class... Parts>
  void limited(LogLevel level, std::string_view key, const Parts&... parts) {
    if (enabled(level)) emit_limited(level, key, text(parts...));
  }

 private:
  struct Limit {
    Time last{};
    uint64_t left_out = 0;
  };
  void emit(LogLevel level, std::string_view message);
  void emit_limited(LogLevel level, std::string_view key, std::string message);

  std::atomic<LogLevel> level_;
  std::atomic<bool> hide_time_{false};
  std::atomic<int> rank_{-1};
  std::atomic<uint64_t> epoch_{0};
  const Sink sink_;
  std::mutex mutex_;
  std::map<std::string, Limit, std::less<>> limits_;
};

}  // namespace horo
