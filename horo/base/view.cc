#include "horo/base/view.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "horo/base/text.h"

namespace horo {

namespace {

struct Dim {
  int64_t extent;
  int64_t stride;
};

/// The dimensions of a view with those of extent 1 left out and neighbours merged that are contiguous to each other, so
/// that loops run over few, long dimensions.
struct Layout {
  std::array<Dim, View::kMaxDims> dims{};
  size_t count = 0;

  explicit Layout(const View& view) {
    for (size_t i = 0; i < view.dims(); ++i) {
      Dim dim{view.shape()[i], view.strides()[i]};
      if (dim.extent == 1) continue;
      Dim* outer = count > 0 ? &dims[count - 1] : nullptr;
      int64_t end = 0;
      if (outer != nullptr && !__builtin_mul_overflow(dim.stride, dim.extent, &end) && outer->stride == end) {
        *outer = {outer->extent * dim.extent, dim.stride};
      } else {
        dims[count++] = dim;
      }
    }
  }
  std::span<Dim> span() { return {dims.data(), count}; }
};

// Dimensions from the innermost in memory outward.
Layout by_stride(const View& view) {
  Layout layout(view);
  auto dims = layout.span();
  std::sort(dims.begin(), dims.end(), [](Dim a, Dim b) { return std::abs(a.stride) < std::abs(b.stride); });
  return layout;
}

std::string list_text(std::span<const int64_t> values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) out += text(i == 0 ? "" : ", ", values[i]);
  return out + "]";
}

Status refused(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

// Copies `count` elements between packed memory and memory with a stride (in bytes).
using CopyRun = void (*)(std::byte* out, ptrdiff_t out_stride, const std::byte* in, ptrdiff_t in_stride,
                         uint64_t count);

template <size_t kSize>
void copy_run(std::byte* out, ptrdiff_t out_stride, const std::byte* in, ptrdiff_t in_stride, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    std::memcpy(out, in, kSize);
    out += out_stride;
    in += in_stride;
  }
}

CopyRun copy_run_for(size_t size) {
  switch (size) {
    case 1:
      return copy_run<1>;
    case 2:
      return copy_run<2>;
    case 4:
      return copy_run<4>;
    case 8:
      return copy_run<8>;
    default:
      return copy_run<16>;
  }
}

/// Calls visit(offset in elements, run length, stride) for the runs along the innermost dimension that make up elements
/// [first, first + count).
template <class Visit>
void for_each_run(const View& view, uint64_t first, uint64_t count, Visit visit) {
  Layout layout(view);
  if (layout.count == 0) layout.dims[layout.count++] = {1, 1};
  auto dims = layout.span();
  std::array<int64_t, View::kMaxDims> index{};
  int64_t offset = 0;
  for (size_t i = dims.size(); i-- > 0;) {
    index[i] = static_cast<int64_t>(first % static_cast<uint64_t>(dims[i].extent));
    first /= static_cast<uint64_t>(dims[i].extent);
    offset += index[i] * dims[i].stride;
  }
  const size_t inner = dims.size() - 1;
  while (count > 0) {
    auto run = std::min(count, static_cast<uint64_t>(dims[inner].extent - index[inner]));
    visit(offset, run, dims[inner].stride);
    count -= run;
    // The next run starts where the odometer carries into the dimensions outside.
    offset -= index[inner] * dims[inner].stride;
    index[inner] = 0;
    for (size_t i = inner; i-- > 0;) {
      if (index[i] + 1 < dims[i].extent) {
        ++index[i];
        offset += dims[i].stride;
        break;
      }
      offset -= index[i] * dims[i].stride;
      index[i] = 0;
    }
  }
}

}  // namespace

Result<View> View::contiguous(void* data, DType dtype, std::span<const int64_t> shape) {
  std::array<int64_t, kMaxDims> strides{};
  if (shape.size() <= kMaxDims) {
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      strides[i] = stride;
      // An overflow is found, and told, by strided().
      if (__builtin_mul_overflow(stride, std::max<int64_t>(shape[i], 1), &stride)) stride = 0;
    }
  }
  return strided(data, dtype, shape, std::span(strides).first(std::min(shape.size(), kMaxDims)));
}

