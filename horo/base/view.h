// A window on an array in somebody else's memory: element type, shape and strides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "horo/base/dtype.h"
#include "horo/base/status.h"

namespace horo {

/// Owns nothing. Sizes are checked when it is made: element and byte counts and all offsets fit into 63 bits.
class View {
 public:
  static constexpr size_t kMaxDims = 16;

  /// A row-major array. kInvalidArgument for more than kMaxDims dimensions, a negative extent, a size that overflows,
  /// an unknown dtype, or a null pointer to anything but nothing.
  static Result<View> contiguous(void* data, DType dtype, std::span<const int64_t> shape);
  /// Strides count elements; zero (a repeated element) and negative ones are allowed.
  static Result<View> strided(void* data, DType dtype, std::span<const int64_t> shape,
                              std::span<const int64_t> strides);

  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  size_t dims() const { return dims_; }
  std::span<const int64_t> shape() const { return {shape_.data(), dims_}; }
  std::span<const int64_t> strides() const { return {strides_.data(), dims_}; }

  /// Elements; 1 for no dimensions.
  uint64_t count() const { return count_; }
  /// Bytes of the elements, packed.
  uint64_t bytes() const { return count_ * size_of(dtype_); }

  /// The elements lie one after the other in row-major order.
  bool is_contiguous() const;
  /// The elements fill one block of memory that starts at data(), in any order of dimensions (transposed, channels
  /// last): an elementwise operation can treat it as contiguous if all ranks have the same strides.
  bool is_dense() const;
  /// Two indices may name the same element (a stride of zero, or windows that slide): not a place to write results to.
  bool may_overlap() const;

  /// "f32[2, 3] with strides [1, 2]"
  std::string to_string() const;

 private:
  View() = default;

  void* data_ = nullptr;
  DType dtype_ = DType::kByte;
  size_t dims_ = 0;
  uint64_t count_ = 1;
  std::array<int64_t, kMaxDims> shape_{};
  std::array<int64_t, kMaxDims> strides_{};
};

/// Copies elements [first, first + count) of `view`, counted in row-major order, to contiguous memory at `out`.
void pack(const View& view, std::byte* out, uint64_t first, uint64_t count);
void pack(const View& view, std::byte* out);

/// The way back. kInvalidArgument, and nothing written, when the view may overlap itself.
Status unpack(const View& view, const std::byte* in, uint64_t first, uint64_t count);
Status unpack(const View& view, const std::byte* in);

}  // namespace horo
