#include "horo/ddp/buckets.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "horo/base/text.h"
#include "horo/base/view.h"

namespace horo::ddp {

namespace {

/// The bucket of one dtype and device that is being filled.
struct Open {
  Indices parameters;
  uint64_t bytes = 0;
  size_t limit = 0;  ///< Which of the limits.
  size_t begun = 0;  ///< When: place in the order of its first parameter.
};

}  // namespace

uint64_t Parameter::count() const {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1},
                         [](uint64_t product, int64_t extent) { return product * static_cast<uint64_t>(extent); });
}

Status check(const Parameter& parameter) {
  const std::string who = text("parameter '", parameter.name, "'");
  if (!is_valid(parameter.dtype)) {
    return {Code::kInvalidArgument, text(who, ": there is no element type ", static_cast<int>(parameter.dtype))};
  }
  if (!parameter.strides.empty() && parameter.strides.size() != parameter.shape.size()) {
    return {Code::kInvalidArgument,
            text(who, " has ", parameter.shape.size(), " dimensions and ", parameter.strides.size(), " strides")};
  }
  // A place to point to: only the sizes are looked at.
  std::byte nothing{};
  auto view = View::contiguous(&nothing, parameter.dtype, parameter.shape);
  if (!view.ok()) return view.status().prefixed(who);
  if (!parameter.sparse && !can_reduce(parameter.dtype, ReduceOp::kAverage)) {
    return {Code::kInvalidArgument,
            text(who, " is ", name(parameter.dtype), ", of which there is no average; leave it out of the reduction")};
  }
  return {};
}

std::vector<Indices> assign(std::span<const Parameter> parameters, std::span<const uint64_t> limits,
                            std::span<const size_t> order) {
  std::vector<Indices> closed;
  std::map<std::pair<DType, int>, Open> open;
  for (size_t at = 0; at < order.size(); ++at) {
    const Parameter& parameter = parameters[order[at]];
    if (parameter.sparse) {
      closed.push_back({order[at]});
      continue;
    }
    Open& bucket = open[{parameter.dtype, parameter.device}];
    if (bucket.parameters.empty()) bucket.begun = at;
    bucket.parameters.push_back(order[at]);
    bucket.bytes += parameter.bytes();
    if (limits.empty() || bucket.bytes < limits[bucket.limit]) continue;
    closed.push_back(std::move(bucket.parameters));
    bucket = {{}, 0, std::min(bucket.limit + 1, limits.size() - 1), 0};
  }
  std::vector<Open> rest;
  for (auto& [key, bucket] : open) {
    if (!bucket.parameters.empty()) rest.push_back(std::move(bucket));
  }
  std::sort(rest.begin(), rest.end(), [](const Open& a, const Open& b) { return a.begun < b.begun; });
  for (Open& bucket : rest) closed.push_back(std::move(bucket.parameters));
  return closed;
}

std::vector<Indices> first_buckets(std::span<const Parameter> parameters, std::span<const uint64_t> limits) {
  Indices order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  auto buckets = assign(parameters, limits, order);
  // Within a bucket numbers rise, so its first is its lowest.
  std::sort(buckets.begin(), buckets.end(), [](const Indices& a, const Indices& b) { return a[0] > b[0]; });
  return buckets;
}

std::vector<Indices> rebuilt_buckets(std::span<const Parameter> parameters, std::span<const uint64_t> limits,
                                     std::span<const size_t> order, bool small_last) {
  if (!small_last) return assign(parameters, limits, order);
  const Indices backwards(order.rbegin(), order.rend());
  auto buckets = assign(parameters, limits, backwards);
  std::reverse(buckets.begin(), buckets.end());
  for (Indices& bucket : buckets) std::reverse(bucket.begin(), bucket.end());
  return buckets;
}

bool is_partition(const std::vector<Indices>& buckets, size_t count) {
  std::vector<bool> seen(count, false);
  size_t total = 0;
  for (const Indices& bucket : buckets) {
    if (bucket.empty()) return false;
    for (size_t parameter : bucket) {
      if (parameter >= count || seen[parameter]) return false;
      seen[parameter] = true;
      ++total;
    }
  }
  return total == count;
}

Layout::Layout(std::span<const Parameter> parameters, const std::vector<Indices>& buckets) : slots_(parameters.size()) {
  for (const Indices& members : buckets) {
    Bucket bucket;
    bucket.parameters = members;
    bucket.dtype = parameters[members[0]].dtype;
    bucket.sparse = parameters[members[0]].sparse;
    for (size_t place = 0; place < members.size(); ++place) {
      slots_[members[place]] = {buckets_.size(), place};
      bucket.begins.push_back(bucket.elements);
      bucket.elements += parameters[members[place]].count();
    }
    buckets_.push_back(std::move(bucket));
  }
}

uint64_t Layout::offset(size_t parameter) const {
  const Slot& slot = slots_[parameter];
  const Bucket& bucket = buckets_[slot.bucket];
  return bucket.begins[slot.place] * size_of(bucket.dtype);
}

std::vector<Indices> Layout::groups() const {
  std::vector<Indices> groups;
  for (const Bucket& bucket : buckets_) groups.push_back(bucket.parameters);
  return groups;
}

}  // namespace horo::ddp
