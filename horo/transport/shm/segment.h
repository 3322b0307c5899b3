// Memory of one rank that its peers can read and only it can write.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "horo/base/status.h"
#include "horo/net/fd.h"

namespace horo::transport::shm {

/// A range of mapped memory; unmapped at the end of its life.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, size_t bytes) : memory_(data, bytes) {}
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  std::span<std::byte> memory() const { return memory_; }
  explicit operator bool() const { return memory_.data() != nullptr; }

 private:
  std::span<std::byte> memory_;
};

/// An anonymous file in memory (memfd). It has no name, so a crash leaves nothing behind, and it does not count against
/// the size of /dev/shm. Address space costs nothing: pages become real when they are first touched.
class Segment {
 public:
  /// Readable by peers only: sealed, so that a peer's writable mapping, its mprotect and its truncate are refused.
  static Result<Segment> create_private(const std::string& name, size_t bytes);
  /// Writable by peers: for control pages.
  static Result<Segment> create_shared(const std::string& name, size_t bytes);

  std::span<std::byte> memory() const { return mapping_.memory(); }
  const net::UniqueFd& fd() const { return fd_; }

  /// Touches [begin, begin + bytes) so that it is real memory before anybody needs it. kUnavailable, and nothing taken,
  /// if that would go beyond the memory limit of the process's cgroup.
  Status populate(size_t begin, size_t bytes) const;
  /// Whether a forked child sees this range. At first it sees nothing of a segment.
  void set_inherited(size_t begin, size_t bytes, bool inherited) const;

 private:
  static Result<Segment> create(const std::string& name, size_t bytes, unsigned seals);

  net::UniqueFd fd_;
  Mapping mapping_;
};

enum class Access : uint8_t { kRead, kReadWrite };

/// Maps a peer's segment. Checks that it is `bytes` long and sealed against changing size: otherwise the peer could
/// shorten it under us and the next read would be a SIGBUS.
Result<Mapping> map_peer(const net::UniqueFd& fd, size_t bytes, Access access);

}  // namespace horo::transport::shm
