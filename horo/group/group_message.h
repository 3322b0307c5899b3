// What members of a group tell each other over their control channels, as bytes: pure, so that it can be fuzzed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "horo/base/status.h"

namespace horo::group {

/// What a member brings to a new group.
struct GroupOffer {
  static constexpr size_t kMostSettings = 16;
  static constexpr size_t kMostSettingBytes = 1024;
  bool needs_wires = false;    ///< The group has members on other hosts. Equal for all members.
  bool shares_memory = false;  ///< With all members on its host.
  uint64_t area = 0;           ///< Its staging, in its segment.
  uint64_t page = 0;           ///< The control page of its host, in its control region, if it is the first one there.
  uint64_t attempt = 0;        ///< Counts the member's offers: it knows by it which of them the terms are about.
  /// "HORO_X=value", of what must be set alike by all members.
  std::vector<std::string> settings;
  friend bool operator==(const GroupOffer&, const GroupOffer&) = default;
};

/// What the members of a new group must know of each other.
struct GroupTerms {
  static constexpr size_t kMostRefusal = 4096;
  uint64_t id = 0;
  uint64_t epoch = 0;  ///< Of the first member when it announced the group: equal for all, and in every data frame.
  bool needs_wires = false;
  bool shares_memory = false;  ///< Every member does, with those on its host.
  std::vector<uint64_t> areas;
  std::vector<uint64_t> pages;
  std::vector<uint64_t> attempts;
  std::string refusal;  ///< Why there is no such group. Cut to kMostRefusal when written.
  friend bool operator==(const GroupTerms&, const GroupTerms&) = default;
};

/// To the first member of a new group: what the sender brings.
struct JoinGroup {
  std::vector<int> ranks;
  GroupOffer offer;
  friend bool operator==(const JoinGroup&, const JoinGroup&) = default;
};

/// From the first member, when all have come.
struct GroupReady {
  std::vector<int> ranks;
  GroupTerms terms;
  friend bool operator==(const GroupReady&, const GroupReady&) = default;
};

/// The sender gives a group up, and why.
struct AbandonGroup {
  static constexpr size_t kMostWords = 1000;
  Code code = Code::kInternal;  ///< Never kOk.
  std::string why;              ///< Cut to kMostWords when written.
  friend bool operator==(const AbandonGroup&, const AbandonGroup&) = default;
};

std::vector<std::byte> encode(const JoinGroup& join);
std::vector<std::byte> encode(const GroupReady& ready);
std::vector<std::byte> encode(const AbandonGroup& abandon);

/// `size`: of the job. kCorrupt for what the functions above do not write, and for ranks that are no group: fewer than
/// two, not in rising order, or beyond the job.
Result<JoinGroup> decode_join_group(std::span<const std::byte> bytes, int size);
Result<GroupReady> decode_group_ready(std::span<const std::byte> bytes, int size);
Result<AbandonGroup> decode_abandon_group(std::span<const std::byte> bytes);

}  // namespace horo::group
