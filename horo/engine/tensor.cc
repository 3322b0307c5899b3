#include "horo/engine/tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "horo/base/text.h"

namespace horo::engine {

std::string_view name(Kind kind) {
  constexpr std::string_view kNames[kKindCount] = {"allreduce",       "allgather",         "broadcast",
                                                   "alltoall",        "reducescatter",     "barrier",
                                                   "add_process_set", "remove_process_set"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view name(Reduction reduction) {
  constexpr std::string_view kNames[kReductionCount] = {"sum", "average", "min", "max",   "product",
                                                        "and", "or",      "xor", "adasum"};
  return kNames[static_cast<size_t>(reduction)];
}

uint64_t Tensor::count() const {
  uint64_t count = 1;
  for (int64_t extent : shape) count *= static_cast<uint64_t>(extent);
  return count;
}

std::vector<int64_t> layout_of(const std::vector<int64_t>& shape, std::span<const int64_t> strides) {
  bool by_rows = true;
  uint64_t expected = 1;  // Wraps for what validate() refuses.
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return {};
    by_rows = by_rows && (shape[i] == 1 || static_cast<uint64_t>(strides[i]) == expected);
    expected *= static_cast<uint64_t>(shape[i]);
  }
  if (by_rows) return {};
  std::vector<int64_t> layout(strides.begin(), strides.end());
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) layout[i] = 1;
  }
  return layout;
}

const std::string& Unit::least_name() const {
  const Tensor* least = &tensors.front();
  for (const Tensor& tensor : tensors) {
    if (tensor.name < least->name) least = &tensor;
  }
  return least->name;
}

uint64_t Unit::bytes() const {
  uint64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

namespace {

std::string list_text(const std::vector<int64_t>& list, bool first_varies) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) text += ", ";
    text += i == 0 && first_varies ? "*" : std::to_string(list[i]);
  }
  return text + "]";
}

std::string shape_text(const Tensor& tensor) { return list_text(tensor.shape, tensor.varies()); }

std::string layout_text(const Tensor& tensor) {
  if (tensor.strides.empty()) return text(shape_text(tensor), " row by row");
  return text(shape_text(tensor), " with strides ", list_text(tensor.strides, false));
}

bool same_shape(const Tensor& a, const Tensor& b) {
  if (a.shape.size() != b.shape.size()) return false;
  const size_t first = a.varies() ? 1 : 0;
  for (size_t i = first; i < a.shape.size(); ++i) {
    if (a.shape[i] != b.shape[i]) return false;
  }
  return true;
}

/// Bits, so that NaN equals itself: factors are compared to find different programs, not to calculate.
bool same_scale(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

bool agree(const Tensor& a, const Tensor& b) {
  return a.name == b.name && a.kind == b.kind && a.dtype == b.dtype && a.reduction == b.reduction &&
         a.place == b.place && a.root == b.root && same_scale(a.prescale, b.prescale) &&
         same_scale(a.postscale, b.postscale) && same_shape(a, b) && a.strides == b.strides;
}

Status too(const Tensor& tensor, std::string_view what) {
  return {Code::kInvalidArgument, text(name(tensor.kind), " of tensor '", tensor.name, "': ", what)};
}

Status check_size(const Tensor& tensor) {
  if (tensor.shape.size() > kMostDimensions) {
    return too(tensor, text(tensor.shape.size(), " dimensions; at most ", kMostDimensions, " are possible"));
  }
  uint64_t bytes = size_of(tensor.dtype);
  for (int64_t extent : tensor.shape) {
    if (extent < 0) return too(tensor, text("an extent of ", extent, " in shape ", shape_text(tensor)));
    if (extent > 0 && bytes > (uint64_t{1} << 62) / static_cast<uint64_t>(extent)) {
      return too(tensor, text("shape ", shape_text(tensor), " is too large"));
    }
    bytes *= static_cast<uint64_t>(std::max<int64_t>(extent, 1));
  }
  return {};
}

/// Each element has a place of its own, and each place an element.
bool is_dense(const Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] != 1) steps.emplace_back(tensor.strides[i], tensor.shape[i]);
  }
  std::sort(steps.begin(), steps.end());
  int64_t expected = 1;
  for (auto [stride, extent] : steps) {
    if (stride != expected) return false;
    expected *= extent;
  }
  return true;
}

