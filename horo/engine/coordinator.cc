#include "horo/engine/coordinator.h"

#include <algorithm>
#include <set>

#include "horo/base/text.h"

namespace horo::engine {

namespace {

constexpr int kMostShrinking = 20;

}  // namespace

void Window::expired(size_t units) {
  length_ = units > 1 ? std::min(length_ * 2, longest_) : std::max(length_ / 2, longest_ / kMostShrinking);
}

Coordinator::Coordinator(CoordinatorOptions options, const Cache& cache)
    : options_(std::move(options)), cache_(cache), recency_(options_.cache_capacity), window_(options_.window) {}

std::string Coordinator::members_text(const std::vector<int>& members) const {
  std::vector<int> ranks;
  for (int member : members) ranks.push_back(options_.ranks[static_cast<size_t>(member)]);
  return ranks_text(ranks);
}

/// A root is a member to the engine and a rank to people.
Unit Coordinator::for_people(Unit unit) const {
  for (Tensor& tensor : unit.tensors) {
    const auto root = static_cast<size_t>(tensor.root);
    if (tensor.kind == Kind::kBroadcast && root < options_.ranks.size()) tensor.root = options_.ranks[root];
  }
  return unit;
}

void Coordinator::complete(Merge::Complete complete, const std::set<int>& joined, Time now) {
  UnitPtr unit = complete.id != 0 ? cache_.share(complete.id)
                                  : std::make_shared<Unit>(std::move(complete.arrived.variants.front().unit));
  if (complete.arrived.variants.size() > 1) return fail_to_agree(*unit, complete.arrived.variants);
  if (complete.arrived.partial && unit->kind() != Kind::kAllreduce && unit->kind() != Kind::kBarrier) {
    failures_.push_back(
        {unit->key(), text(name(unit->kind()), " of tensor '", unit->key(), "' is not possible while ",
                           members_text({joined.begin(), joined.end()}), joined.size() == 1 ? " has" : " have",
                           " joined; only allreduce and barrier are")});
    return;
  }
  if (ready_.empty()) first_ready_ = now;
  ready_bytes_ += unit->bytes();
  urgent_ |= unit->kind() == Kind::kBarrier || unit->kind() == Kind::kAddSet || unit->kind() == Kind::kRemoveSet;
  ready_.push_back({complete.id, std::move(unit)});
}

void Coordinator::fail_to_agree(const Unit& unit, const std::vector<Variant>& variants) {
  const Difference found = difference(for_people(unit), for_people(variants[1].unit));
  failures_.push_back(
      {unit.key(), text("the ranks do not agree about ", name(unit.kind()), " of tensor '", found.tensor,
                        "': different ", found.what, ", ", found.left, " on ", members_text(variants[0].members),
                        " and ", found.right, " on ", members_text(variants[1].members))});
}

bool Coordinator::should_close(bool somebody_waits, Time now) {
  if (ready_.empty()) return false;
  if (somebody_waits || urgent_ || ready_bytes_ >= std::min(kEnough, options_.fusion.threshold)) return true;
  if (now < first_ready_ + window_.length()) return false;
  window_.expired(ready_.size());
  return true;
}

Down Coordinator::close(bool somebody_waits, const Merge& merge, Time now) {
  Down down;
  down.failures = std::exchange(failures_, {});
  if (!should_close(somebody_waits, now)) return down;
  std::vector<uint32_t> used;  // Rising.
  for (const Ready& ready : ready_) {
    if (ready.id != 0) used.push_back(ready.id);
  }
  std::sort(used.begin(), used.end());
  const auto in_use = [&](uint32_t id) { return std::binary_search(used.begin(), used.end(), id); };
  std::vector<const Unit*> units;
  std::vector<Item> items;
  units.reserve(ready_.size());
  items.reserve(ready_.size());
  for (const Ready& ready : ready_) {
    Item& item = items.emplace_back(Item{ready.id, std::nullopt});
    units.push_back(ready.unit.get());
    if (ready.id != 0) {
      recency_.touch(ready.id);
      continue;
    }
    // The same name with other terms: the old number goes.
    if (uint32_t old = cache_.id_of(ready.unit->key()); old != 0 && !in_use(old)) {
      down.forgotten.push_back(old);
      recency_.remove(old);
    }
    item.unit = *ready.unit;
    if (recency_.capacity() == 0) continue;
    item.id = recency_.add();
    used.push_back(item.id);  // Larger than all before it.
  }
  const auto busy = [&](uint32_t id) {
    const Unit* unit = cache_.find(id);
    return in_use(id) || (unit != nullptr && merge.busy(unit->key()));
  };
  std::vector<uint32_t> surplus = recency_.surplus(busy);
  down.forgotten.insert(down.forgotten.end(), surplus.begin(), surplus.end());
  std::sort(down.forgotten.begin(), down.forgotten.end());
  for (const std::vector<size_t>& batch : plan_fusion(units, options_.fusion)) {
    Batch& out = down.batches.emplace_back();
    for (size_t index : batch) out.items.push_back(std::move(items[index]));
  }
  ready_.clear();
  ready_bytes_ = 0;
  urgent_ = false;
  return down;
}

Deadline Coordinator::next() const {
  return ready_.empty() ? Deadline::never() : Deadline(first_ready_ + window_.length());
}

}  // namespace horo::engine
