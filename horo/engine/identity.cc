#include <cstring>
#include <limits>

#include "horo/engine/runner.h"

namespace horo::engine {

namespace {

template <class T>
void fill(std::byte* memory, uint64_t count, T value) {
  for (uint64_t i = 0; i < count; ++i) std::memcpy(memory + i * sizeof(T), &value, sizeof(T));
}

template <class T>
T integer_identity(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMin:
      return std::numeric_limits<T>::max();
    case Reduction::kMax:
      return std::numeric_limits<T>::lowest();
    case Reduction::kProduct:
      return T{1};
    case Reduction::kAnd:
      return static_cast<T>(~T{0});
    default:
      return T{0};
  }
}

template <class T>
T float_identity(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMin:
      return std::numeric_limits<T>::infinity();
    case Reduction::kMax:
      return -std::numeric_limits<T>::infinity();
    case Reduction::kProduct:
      return T{1};
    default:
      return T{0};
  }
}

/// 16-bit floats by their bits: one, and plus and minus infinity.
struct HalfBits {
  uint16_t one, infinity;
};

uint16_t half_identity(Reduction reduction, HalfBits bits) {
  switch (reduction) {
    case Reduction::kMin:
      return bits.infinity;
    case Reduction::kMax:
      return bits.infinity | 0x8000;
    case Reduction::kProduct:
      return bits.one;
    default:
      return 0;
  }
}

template <class T>
void fill_complex(std::byte* memory, uint64_t count, Reduction reduction) {
  const T value[2] = {float_identity<T>(reduction), T{0}};
  for (uint64_t i = 0; i < count; ++i) std::memcpy(memory + i * sizeof(value), value, sizeof(value));
}

}  // namespace

void fill_identity(std::byte* memory, uint64_t count, DType dtype, Reduction reduction) {
  switch (dtype) {
    case DType::kU8:
      return fill(memory, count, integer_identity<uint8_t>(reduction));
    case DType::kI8:
      return fill(memory, count, integer_identity<int8_t>(reduction));
    case DType::kU16:
      return fill(memory, count, integer_identity<uint16_t>(reduction));
    case DType::kI16:
      return fill(memory, count, integer_identity<int16_t>(reduction));
    case DType::kU32:
      return fill(memory, count, integer_identity<uint32_t>(reduction));
    case DType::kI32:
      return fill(memory, count, integer_identity<int32_t>(reduction));
    case DType::kU64:
      return fill(memory, count, integer_identity<uint64_t>(reduction));
    case DType::kI64:
      return fill(memory, count, integer_identity<int64_t>(reduction));
    case DType::kF16:
      return fill(memory, count, half_identity(reduction, {0x3C00, 0x7C00}));
    case DType::kBF16:
      return fill(memory, count, half_identity(reduction, {0x3F80, 0x7F80}));
    case DType::kF32:
      return fill(memory, count, float_identity<float>(reduction));
    case DType::kF64:
      return fill(memory, count, float_identity<double>(reduction));
    case DType::kC64:
      return fill_complex<float>(memory, count, reduction);
    case DType::kC128:
      return fill_complex<double>(memory, count, reduction);
    case DType::kBool: {
      const bool one = reduction == Reduction::kMin || reduction == Reduction::kProduct || reduction == Reduction::kAnd;
      return fill(memory, count, static_cast<uint8_t>(one));
    }
    default:
      std::memset(memory, 0, count * size_of(dtype));
  }
}

}  // namespace horo::engine