/// After check_size().
Status check_layout(const Tensor& tensor) {
  if (tensor.strides.empty()) return {};
  if (tensor.kind != Kind::kAllreduce && tensor.kind != Kind::kBroadcast) {
    return too(tensor, "strides are for allreduce and broadcast; copy the tensor, row by row");
  }
  if (tensor.strides.size() != tensor.shape.size()) {
    return too(tensor, text(tensor.strides.size(), " strides for ", tensor.shape.size(), " dimensions"));
  }
  if (!is_dense(tensor)) return too(tensor, text(layout_text(tensor), " has gaps or overlaps; copy the tensor"));
  return {};
}

Status check_reduction(const Tensor& tensor) {
  if (tensor.reduction == Reduction::kAdasum) {
    if (tensor.kind != Kind::kAllreduce) return too(tensor, "adasum is a reduction of allreduce only");
    if (!is_float(tensor.dtype)) return too(tensor, text("adasum needs floats, not ", horo::name(tensor.dtype)));
    return {};
  }
  if (!can_reduce(tensor.dtype, static_cast<ReduceOp>(tensor.reduction))) {
    return too(tensor, text(horo::name(tensor.dtype), " has no ", name(tensor.reduction)));
  }
  if (tensor.dtype == DType::kBool && (tensor.prescale != 1.0 || tensor.postscale != 1.0)) {
    return too(tensor, "bool cannot be scaled");
  }
  if (tensor.kind == Kind::kReduceScatter && tensor.reduction > Reduction::kAverage) {
    return too(tensor, text("only sum and average are possible, not ", name(tensor.reduction)));
  }
  return {};
}

Status check(const Tensor& tensor, int members) {
  if (tensor.name.empty()) return {Code::kInvalidArgument, text(name(tensor.kind), ": the tensor has no name")};
  if (tensor.name.size() > kLongestName) {
    return {Code::kInvalidArgument, text(name(tensor.kind), ": a name of ", tensor.name.size(), " bytes; at most ",
                                         kLongestName, " are possible")};
  }
  if (!is_valid(tensor.dtype)) return too(tensor, "unknown dtype");
  HORO_TRY(check_size(tensor));
  HORO_TRY(check_layout(tensor));
  if (tensor.reduces()) HORO_TRY(check_reduction(tensor));
  const bool needs_rows = tensor.varies() || tensor.kind == Kind::kReduceScatter;
  if (needs_rows && tensor.shape.empty()) return too(tensor, "a scalar has no rows; it needs one dimension at least");
  if (tensor.kind == Kind::kBroadcast && (tensor.root < 0 || tensor.root >= members)) {
    return too(tensor, text("root ", tensor.root, " is not a member; there are ", members));
  }
  return {};
}

}  // namespace

Status validate(const Unit& unit, int members) {
  if (unit.tensors.empty()) return {Code::kInvalidArgument, "a group of no tensors"};
  if (unit.tensors.size() > kMostTensors) {
    return {Code::kInvalidArgument,
            text("a group of ", unit.tensors.size(), " tensors; at most ", kMostTensors, " are possible")};
  }
  for (const Tensor& tensor : unit.tensors) {
    HORO_TRY(check(tensor, members));
    if (tensor.kind != unit.kind()) return too(tensor, text("in a group with ", name(unit.kind())));
  }
  return {};
}

bool agree(const Unit& a, const Unit& b) {
  if (a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    if (!agree(a.tensors[i], b.tensors[i])) return false;
  }
  return true;
}

