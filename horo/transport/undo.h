// What an operation overwrites, so that it can be put back.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace horo::transport {

/// Copies of parts of a caller's memory, each made just before the part is written to for the first time, while it is
/// in the cache anyway. Used by the thread that runs the operation.
class Undo {
 public:
  /// From now on parts of `memory` are kept, each at its place in `kept`, which is as long. Null: nothing is kept.
  void begin(std::span<std::byte> memory, std::byte* kept);
  bool keeps() const { return kept_ != nullptr; }

  /// [at, at + bytes) of memory is about to be overwritten for the first time.
  void keep(const std::byte* at, size_t bytes);
  /// Memory holds what it held when each part of it was kept.
  void put_back() const;

 private:
  struct Run {
    size_t offset, bytes;
  };

  std::span<std::byte> memory_;
  std::byte* kept_ = nullptr;
  std::vector<Run> runs_;
};

}  // namespace horo::transport
