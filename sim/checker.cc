#include "sim/checker.h"

#include <algorithm>
#include <utility>

#include "horo/base/text.h"

namespace horo::sim {

namespace {

/// Longer than any message of the simulated network is under way.
constexpr Duration kLongestMessage = std::chrono::milliseconds(20);
/// Rounds of forwarding included.
constexpr Duration kToldWithin = std::chrono::milliseconds(30);
constexpr Duration kEvictableAfter = std::chrono::milliseconds(900);

}  // namespace

void Checker::violated(std::string what) {
  if (!violation_) violation_ = std::move(what);
}

void Checker::succeeded(int rank, uint64_t group, uint64_t number) {
  Rank& state = ranks_[static_cast<size_t>(rank)];
  Progress& progress = state.groups[group];
  if (number != progress.completed + 1) {
    violated(text("rank ", rank, " completed operation ", number, " of group ", group, " after ", progress.completed));
  }
  if (progress.failed_from && number >= *progress.failed_from) {
    violated(text("rank ", rank, " completed operation ", number, " of group ", group, " after failing from ",
                  *progress.failed_from));
  }
  progress.completed = number;
  if (state.late_thaw) progress.completed_when_evicted = number;
}

void Checker::failed(int rank, uint64_t group, uint64_t from_number) {
  Progress& progress = ranks_[static_cast<size_t>(rank)].groups[group];
  if (from_number <= progress.completed) {
    violated(text("rank ", rank, " failed operation ", from_number, " of group ", group, " after completing it"));
  }
  progress.failed_from = std::min(progress.failed_from.value_or(from_number), from_number);
}

void Checker::installed(int rank, uint64_t epoch, const rendezvous::LostSet& lost) {
  std::vector<int> ranks = lost.ranks();
  auto [known, fresh] = views_.emplace(epoch, ranks);
  if (known->second != ranks) {
    violated(text("rank ", rank, " installed epoch ", epoch, " without ", ranks_text(ranks), ", another without ",
                  ranks_text(known->second)));
  }
  for (const auto& [other_epoch, other] : views_) {
    const auto& small = other_epoch < epoch ? other : ranks;
    const auto& large = other_epoch < epoch ? ranks : other;
    if (!std::includes(large.begin(), large.end(), small.begin(), small.end())) {
      violated(text("the views of epochs ", other_epoch, " and ", epoch, " are no chain"));
    }
  }
}

void Checker::learned(int rank, const rendezvous::LostSet& lost, Time now) {
  for (const auto& loss : lost.losses()) ranks_[static_cast<size_t>(rank)].learned.emplace(loss.rank, now);
}

void Checker::evicted(int victim, Time now) {
  Rank& state = ranks_[static_cast<size_t>(victim)];
  if (state.fenced) return;
  // Its answer may still be under way when it has just thawed.
  const bool just_thawed = state.thawed && now - *state.thawed < kLongestMessage && state.was_frozen >= kEvictableAfter;
  if (!just_thawed && (!state.frozen || now - *state.frozen < kEvictableAfter)) {
    violated(text("rank ", victim, " was evicted though it was not frozen for long"));
  }
  if (!state.evicted) state.evicted = now;
}

void Checker::froze(int rank, Time now) { ranks_[static_cast<size_t>(rank)].frozen = now; }

void Checker::thawed(int rank, Time now) {
  Rank& state = ranks_[static_cast<size_t>(rank)];
  state.was_frozen = state.frozen ? now - *state.frozen : Duration::zero();
  state.frozen.reset();
  state.thawed = now;
  state.late_thaw = state.evicted && now - *state.evicted > kLongestMessage;
}

void Checker::finish(const std::vector<int>& survivors, const std::vector<int>& fenced) {
  check_uniform(survivors);
  check_told(survivors);
  check_fence(survivors, fenced);
}

void Checker::check_uniform(const std::vector<int>& survivors) {
  std::map<uint64_t, std::pair<int, uint64_t>> furthest;  // Rank and operation by group.
  std::map<uint64_t, std::pair<int, uint64_t>> failed_at;
  for (int rank : survivors) {
    for (const auto& [group, progress] : ranks_[static_cast<size_t>(rank)].groups) {
      auto& far = furthest.try_emplace(group, rank, 0).first->second;
      if (progress.completed > far.second) far = {rank, progress.completed};
      if (!progress.failed_from) continue;
      auto [known, fresh] = failed_at.try_emplace(group, rank, *progress.failed_from);
      if (*progress.failed_from < known->second.second) known->second = {rank, *progress.failed_from};
    }
  }
  for (const auto& [group, failure] : failed_at) {
    const auto& far = furthest[group];
    if (far.second >= failure.second) {
      violated(text("operation ", far.second, " of group ", group, " succeeded on rank ", far.first,
                    " and failed on rank ", failure.first));
    }
  }
}

void Checker::check_told(const std::vector<int>& survivors) {
  std::map<int, Time> first;
  for (int rank : survivors) {
    for (const auto& [lost, when] : ranks_[static_cast<size_t>(rank)].learned) {
      auto [known, fresh] = first.emplace(lost, when);
      known->second = std::min(known->second, when);
    }
  }
  for (const auto& [lost, when] : first) {
    for (int rank : survivors) {
      const Rank& state = ranks_[static_cast<size_t>(rank)];
      auto learned = state.learned.find(lost);
      Time excused = state.thawed.value_or(when);
      if (learned == state.learned.end()) {
        violated(text("rank ", rank, " never learned that rank ", lost, " is gone"));
      } else if (learned->second > std::max(when, excused) + kToldWithin) {
        violated(text("rank ", rank, " learned late that rank ", lost, " is gone"));
      }
    }
  }
}

void Checker::check_fence(const std::vector<int>& survivors, const std::vector<int>& fenced) {
  for (int rank : fenced) {
    for (const auto& [group, progress] : ranks_[static_cast<size_t>(rank)].groups) {
      for (int survivor : survivors) {
        const auto& groups = ranks_[static_cast<size_t>(survivor)].groups;
        auto there = groups.find(group);
        if (there == groups.end() || !there->second.failed_from) continue;
        if (progress.completed_when_evicted >= *there->second.failed_from) {
          violated(text("the evicted rank ", rank, " completed operation ", progress.completed_when_evicted,
                        " of group ", group, ", which failed on rank ", survivor));
        }
      }
    }
  }
}

}  // namespace horo::sim
