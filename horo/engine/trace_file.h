// A file that is a complete JSON array at every instant, although it grows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "horo/base/status.h"
#include "horo/net/fd.h"

namespace horo::engine {

/// Layout: `[`, one record per line, `]`, and blanks up to the end of the file. One pwrite puts `,` and new records
/// over the `]` and closes the array again; it goes into the blanks, so the file does not grow by it. Blanks are added
/// ahead of time, by writes of nothing else. So whoever reads to the end of the file finds it closed, even if it grows
/// meanwhile; a full disk is noticed while blanks are added, and leaves a closed file; and so does a process that is
/// killed between two calls.
///
/// What no order of writes can give is a consistent view to a reader whose read meets that one pwrite inside the
/// kernel, which takes a microsecond. For those who must exclude even that every write holds the file's flock
/// exclusively, and waits for readers that hold it shared.
///
/// Used by one thread.
class TraceFile {
 public:
  /// Replaces what is there. `first` is a record: `{...}`.
  static Result<TraceFile> create(const std::string& path, std::string_view first);

  /// `records` are `,\n{...}` each. False when readers hold the lock and nothing was written; not with `force`.
  /// After an error the file is closed JSON still, and takes no more.
  Result<bool> append(std::string_view records, bool force = false);
  /// Takes the blanks away.
  Status finish();

  /// Blanks are added in steps of this size.
  static constexpr uint64_t kStep = 256 << 10;

 private:
  TraceFile(net::UniqueFd descriptor, std::string path) : descriptor_(std::move(descriptor)), path_(std::move(path)) {}
  Status grow(uint64_t bytes);
  Status write_at(uint64_t offset, std::string_view bytes) const;
  Status failure(const char* what) const;

  net::UniqueFd descriptor_;
  std::string path_;
  uint64_t end_ = 0;   ///< Where the next record goes, and "\n]\n" lies now.
  uint64_t size_ = 0;  ///< With the blanks.
  std::string buffer_;
};

}  // namespace horo::engine
