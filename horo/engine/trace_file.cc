#include "horo/engine/trace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "horo/base/text.h"

namespace horo::engine {

namespace {

constexpr std::string_view kTail = "\n]\n";

}  // namespace

Status TraceFile::failure(const char* what) const {
  const int error = errno;
  return {Code::kUnavailable,
          text("timeline '", path_, "': cannot ", what, ": ", std::generic_category().message(error))};
}

Result<TraceFile> TraceFile::create(const std::string& path, std::string_view first) {
  // Without O_NONBLOCK the name of a pipe would hold us up until somebody reads it.
  TraceFile file(net::UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666)),
                 path);
  if (!file.descriptor_) return file.failure("open it");
  struct stat facts {};
  if (::fstat(file.descriptor_.get(), &facts) != 0) return file.failure("look at it");
  if (S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode)) {
    return Status(Code::kInvalidArgument, text("timeline '", path, "' must be a file, and is a pipe or a socket"));
  }
  if (S_ISREG(facts.st_mode) && ::ftruncate(file.descriptor_.get(), 0) != 0) return file.failure("empty it");
  const std::string start = text("[\n", first);
  HORO_TRY(file.write_at(0, text(start, kTail)));
  file.end_ = start.size();
  file.size_ = start.size() + kTail.size();
  HORO_TRY(file.grow(0));
  return file;
}

Status TraceFile::write_at(uint64_t offset, std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure("write");
    if (written == 0) return {Code::kUnavailable, text("timeline '", path_, "': nothing can be written any more")};
    offset += static_cast<uint64_t>(written);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

// A step more than needed: a reader that was at the end before finds blanks behind it, and not yet records.
Status TraceFile::grow(uint64_t bytes) {
  const uint64_t wanted = end_ + bytes + kTail.size() + kStep;
  if (size_ >= wanted) return {};
  const uint64_t size = (wanted + kStep - 1) / kStep * kStep;
  std::string blanks(size - size_, ' ');
  blanks.back() = '\n';
  HORO_TRY(write_at(size_, blanks));
  size_ = size;
  return {};
}

Result<bool> TraceFile::append(std::string_view records, bool force) {
  if (records.empty()) return true;
  const bool locked = ::flock(descriptor_.get(), LOCK_EX | LOCK_NB) == 0;
  if (!locked && errno == EWOULDBLOCK && !force) return false;
  Status status = grow(records.size());
  if (status.ok()) {
    buffer_.assign(records);
    buffer_ += kTail;
    status = write_at(end_, buffer_);
    // Half a record must not stay: what is under it is ours, so putting the old end back needs no room.
    if (!status.ok() && !write_at(end_, text(kTail, std::string(records.size(), ' '))).ok()) {
      status = status.prefixed("the file is left unclosed");
    }
    if (status.ok()) end_ += records.size();
  }
  if (locked) ::flock(descriptor_.get(), LOCK_UN);
  if (!status.ok()) return status;
  return true;
}

Status TraceFile::finish() {
  struct stat facts {};
  if (::fstat(descriptor_.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return {};
  if (::ftruncate(descriptor_.get(), static_cast<off_t>(end_ + kTail.size())) != 0) return failure("shorten it");
  return {};
}

}  // namespace horo::engine
