// Which parameters share a bucket, and where each lies in it. Pure functions of the parameters, equal on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "horo/base/dtype.h"
#include "horo/base/status.h"

namespace horo::ddp {

using Indices = std::vector<size_t>;

struct Parameter {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  ///< Empty: one row after the other.
  int device = 0;                ///< Parameters with different ones share no bucket.
  bool sparse = false;           ///< A bucket of its own, which the caller reduces.

  uint64_t count() const;
  uint64_t bytes() const { return count() * size_of(dtype); }
};

/// kInvalidArgument, naming it, for a parameter that cannot be reduced or whose shape makes no sense.
Status check(const Parameter& parameter);

/// Goes through `order` and puts parameters of one dtype and device together until they have as many bytes as the limit
/// of their bucket, or more. The limits of each dtype and device are taken one after the other; the last is for all
/// that follow, and none is no limit. Sparse ones are alone. Buckets come in the order in which they were closed; those
/// that never were, at the end, in the order in which they were begun.
std::vector<Indices> assign(std::span<const Parameter> parameters, std::span<const uint64_t> limits,
                            std::span<const size_t> order);

/// Before the order of the gradients is known: by number, and the bucket with the last parameters first, because
/// backward passes come to them first.
std::vector<Indices> first_buckets(std::span<const Parameter> parameters, std::span<const uint64_t> limits);

/// In the order of the gradients; with `small_last` the limits are taken from its end.
std::vector<Indices> rebuilt_buckets(std::span<const Parameter> parameters, std::span<const uint64_t> limits,
                                     std::span<const size_t> order, bool small_last);

/// Whether each of `count` parameters is in one bucket, once.
bool is_partition(const std::vector<Indices>& buckets, size_t count);

/// Elements lie one after the other, without gaps.
struct Bucket {
  Indices parameters;
  std::vector<uint64_t> begins;  ///< Of each parameter, in elements.
  DType dtype = DType::kF32;
  uint64_t elements = 0;
  bool sparse = false;

  uint64_t bytes() const { return sparse ? 0 : elements * size_of(dtype); }
};

struct Slot {
  size_t bucket = 0;
  size_t place = 0;  ///< In Bucket::parameters.
};

/// Buckets in launch order, and the way back from a parameter.
class Layout {
 public:
  Layout() = default;
  Layout(std::span<const Parameter> parameters, const std::vector<Indices>& buckets);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  const Slot& slot(size_t parameter) const { return slots_[parameter]; }
  /// Bytes from the beginning of its bucket.
  uint64_t offset(size_t parameter) const;
  std::vector<Indices> groups() const;

 private:
  std::vector<Bucket> buckets_;
  std::vector<Slot> slots_;
};

}  // namespace horo::ddp
