// Memory of one rank that its peers see: for reading, or for writing too.
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
  /// Peers can only read it: a peer's writable mapping, its mprotect and its truncate are refused.
  static Result<Segment> create_private(const std::string& name, size_t bytes);
  /// Writable by peers: for control pages, and for callers' buffers.
  static Result<Segment> create_shared(const std::string& name, size_t bytes);

  std::span<std::byte> memory() const { return mapping_.memory(); }
  const net::UniqueFd& fd() const { return fd_; }
  /// What peers are given.
  const net::UniqueFd& peer_fd() const { return peer_fd_ ? peer_fd_ : fd_; }

  /// Touches [begin, begin + bytes) so that it is real memory before anybody needs it. kUnavailable, and nothing taken,
  /// if that would go beyond the memory limit of the process's cgroup.
  Status populate(size_t begin, size_t bytes) const;
  /// Gives whole pages of [begin, begin + bytes) back to the system; they read as zeros until they are touched again.
  /// Nobody may need what was in them. Does nothing where the system has no way to.
  void release(size_t begin, size_t bytes) const;
  /// Puts other memory in place of whole pages of this process's mapping, zeros that nobody else sees, for good. Peers
  /// keep theirs. What was there goes back to the system.
  void withdraw(size_t begin, size_t bytes) const;
  /// Whether a forked child sees this range. At first it sees nothing of a segment.
  void set_inherited(size_t begin, size_t bytes, bool inherited) const;

 private:
  static Result<Segment> create(const std::string& name, size_t bytes, bool writable_by_peers);
  /// False where a file cannot be opened again (no /proc).
  bool open_for_reading();

  net::UniqueFd fd_;
  net::UniqueFd peer_fd_;  ///< Of the same file, good for reading only. Missing where peers are given fd_.
  Mapping mapping_;
};

enum class Access : uint8_t { kRead, kReadWrite };

/// Maps a peer's segment. Checks that it is `bytes` long and sealed against changing size: otherwise the peer could
/// shorten it under us and the next read would be a SIGBUS.
Result<Mapping> map_peer(const net::UniqueFd& fd, size_t bytes, Access access);

}  // namespace horo::transport::shm
