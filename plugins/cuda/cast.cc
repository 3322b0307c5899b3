#include "plugins/cuda/cast.h"

#include <algorithm>
#include <vector>

#include "horo/base/text.h"

namespace horo::cuda {

namespace {

enum : int { kI8 = 1, kF16 = 8, kBF16 = 9, kF32 = 10, kF64 = 11 };

/// Elements that a block casts at a time.
constexpr uint64_t kElements = kChunk / 4;

/// As in kernels.cu.
struct Piece {
  void* to;
  const void* from;
  float* largest;
  uint64_t count;
  uint64_t first;
};
struct Terms {
  float factor;
  uint32_t add;
};
static_assert(kFewCasts * sizeof(Piece) + 32 <= 4096 && kManyCasts * sizeof(Piece) + 32 <= 32764);

bool is_half(int dtype) { return dtype == kF16 || dtype == kBF16; }
bool is_wide(int dtype) { return dtype == kF32 || dtype == kF64; }
bool is_known(int to, int from) {
  return (is_half(to) && is_wide(from)) || (is_wide(to) && is_half(from)) || (to == kI8 && from == kF32) ||
         (to == kF32 && from == kI8);
}

/// What goes with one launch.
struct Batch {
  std::vector<Piece> pieces;
  uint64_t chunks = 0;
};

std::vector<Batch> batches_of(std::span<const horo_device_cast> arrays, size_t capacity) {
  std::vector<Batch> all;
  for (const horo_device_cast& one : arrays) {
    if (one.count == 0 && one.largest == nullptr) continue;  // A largest value of nothing is 0.
    if (all.empty() || all.back().pieces.size() == capacity) all.emplace_back();
    Batch& batch = all.back();
    batch.pieces.push_back({one.to, one.from, one.largest, one.count, batch.chunks});
    batch.chunks += (one.count + kElements - 1) / kElements;
  }
  return all;
}

class Launcher {
 public:
  Launcher(Context& context, CUstream stream, int to, int from, size_t capacity)
      : context_(context),
        stream_(stream),
        defines_(text("HORO_CAST CAPACITY=", capacity, " FROM=", from, " TO=", to)),
        table_(capacity) {}

  Status launch(const char* name, const Batch& batch, uint64_t blocks, Terms terms) {
    HORO_ASSIGN(CUfunction function, context_.kernel({defines_, name}));
    std::copy(batch.pieces.begin(), batch.pieces.end(), table_.begin());
    auto count = static_cast<uint32_t>(batch.pieces.size());
    uint64_t chunks = batch.chunks;
    void* arguments[] = {table_.data(), &count, &chunks, &terms};
    const uint64_t most = static_cast<uint64_t>(context_.processors()) * 8;
    const Driver& driver = context_.driver();
    return check(driver,
                 driver.cuLaunchKernel(function, static_cast<unsigned>(std::clamp<uint64_t>(blocks, 1, most)), 1, 1,
                                       kThreads, 1, 1, 0, stream_, arguments, nullptr),
                 "cuLaunchKernel");
  }

 private:
  Context& context_;
  const CUstream stream_;
  const std::string defines_;
  std::vector<Piece> table_;
};

}  // namespace

Status cast_arrays(Context& context, CUstream stream, const horo_device_cast_terms& terms,
                   std::span<const horo_device_cast> arrays) {
  if (!is_known(terms.to, terms.from)) {
    return {Code::kInvalidArgument, text("there is no cast from element type ", terms.from, " to ", terms.to)};
  }
  const bool has_largest = terms.to == kI8 || terms.from == kI8;
  for (const horo_device_cast& one : arrays) {
    if (has_largest == (one.largest == nullptr)) {
      return {Code::kInvalidArgument,
              "a cast from or to 8 bits needs a place for the largest value, and no other does"};
    }
  }
  const size_t most = context.takes_long_parameters() ? kManyCasts : kFewCasts;
  const size_t capacity = arrays.size() <= kFewCasts ? kFewCasts : most;
  const std::vector<Batch> batches = batches_of(arrays, capacity);
  Launcher launcher(context, stream, terms.to, terms.from, capacity);
  const Terms given{terms.factor, terms.add != 0 ? 1U : 0U};
  if (terms.to == kI8) {
    // Arrays of different batches may name the same place.
    for (const Batch& batch : batches) HORO_TRY(launcher.launch("clear", batch, 1, given));
    for (const Batch& batch : batches) HORO_TRY(launcher.launch("largest", batch, batch.chunks, given));
  }
  for (const Batch& batch : batches) HORO_TRY(launcher.launch("cast", batch, batch.chunks, given));
  return {};
}

}  // namespace horo::cuda
