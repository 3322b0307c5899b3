// Element types that horo moves and reduces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace horo {

/// The values travel on the wire and are part of the C ABI (api/horo.h).
enum class DType : uint8_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kU64 = 6,
  kI64 = 7,
  kF16 = 8,
  kBF16 = 9,
  kF32 = 10,
  kF64 = 11,
  kBool = 12,
  kC64 = 13,     ///< Two f32: sum and product only.
  kC128 = 14,    ///< Two f64: sum and product only.
  kF8E4M3 = 15,  ///< Moved, never reduced.
  kF8E5M2 = 16,  ///< Moved, never reduced.
  kByte = 17,    ///< Anything else: moved as bytes, never reduced.
};
inline constexpr int kDTypeCount = 18;

/// How elements of several ranks become one.
enum class ReduceOp : uint8_t {
  kSum = 0,
  kAverage = 1,  ///< Sum divided by the number of members; integers truncate toward zero.
  kMin = 2,      ///< NaN wins.
  kMax = 3,      ///< NaN wins.
  kProduct = 4,
  kAnd = 5,  ///< Bitwise; logical for bool.
  kOr = 6,
  kXor = 7,
};
inline constexpr int kReduceOpCount = 8;

constexpr bool is_valid(DType dtype) { return static_cast<int>(dtype) < kDTypeCount; }
constexpr bool is_valid(ReduceOp op) { return static_cast<int>(op) < kReduceOpCount; }

constexpr size_t size_of(DType dtype) {
  constexpr uint8_t kSizes[kDTypeCount] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 8, 16, 1, 1, 1};
  return kSizes[static_cast<int>(dtype)];
}

constexpr bool is_integer(DType dtype) { return dtype <= DType::kI64; }
constexpr bool is_float(DType dtype) { return dtype >= DType::kF16 && dtype <= DType::kF64; }
constexpr bool is_complex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }

/// Whether elements of `dtype` can be reduced with `op` (see docs/algorithms.md for the table).
constexpr bool can_reduce(DType dtype, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct:
      return is_integer(dtype) || is_float(dtype) || is_complex(dtype) || dtype == DType::kBool;
    case ReduceOp::kAverage:
      return is_integer(dtype) || is_float(dtype) || is_complex(dtype);
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return is_integer(dtype) || is_float(dtype) || dtype == DType::kBool;
    case ReduceOp::kAnd:
    case ReduceOp::kOr:
    case ReduceOp::kXor:
      return is_integer(dtype) || dtype == DType::kBool;
  }
  return false;
}

/// "f32", "bf16", "bool", "c64", "f8e4m3", "byte", ...
std::string_view name(DType dtype);
/// "sum", "average", "min", "max", "product", "and", "or", "xor".
std::string_view name(ReduceOp op);
std::optional<DType> dtype_named(std::string_view name);
std::optional<ReduceOp> reduce_op_named(std::string_view name);

}  // namespace horo