Result<View> View::strided(void* data, DType dtype, std::span<const int64_t> shape, std::span<const int64_t> strides) {
  if (!is_valid(dtype)) return refused(text("unknown dtype ", static_cast<int>(dtype)));
  if (shape.size() > kMaxDims) {
    return refused(text("an array of ", shape.size(), " dimensions; at most ", kMaxDims, " are supported"));
  }
  if (shape.size() != strides.size()) {
    return refused(text("shape ", list_text(shape), " and strides ", list_text(strides), " differ in length"));
  }
  View view;
  view.data_ = data;
  view.dtype_ = dtype;
  view.dims_ = shape.size();
  std::copy(shape.begin(), shape.end(), view.shape_.begin());
  std::copy(strides.begin(), strides.end(), view.strides_.begin());

  bool overflow = false;
  auto size = static_cast<int64_t>(size_of(dtype));
  int64_t total = size;  // Bytes, packed; extents of zero left out, so that no order of dimensions hides an overflow.
  int64_t reach = size;  // Bytes from the first element to the end of the farthest one.
  bool empty = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) return refused(text("shape ", list_text(shape), " has a negative extent"));
    empty |= shape[i] == 0;
    int64_t span = 0;
    overflow |= __builtin_mul_overflow(total, std::max<int64_t>(shape[i], 1), &total);
    overflow |= strides[i] == INT64_MIN || __builtin_mul_overflow(std::abs(strides[i]), size, &span);
    overflow |= __builtin_mul_overflow(span, std::max<int64_t>(shape[i] - 1, 0), &span);
    overflow |= __builtin_add_overflow(reach, span, &reach);
  }
  if (overflow) {
    return refused(text("shape ", list_text(shape), " with strides ", list_text(strides), " of ", name(dtype),
                        " does not fit into memory"));
  }
  view.count_ = empty ? 0 : static_cast<uint64_t>(total / size);
  if (data == nullptr && view.count_ > 0) return refused(text("a null pointer for ", view.to_string()));
  return view;
}

bool View::is_contiguous() const {
  if (count_ <= 1) return true;
  Layout layout(*this);
  return layout.count == 1 && layout.dims[0].stride == 1;
}

bool View::is_dense() const {
  if (count_ <= 1) return true;
  Layout layout = by_stride(*this);
  int64_t expected = 1;
  for (Dim dim : layout.span()) {
    if (dim.stride != expected) return false;
    expected *= dim.extent;
  }
  return true;
}

bool View::may_overlap() const {
  if (count_ <= 1) return false;
  Layout layout = by_stride(*this);
  int64_t covered = 0;  // Distance between the first and the last element of the dimensions seen so far.
  for (Dim dim : layout.span()) {
    if (std::abs(dim.stride) <= covered) return true;
    covered += std::abs(dim.stride) * (dim.extent - 1);
  }
  return false;
}

std::string View::to_string() const {
  std::string out = text(name(dtype_), list_text(shape()));
  return is_contiguous() ? out : text(out, " with strides ", list_text(strides()));
}

void pack(const View& view, std::byte* out, uint64_t first, uint64_t count) {
  HORO_CHECK(first <= view.count() && count <= view.count() - first, "a range outside the view");
  if (count == 0) return;
  const auto size = static_cast<ptrdiff_t>(size_of(view.dtype()));
  const CopyRun copy = copy_run_for(static_cast<size_t>(size));
  const auto* data = static_cast<const std::byte*>(view.data());
  for_each_run(view, first, count, [&](int64_t offset, uint64_t run, int64_t stride) {
    if (stride == 1) {
      std::memcpy(out, data + offset * size, run * static_cast<uint64_t>(size));
    } else {
      copy(out, size, data + offset * size, stride * size, run);
    }
    out += run * static_cast<uint64_t>(size);
  });
}

void pack(const View& view, std::byte* out) { pack(view, out, 0, view.count()); }

Status unpack(const View& view, const std::byte* in, uint64_t first, uint64_t count) {
  HORO_CHECK(first <= view.count() && count <= view.count() - first, "a range outside the view");
  if (view.may_overlap()) {
    return refused(text(view.to_string(), " names some elements twice and cannot take a result; pass a copy"));
  }
  if (count == 0) return {};
  const auto size = static_cast<ptrdiff_t>(size_of(view.dtype()));
  const CopyRun copy = copy_run_for(static_cast<size_t>(size));
  auto* data = static_cast<std::byte*>(view.data());
  for_each_run(view, first, count, [&](int64_t offset, uint64_t run, int64_t stride) {
    if (stride == 1) {
      std::memcpy(data + offset * size, in, run * static_cast<uint64_t>(size));
    } else {
      copy(data + offset * size, stride * size, in, size, run);
    }
    in += run * static_cast<uint64_t>(size);
  });
  return {};
}

Status unpack(const View& view, const std::byte* in) { return unpack(view, in, 0, view.count()); }

}  // namespace horo
