#include "horo/collective/plan.h"

#include <algorithm>
#include <array>

namespace horo::collective {

namespace {

/// Calls visit(phase, range) for everything that a phase reads or writes.
template <class Visit>
void visit_touched(const Plan& plan, Visit visit) {
  for (size_t phase = 0; phase < plan.phases.size(); ++phase) {
    for (const Transfer& transfer : plan.transfers_of(phase)) {
      visit(phase, transfer.range);
      if (transfer.action == TransferAction::kReceiveCombine) visit(phase, Range{transfer.with, transfer.range.count});
    }
    for (const Work& work : plan.works_of(phase)) {
      visit(phase, work.into);
      for (Place source : plan.sources_of(work)) visit(phase, Range{source, work.into.count});
    }
  }
}

/// Cuts the result where the phases that touch it last differ.
std::vector<Delivery> deliveries_of(const Plan& plan, const Range& result) {
  if (result.count == 0) return {};
  const auto end = static_cast<uint32_t>(plan.phases.size());
  const bool in_parts = result.place == Place{Buffer::kWork, 0} && end > 1;
  if (!in_parts) return {{result, 0, end}};
  std::vector<uint64_t> borders = {0, result.count};
  visit_touched(plan, [&](size_t, const Range& range) {
    if (range.place.buffer == Buffer::kScratch) return;
    borders.push_back(std::min(range.place.offset, result.count));
    borders.push_back(std::min(range.place.offset + range.count, result.count));
  });
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  std::vector<uint32_t> free_from(borders.size() - 1, 0);
  visit_touched(plan, [&](size_t phase, const Range& range) {
    if (range.place.buffer == Buffer::kScratch) return;
    auto part = std::lower_bound(borders.begin(), borders.end(), range.place.offset) - borders.begin();
    const uint64_t last = std::min(range.place.offset + range.count, result.count);
    for (auto at = static_cast<size_t>(part); at < free_from.size() && borders[at] < last; ++at) {
      free_from[at] = static_cast<uint32_t>(phase + 1);
    }
  });
  std::vector<Delivery> deliveries;
  for (size_t part = 0; part < free_from.size(); ++part) {
    const uint64_t count = borders[part + 1] - borders[part];
    if (part > 0 && free_from[part] == free_from[part - 1]) {
      deliveries.back().from.count += count;
    } else {
      deliveries.push_back({{result.place.at(borders[part]), count}, borders[part], free_from[part]});
    }
  }
  std::stable_sort(deliveries.begin(), deliveries.end(),
                   [](const Delivery& one, const Delivery& other) { return one.phase < other.phase; });
  return deliveries;
}

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
  plan.deliveries = deliveries_of(plan, result_);
  return plan;
}

}  // namespace horo::collective