namespace {

std::string number(double value) {
  std::ostringstream out;
  out.precision(17);
  out << value;
  return out.str();
}

Difference difference(const Tensor& a, const Tensor& b) {
  const auto make = [&](std::string_view what, std::string left, std::string right) {
    return Difference{std::string(what), std::move(left), std::move(right), a.name};
  };
  const auto place = [](const Tensor& t) { return t.place == Place::kHost ? "host memory" : "device memory"; };
  if (a.name != b.name) return make("names of group members", "'" + a.name + "'", "'" + b.name + "'");
  if (a.kind != b.kind) return make("operations", std::string(name(a.kind)), std::string(name(b.kind)));
  if (a.dtype != b.dtype) {
    return make("data types", std::string(horo::name(a.dtype)), std::string(horo::name(b.dtype)));
  }
  if (!same_shape(a, b)) return make("shapes", shape_text(a), shape_text(b));
  if (a.strides != b.strides) return make("memory layouts", layout_text(a), layout_text(b));
  if (a.reduction != b.reduction) {
    return make("reductions", std::string(name(a.reduction)), std::string(name(b.reduction)));
  }
  if (!same_scale(a.prescale, b.prescale)) return make("prescale factors", number(a.prescale), number(b.prescale));
  if (!same_scale(a.postscale, b.postscale)) return make("postscale factors", number(a.postscale), number(b.postscale));
  if (a.root != b.root) return make("root ranks", std::to_string(a.root), std::to_string(b.root));
  return make("devices", place(a), place(b));
}

}  // namespace

Difference difference(const Unit& a, const Unit& b) {
  for (size_t i = 0; i < std::min(a.tensors.size(), b.tensors.size()); ++i) {
    if (!agree(a.tensors[i], b.tensors[i])) return difference(a.tensors[i], b.tensors[i]);
  }
  return {"numbers of tensors in a group", std::to_string(a.tensors.size()), std::to_string(b.tensors.size()), a.key()};
}

void encode(net::Writer& writer, const Unit& unit) {
  writer.count(unit.tensors.size());
  for (const Tensor& tensor : unit.tensors) {
    writer.string(tensor.name);
    writer.u8(static_cast<uint8_t>(tensor.kind));
    writer.u8(static_cast<uint8_t>(tensor.dtype));
    writer.u8(static_cast<uint8_t>(tensor.reduction));
    writer.u8(static_cast<uint8_t>(tensor.place));
    writer.u32(static_cast<uint32_t>(tensor.root));
    writer.u64(std::bit_cast<uint64_t>(tensor.prescale));
    writer.u64(std::bit_cast<uint64_t>(tensor.postscale));
    writer.count(tensor.shape.size());
    for (int64_t extent : tensor.shape) writer.u64(static_cast<uint64_t>(extent));
    writer.count(tensor.strides.size());
    for (int64_t stride : tensor.strides) writer.u64(static_cast<uint64_t>(stride));
  }
}

Unit decode_unit(net::Reader& reader) {
  constexpr size_t kLeastBytes = 36;
  Unit unit;
  unit.tensors.resize(reader.count(kMostTensors, kLeastBytes));
  if (unit.tensors.empty()) {
    reader.fail("a unit of no tensors");
    unit.tensors.resize(1);  // Whoever reads on after the error finds a key.
  }
  for (Tensor& tensor : unit.tensors) {
    tensor.name = reader.string(kLongestName);
    const uint8_t kind = reader.u8(), dtype = reader.u8(), reduction = reader.u8(), place = reader.u8();
    if (kind >= kKindCount || dtype >= kDTypeCount || reduction >= kReductionCount || place > 1) {
      reader.fail("an unknown operation, dtype, reduction or place");
      return unit;
    }
    tensor.kind = static_cast<Kind>(kind);
    tensor.dtype = static_cast<DType>(dtype);
    tensor.reduction = static_cast<Reduction>(reduction);
    tensor.place = static_cast<Place>(place);
    tensor.root = static_cast<int32_t>(reader.u32());
    tensor.prescale = std::bit_cast<double>(reader.u64());
    tensor.postscale = std::bit_cast<double>(reader.u64());
    tensor.shape.resize(reader.count(kMostDimensions, 8));
    for (int64_t& extent : tensor.shape) extent = static_cast<int64_t>(reader.u64());
    tensor.strides.resize(reader.count(kMostDimensions, 8));
    for (int64_t& stride : tensor.strides) stride = static_cast<int64_t>(reader.u64());
    if (!check_size(tensor).ok() || !check_layout(tensor).ok()) reader.fail("an impossible shape");
  }
  return unit;
}

std::string describe(const Tensor& tensor) { return text(horo::name(tensor.dtype), shape_text(tensor)); }

}  // namespace horo::engine
