// How the ranks compare their models, and tell each other why an iteration failed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/ddp/buckets.h"
#include "horo/ddp/exchange.h"
#include "horo/group/group.h"

namespace horo::ddp {

/// One line for each parameter: what must be equal on all ranks.
std::vector<std::string> describe(std::span<const Parameter> parameters);

/// The first line in which two models differ, with both values; none when they are equal.
std::optional<std::string> difference(const std::vector<std::string>& mine, int my_rank,
                                      const std::vector<std::string>& theirs, int their_rank);

/// Called by all members: compares the lines of all. kMismatch, with the same words on all members, names the first
/// that differs from those of the first member.
Status agree_on(group::Group& group, const std::vector<std::string>& lines);

/// Rank 0's buckets on all members.
Result<std::vector<Indices>> agree_on_buckets(group::Group& group, const std::vector<Indices>& mine, size_t parameters);

/// Why an iteration failed here, for all members, and what they say. An allgather: a member that has nothing to
/// complain about calls something else at that moment, and so learns that it failed (kMismatch).
class Reasons {
 public:
  /// Of each member on the way: no bucket's operation has as many bytes.
  static constexpr size_t kBytes = 1019;

  /// Success where this member knows of none.
  Reasons(const Status& mine, int members);
  Exchange* exchange() { return &exchange_; }
  /// After the exchange: the reason of the first member that has one, as all members see it. A mismatch goes behind:
  /// that is how other members' failures look.
  std::optional<Status> first(const std::vector<int>& ranks) const;

 private:
  std::vector<std::byte> mine_, all_;
  SingleExchange exchange_;
};

}  // namespace horo::ddp
