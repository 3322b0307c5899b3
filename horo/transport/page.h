// The control page of a group: the only memory that all its members on a host write.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "horo/transport/signature.h"
#include "horo/transport/word.h"

namespace horo::transport {

inline constexpr size_t kCacheLine = 64;
/// What fits into an arrival's own cache line beside its word and signature.
inline constexpr size_t kInlineBytes = 40;

/// "I am at operation k, which I take to be this": one line per peer and operation, so that a small operation costs one
/// cache miss per peer. Written by its owner before the word advances to k; rewritten for k + 2, when the owner has
/// seen all members at k + 1 and so knows that everybody has read it.
struct alignas(kCacheLine) Arrival {
  Word word;
  Signature signature;
  std::array<std::byte, kInlineBytes> payload;
};
static_assert(sizeof(Arrival) == kCacheLine);

struct alignas(kCacheLine) Progress {
  Word word;
};
static_assert(sizeof(Progress) == kCacheLine);

/// The words of one member. Progress counts are `progress_count(k, n)`: step n of operation k.
struct MemberWords {
  std::array<Arrival, 2> arrival;  ///< Of even and odd operations.
  Progress copied;                 ///< How much of its contribution lies in its segment.
  Progress reduced;                ///< How much of its slice is reduced.
  Progress taken;                  ///< How much it has read from the others. Never decides an outcome.
  Progress device;                 ///< How far its queue on a device has come: points of all operations there.
};

constexpr uint64_t progress_count(uint64_t operation, uint64_t step) { return (operation << 20) | step; }
inline constexpr uint64_t kMaxSteps = (uint64_t{1} << 20) - 1;

/// A view of the page of a group of `size` members. Copyable; owns nothing.
class ControlPage {
 public:
  ControlPage() = default;
  ControlPage(std::byte* memory, int size) : members_(reinterpret_cast<MemberWords*>(memory)), size_(size) {}

  static size_t bytes(int size) { return sizeof(MemberWords) * static_cast<size_t>(size); }

  int size() const { return size_; }
  MemberWords& operator[](int member) const { return members_[member]; }

  /// Ends the group: freezes every word that decides an outcome, and marks `evicted` as gone. After it returns, what
  /// the words say is final, whoever else revokes at the same time. Safe to call from any member, any number of times.
  void revoke(const std::vector<int>& evicted) const;

  bool revoked(int self) const { return members_[self].arrival[0].word.read().revoked(); }
  bool evicted(int member) const { return members_[member].arrival[0].word.read().evicted(); }
  std::vector<int> evicted() const;

 private:
  MemberWords* members_ = nullptr;
  int size_ = 0;
};

}  // namespace horo::transport
