// Looks at tensors of torch from C++ without being compiled against it.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace horo::python {

/// Where the elements of a tensor lie.
struct TensorView {
  std::byte* data = nullptr;
  int dtype = 0;  ///< A horo_dtype.
  uint64_t count = 0;
  uint64_t bytes = 0;
  std::span<const int64_t> shape, strides;  ///< Strides in elements.
  bool contiguous = false;                  ///< Row by row, without gaps.
};

/// Reads through the C functions that torch offers for that (DLPack's `__dlpack_c_exchange_api__`, since torch 2.10),
/// which take a tenth of the time of its attributes; where they are absent, through the attributes.
///
/// Under the interpreter's lock. Runs no code of the program.
class TensorReader {
 public:
  /// `tensor_class` is torch.Tensor, `strided` torch.strided, and `dtypes` has the library's numbers by torch's dtypes.
  /// Without `exchange` attributes are used in any case.
  TensorReader(nanobind::object tensor_class, nanobind::object strided, nanobind::dict dtypes, bool exchange = true);

  /// True for a tensor whose elements lie in this host's memory as it says, with or without gaps; whether it requires a
  /// gradient does not matter. False for everything else: sparse, on a device, of a subclass, of a dtype that the
  /// library does not have, conjugated or negated lazily. The view is good until the tensor changes or the next read().
  bool read(nanobind::handle tensor, TensorView& view);

  bool exchanges() const { return exchange_ != nullptr; }

 private:
  static constexpr size_t kMostDimensions = 16;
  struct Exchanged;
  using Exchange = int (*)(void* tensor, Exchanged* out);

  bool is_as_it_lies(nanobind::handle tensor, bool complex) const;
  bool read_exchanged(nanobind::handle tensor, TensorView& view) const;
  bool read_attributes(nanobind::handle tensor, TensorView& view);
  bool read_numbers(nanobind::object numbers, size_t at, size_t& count);

  const nanobind::object class_, strided_;
  const nanobind::dict dtypes_;
  const nanobind::object layout_, is_neg_, is_conj_, is_cpu_, dtype_, shape_, stride_, data_ptr_;  ///< Names.
  Exchange exchange_ = nullptr;
  std::array<int64_t, 2 * kMostDimensions> numbers_{};  ///< Of the last tensor that was read by its attributes.
};

}  // namespace horo::python
