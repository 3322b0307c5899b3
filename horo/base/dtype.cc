#include "horo/base/dtype.h"

#include <algorithm>
#include <array>

namespace horo {

namespace {

constexpr std::array<std::string_view, kDTypeCount> kDTypeNames = {"u8",   "i8",  "u16",  "i16",    "u32",    "i32",
                                                                   "u64",  "i64", "f16",  "bf16",   "f32",    "f64",
                                                                   "bool", "c64", "c128", "f8e4m3", "f8e5m2", "byte"};

constexpr std::array<std::string_view, kReduceOpCount> kReduceOpNames = {"sum",     "average", "min", "max",
                                                                         "product", "and",     "or",  "xor"};

template <class Value, size_t kCount>
std::optional<Value> find(const std::array<std::string_view, kCount>& names, std::string_view name) {
  auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Value>(found - names.begin());
}

}  // namespace

std::string_view name(DType dtype) { return is_valid(dtype) ? kDTypeNames[static_cast<size_t>(dtype)] : "unknown"; }

std::string_view name(ReduceOp op) { return is_valid(op) ? kReduceOpNames[static_cast<size_t>(op)] : "unknown"; }

std::optional<DType> dtype_named(std::string_view name) { return find<DType>(kDTypeNames, name); }

std::optional<ReduceOp> reduce_op_named(std::string_view name) { return find<ReduceOp>(kReduceOpNames, name); }

}  // namespace horo
