#include "horo/collective/plan.h"

#include <algorithm>
#include <array>

namespace horo::collective {

namespace {

constexpr size_t kLocal = SIZE_MAX;  // In place of a transfer.

/// Calls visit(phase, range, transfer) for everything in work that a phase writes.
template <class Visit>
void visit_writes(const Plan& plan, Visit visit) {
  const auto visit_work = [&](size_t phase, const Range& range, size_t transfer) {
    if (range.place.buffer == Buffer::kWork && range.count > 0) visit(static_cast<uint32_t>(phase), range, transfer);
  };
  for (size_t phase = 0, transfer = 0; phase < plan.phases.size(); ++phase) {
    for (; transfer < plan.phases[phase].transfers_end; ++transfer) {
      const Transfer& one = plan.transfers[transfer];
      if (one.action != TransferAction::kSend) visit_work(phase, one.range, transfer);
    }
    for (const Work& work : plan.works_of(phase)) visit_work(phase, work.into, kLocal);
  }
}

/// Work, cut where the phases differ that write to it first, or last.
class Written {
 public:
  explicit Written(const Plan& plan) : borders_{0, plan.work_count} {
    visit_writes(plan, [&](uint32_t, const Range& range, size_t) {
      borders_.push_back(range.place.offset);
      borders_.push_back(range.place.offset + range.count);
    });
    std::sort(borders_.begin(), borders_.end());
    borders_.erase(std::unique(borders_.begin(), borders_.end()), borders_.end());
    parts_.resize(borders_.size() - 1);
    visit_writes(plan, [&](uint32_t phase, const Range& range, size_t transfer) {
      for (Part& part : parts_of(range)) {
        if (!part.written) part = {true, phase, transfer, phase};
        part.last = phase;
      }
    });
  }

  /// Whether this receive is the first that writes to its range, all of it.
  bool is_first(const Transfer& receive, size_t transfer) {
    if (receive.action == TransferAction::kSend || receive.range.place.buffer != Buffer::kWork) return false;
    const std::span<Part> parts = parts_of(receive.range);
    return std::all_of(parts.begin(), parts.end(), [&](const Part& part) { return part.first_by == transfer; });
  }

  std::vector<Overwrite> overwrites(const Plan& plan) const {
    const auto is_kept = [&](const Part& part) {
      return part.written && (part.first_by == kLocal || !plan.transfers[part.first_by].keeps);
    };
    return cut<Overwrite>(is_kept, &Part::first, [](const Range& range, uint32_t phase) {
      return Overwrite{range, phase};
    });
  }
  std::vector<Delivery> deliveries() const {
    return cut<Delivery>([](const Part&) { return true; }, &Part::last,
                         [](const Range& range, uint32_t phase) {
                           return Delivery{range, range.place.offset, phase + 1};
                         });
  }

 private:
  struct Part {
    bool written = false;
    uint32_t first = 0;
    size_t first_by = kLocal;  ///< The transfer that wrote first.
    uint32_t last = 0;
  };

  std::span<Part> parts_of(const Range& range) {
    const auto at = [&](uint64_t offset) {
      return static_cast<size_t>(std::lower_bound(borders_.begin(), borders_.end(), offset) - borders_.begin());
    };
    const size_t begin = at(range.place.offset);
    return std::span(parts_).subspan(begin, at(range.place.offset + range.count) - begin);
  }

  /// Neighbours of the same phase are one.
  template <class Item, class Selected, class Make>
  std::vector<Item> cut(Selected selected, uint32_t Part::*phase, Make make) const {
    std::vector<Item> items;
    for (size_t begin = 0, end = 0; begin < parts_.size(); begin = end) {
      end = begin + 1;
      if (!selected(parts_[begin])) continue;
      while (end < parts_.size() && selected(parts_[end]) && parts_[end].*phase == parts_[begin].*phase) ++end;
      items.push_back(make({{Buffer::kWork, borders_[begin]}, borders_[end] - borders_[begin]}, parts_[begin].*phase));
    }
    std::stable_sort(items.begin(), items.end(),
                     [](const Item& one, const Item& other) { return one.phase < other.phase; });
    return items;
  }

