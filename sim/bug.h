// Mistakes that can be planted, to see that the simulator would find them. None of them is in product code: they change
// the model, or what a node passes to and from the state machines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace horo::sim {

enum class Bug : uint8_t {
  kNone,
  kNoServe,             ///< Results that others lack are not re-served.
  kDecideAlone,         ///< A rank decides without the Flush of the others.
  kNoForward,           ///< Only the first detector tells the others.
  kSymmetricRetention,  ///< One staging buffer instead of two.
  kRootedRetention,     ///< Two retained results under a window of four.
  kWideWindow,          ///< A root runs ahead further than results are retained.
  kStaleFlush,          ///< A Flush about an earlier view counts for the current one.
  kStaleReport,         ///< The report of the first round is repeated in later ones.
  kEarlyRelease,        ///< Results are dropped when the view is installed.
  kShrunkSuccess,       ///< What has arrived counts as the whole.
  kReportWhileRunning,  ///< The report is made before the executing thread has left the operation.
  kFailAlone,           ///< Each rank fails what it has not completed, without asking.
  kHearTheLost,         ///< Results that a lost rank has sent are still taken.
  kNoFence,             ///< An evicted rank does not stop.
  kDataFirst,           ///< After a pause, data are read before control messages.
  kNoPauseReset,        ///< An observer counts its own pause as silence of the others.
  kHastyEviction,       ///< The freeze limit is a third of what is promised.
  kBlindFlush,          ///< Nobody watches the ranks that a flush waits for.
  kNoConfirm,           ///< Operations with different results per rank complete without confirmation.
  // These show only where the network is cut.
  kNoQuorum,           ///< Every side goes on.
  kQuorumOfTheLiving,  ///< The quorum does not count the dead, though others are silent.
  kSilentAreDead,      ///< Whoever is silent counts as dead.
  kHalfIsEnough,       ///< Exactly half of the ranks go on, with the lowest among them or without.
  // And these where one rank is cut off: nobody goes on.
  kNoConsent,       ///< Ranks evict without having asked.
  kBelieveAnybody,  ///< Who is told that it is evicted believes it, whoever says so.
};
/// The first of those.
inline constexpr Bug kFirstPartitionBug = Bug::kNoQuorum;
inline constexpr Bug kFirstIsolationBug = Bug::kNoConsent;

inline constexpr std::array<std::string_view, 26> kBugNames = {"none",
                                                               "no-serve",
                                                               "decide-alone",
                                                               "no-forward",
                                                               "symmetric-retention",
                                                               "rooted-retention",
                                                               "wide-window",
                                                               "stale-flush",
                                                               "stale-report",
                                                               "early-release",
                                                               "shrunk-success",
                                                               "report-while-running",
                                                               "fail-alone",
                                                               "hear-the-lost",
                                                               "no-fence",
                                                               "data-first",
                                                               "no-pause-reset",
                                                               "hasty-eviction",
                                                               "blind-flush",
                                                               "no-confirm",
                                                               "no-quorum",
                                                               "quorum-of-the-living",
                                                               "silent-are-dead",
                                                               "half-is-enough",
                                                               "no-consent",
                                                               "believe-anybody"};

constexpr std::string_view name(Bug bug) { return kBugNames[static_cast<size_t>(bug)]; }

constexpr std::optional<Bug> bug_named(std::string_view wanted) {
  for (size_t i = 0; i < kBugNames.size(); ++i) {
    if (kBugNames[i] == wanted) return static_cast<Bug>(i);
  }
  return std::nullopt;
}

}  // namespace horo::sim
