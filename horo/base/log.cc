#include "horo/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <ctime>

namespace horo {

namespace {

constexpr std::array<std::string_view, 6> kLevelNames = {"trace", "debug", "info", "warning", "error", "off"};

std::string wall_clock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char buffer[40];
  size_t length = std::strftime(buffer, sizeof buffer, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(buffer + length, sizeof buffer - length, ".%03ldZ", now.tv_nsec / 1'000'000);
  return buffer;
}

// Names that somebody else chose must neither begin a line of their own nor command a terminal.
std::string printable(std::string_view message) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string safe;
  safe.reserve(message.size());
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      safe.push_back(c);
    } else {
      safe += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return safe;
}

// One write(2) per line: lines of several ranks that share a terminal do not mix.
void write_to_stderr(std::string line) {
  line.push_back('\n');
  const char* data = line.data();
  size_t left = line.size();
  while (left > 0) {
    ssize_t written = ::write(STDERR_FILENO, data, left);
    if (written <= 0) return;  // Nobody reads our log any more; there is nowhere left to say so.
    data += written;
    left -= static_cast<size_t>(written);
  }
}

}  // namespace

std::string_view name(LogLevel level) { return kLevelNames[static_cast<size_t>(level)]; }

std::optional<LogLevel> log_level_named(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "warn") return LogLevel::kWarning;
  if (lower == "fatal") return LogLevel::kError;
  auto found = std::find(kLevelNames.begin(), kLevelNames.end(), lower);
  if (found == kLevelNames.end()) return std::nullopt;
  return static_cast<LogLevel>(found - kLevelNames.begin());
}

Log::Log(LogLevel level, Sink sink) : level_(level), sink_(std::move(sink)) {}

void Log::emit(LogLevel level, std::string_view message) {
  const bool hide_time = hide_time_.load(std::memory_order_relaxed);
  std::string line = text(hide_time ? "" : wall_clock() + " ", "horo ", name(level));
  if (int rank = rank_.load(std::memory_order_relaxed); rank >= 0) {
    line += text(" [rank ", rank, " epoch ", epoch_.load(std::memory_order_relaxed), "]");
  }
  line += " " + printable(message);
  if (sink_) {
    sink_(level, line);
  } else {
    write_to_stderr(std::move(line));
  }
}

void Log::emit_limited(LogLevel level, std::string_view key, std::string message) {
  {
    std::lock_guard lock(mutex_);
    auto found = limits_.try_emplace(std::string(key)).first;
    Limit& limit = found->second;
    Time now = Clock::now();
    if (limit.last != Time{} && now - limit.last < std::chrono::seconds(1)) {
      ++limit.left_out;
      return;
    }
    limit.last = now;
    if (limit.left_out > 0) message += text(" (", limit.left_out, " like it left out)");
    limit.left_out = 0;
  }
  emit(level, message);
}

}  // namespace horo