  std::vector<uint64_t> borders_;
  std::vector<Part> parts_;
};

}  // namespace

std::span<const Transfer> Plan::transfers_of(size_t phase) const {
  size_t begin = phase == 0 ? 0 : phases[phase - 1].transfers_end;
  return std::span(transfers).subspan(begin, phases[phase].transfers_end - begin);
}

std::span<const Work> Plan::works_of(size_t phase) const {
  size_t begin = phase == 0 ? 0 : phases[phase - 1].works_end;
  return std::span(works).subspan(begin, phases[phase].works_end - begin);
}

std::span<const Place> Plan::sources_of(const Work& work) const {
  return std::span(sources).subspan(work.first_source, work.sources);
}

Draft::Content& Draft::content(size_t phase) {
  if (phase >= phases_.size()) phases_.resize(phase + 1);
  return phases_[phase];
}

void Draft::send(size_t phase, int peer, Range from) {
  if (from.count > 0) send_always(phase, peer, from);
}

void Draft::receive(size_t phase, int peer, Range into) {
  if (into.count > 0) receive_always(phase, peer, into);
}

void Draft::send_always(size_t phase, int peer, Range from) {
  content(phase).transfers.push_back({TransferAction::kSend, peer, from, {}});
}

void Draft::receive_always(size_t phase, int peer, Range into) {
  content(phase).transfers.push_back({TransferAction::kReceive, peer, into, {}});
}

void Draft::receive_combine(size_t phase, int peer, Range into, Place with) {
  if (into.count > 0) content(phase).transfers.push_back({TransferAction::kReceiveCombine, peer, into, with});
}

void Draft::copy(size_t phase, Range into, Place from) {
  if (into.place != from) work(phase, WorkAction::kCopy, into, {&from, 1}, false);
}

void Draft::combine(size_t phase, Range into, std::span<const Place> sources, bool scale_after) {
  work(phase, WorkAction::kCombine, into, sources, scale_after);
}

void Draft::combine(size_t phase, Range into, Place first, Place second) {
  combine(phase, into, std::array{first, second}, false);
}

void Draft::scale_before(size_t phase, Range into, Place from) {
  work(phase, WorkAction::kScaleBefore, into, {&from, 1}, false);
}

void Draft::scale_after(size_t phase, Range into, Place from) {
  work(phase, WorkAction::kScaleAfter, into, {&from, 1}, false);
}

void Draft::work(size_t phase, WorkAction action, Range into, std::span<const Place> sources, bool scale_after) {
  if (into.count == 0) return;
  auto first = static_cast<uint32_t>(sources_.size());
  sources_.insert(sources_.end(), sources.begin(), sources.end());
  content(phase).works.push_back({action, scale_after, into, first, static_cast<uint32_t>(sources.size())});
}

Place Draft::scratch(uint64_t count) {
  Place place{Buffer::kScratch, scratch_count_};
  scratch_count_ += count;
  return place;
}

Plan Draft::finish(const Arithmetic& arithmetic) && {
  Plan plan;
  plan.arithmetic = arithmetic;
  plan.scratch_count = scratch_count_;
  plan.sources = std::move(sources_);
  auto count_work = [&](const Range& range) {
    if (range.place.buffer == Buffer::kWork) {
      plan.work_count = std::max(plan.work_count, range.place.offset + range.count);
    }
  };
  for (Content& content : phases_) {
    if (content.transfers.empty() && content.works.empty()) continue;
    for (const Transfer& transfer : content.transfers) count_work(transfer.range);
    for (const Work& work : content.works) count_work(work.into);
    plan.transfers.insert(plan.transfers.end(), content.transfers.begin(), content.transfers.end());
    plan.works.insert(plan.works.end(), content.works.begin(), content.works.end());
    plan.phases.push_back({static_cast<uint32_t>(plan.transfers.size()), static_cast<uint32_t>(plan.works.size())});
  }
  Written written(plan);
  for (size_t i = 0; i < plan.transfers.size(); ++i) plan.transfers[i].keeps = written.is_first(plan.transfers[i], i);
  plan.overwrites = written.overwrites(plan);
  // The result is all of work, but for a member that is alone: that gets what it gave.
  const bool in_work = result_.place == Place{Buffer::kWork, 0} && result_.count == plan.work_count;
  if (in_work) {
    plan.deliveries = written.deliveries();
  } else if (result_.count > 0) {
    plan.deliveries.push_back({result_, 0, static_cast<uint32_t>(plan.phases.size())});
  }
  return plan;
}

}  // namespace horo::collective
