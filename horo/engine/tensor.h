// What a rank asks for: a named tensor and an operation on it. Everything here must be equal on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/dtype.h"
#include "horo/base/status.h"
#include "horo/net/codec.h"

namespace horo::engine {

/// The values travel on the wire.
enum class Kind : uint8_t {
  kAllreduce = 0,
  kAllgather = 1,  ///< The first dimension may differ from rank to rank.
  kBroadcast = 2,
  kAlltoall = 3,  ///< The first dimension and the splits may differ from rank to rank.
  kReduceScatter = 4,
  kBarrier = 5,
  kAddSet = 6,     ///< A process set of the ranks in `shape` begins.
  kRemoveSet = 7,  ///< The process set whose number is `root` ends.
};
inline constexpr int kKindCount = 8;

/// The values of ReduceOp, and one more.
enum class Reduction : uint8_t {
  kSum = 0,
  kAverage = 1,
  kMin = 2,
  kMax = 3,
  kProduct = 4,
  kAnd = 5,
  kOr = 6,
  kXor = 7,
  kAdasum = 8,
};
inline constexpr int kReductionCount = 9;

std::string_view name(Kind kind);
std::string_view name(Reduction reduction);

/// Where the memory of a tensor is. Only the kind must be equal on all ranks, not the number of the device.
enum class Place : uint8_t { kHost = 0, kDevice = 1 };

struct Tensor {
  std::string name;
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kByte;
  Reduction reduction = Reduction::kSum;
  Place place = Place::kHost;
  int32_t root = 0;  ///< Of a broadcast: a member. Of kRemoveSet: the set.
  double prescale = 1.0;
  double postscale = 1.0;
  /// As it is on this rank. Of an allgather and an alltoall the first extent is left out of every comparison.
  std::vector<int64_t> shape;
  /// Elements from one index of each dimension to the next, without gaps between elements. Empty: one row after the
  /// other. Of an allreduce and a broadcast, which do not care where an element lies, but only if all ranks agree.
  std::vector<int64_t> strides;

  uint64_t count() const;
  uint64_t bytes() const { return count() * size_of(dtype); }
  bool reduces() const { return kind == Kind::kAllreduce || kind == Kind::kReduceScatter; }
  /// Whether ranks may differ in the first extent.
  bool varies() const { return kind == Kind::kAllgather || kind == Kind::kAlltoall; }

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// What Tensor::strides says of memory with these strides: the same for memory that is the same, since the stride of a
/// dimension with one index means nothing. There is one stride for each extent.
std::vector<int64_t> layout_of(const std::vector<int64_t>& shape, std::span<const int64_t> strides);

/// Tensors that were handed in together and become ready together; most units have one.
struct Unit {
  std::vector<Tensor> tensors;

  /// What it is known by: the least of its names, so that ranks that hand in a group in different orders meet, and are
  /// told so, instead of waiting for each other.
  const std::string& key() const { return tensors.size() == 1 ? tensors.front().name : least_name(); }
  Kind kind() const { return tensors.front().kind; }
  uint64_t bytes() const;
  friend bool operator==(const Unit&, const Unit&) = default;

 private:
  const std::string& least_name() const;
};
/// Does not change any more: what was handed in is described once, and known to all parts of the engine.
using UnitPtr = std::shared_ptr<const Unit>;

inline constexpr size_t kMostTensors = 65536;  ///< Of a unit.
inline constexpr size_t kLongestName = 4096;
inline constexpr size_t kMostDimensions = 64;

/// Says what is wrong with a unit, before any other rank hears of it.
Status validate(const Unit& unit, int members);

/// Whether two ranks ask for the same.
bool agree(const Unit& a, const Unit& b);
/// What the first difference is, for people: {"dtype", "f32", "f64"}.
struct Difference {
  std::string what, left, right, tensor;
};
Difference difference(const Unit& a, const Unit& b);

void encode(net::Writer& writer, const Unit& unit);
Unit decode_unit(net::Reader& reader);

/// "f32[2, 3]"
std::string describe(const Tensor& tensor);

}  // namespace horo::engine
