#include "horo/engine/tuning_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "horo/base/text.h"

namespace horo::engine {

Result<std::unique_ptr<TuningLog>> TuningLog::open(const std::string& path) {
  net::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) {
    return Status(Code::kInvalidArgument, text("HORO_AUTOTUNE_LOG: cannot write ", path, ": ", std::strerror(errno)));
  }
  std::unique_ptr<TuningLog> log(new TuningLog(std::move(file), path));
  HORO_TRY(log->append(tuning_log_header() + "\n"));
  return log;
}

Status TuningLog::write(const std::vector<Measured>& measured) {
  std::string lines;
  for (const Measured& one : measured) lines += tuning_log_line(one) + "\n";
  return append(lines);
}

Status TuningLog::append(const std::string& lines) {
  size_t written = 0;
  while (written < lines.size()) {
    const ssize_t count = ::write(file_.get(), lines.data() + written, lines.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {Code::kUnavailable, text("cannot write to ", path_, ": ", std::strerror(errno))};
    written += static_cast<size_t>(count);
  }
  return {};
}

}  // namespace horo::engine
