#include "horo/ddp/hooks.h"

#include <cmath>

#include "horo/base/text.h"
#include "horo/ddp/int8.h"
#include "horo/ddp/power_sgd.h"
#include "horo/kernel/reduce.h"

namespace horo::ddp {

namespace {

BucketPlace in_parts(BucketPlace place) {
  if (place.parts.empty()) place.parts.push_back({.offset = 0, .elements = place.bucket->elements});
  return place;
}

}  // namespace

Status check(const HookOptions& options) {
  if (options.kind > HookKind::kCaller) {
    return {Code::kInvalidArgument, text("there is no hook of kind ", static_cast<int>(options.kind))};
  }
  if (options.rank < 1) {
    return {Code::kInvalidArgument, text("the rank of PowerSGD must be 1 at least, got ", options.rank)};
  }
  if (!(options.min_compression_rate >= 0) || std::isinf(options.min_compression_rate)) {
    return {Code::kInvalidArgument,
            text("the compression rate of PowerSGD must not be negative, got ", options.min_compression_rate)};
  }
  return {};
}

Hook::Hook(HookOptions options, std::span<const Parameter> parameters)
    : options_(options), parameters_(parameters), power_sgd_(std::make_unique<PowerSgdState>(options, parameters)) {}

Hook::~Hook() = default;

Result<std::unique_ptr<BucketExchange>> Hook::make(const BucketPlace& place, const Allocate& allocate) {
  const DType dtype = place.bucket->dtype;
  const bool is_f32 = dtype == DType::kF32;
  const bool is_wide = is_f32 || dtype == DType::kF64;
  switch (options_.kind) {
    case HookKind::kF16:
      if (is_wide) return CastExchange::make(place, DType::kF16, allocate);
      break;
    case HookKind::kBF16:
      if (is_wide) return CastExchange::make(place, DType::kBF16, allocate);
      break;
    case HookKind::kInt8:
      if (is_f32) return Int8Exchange::make(place, allocate);
      break;
    case HookKind::kPowerSgd:
      if (is_f32) return PowerSgdExchange::make(place, *power_sgd_, allocate);
      break;
    case HookKind::kAllreduce:
    case HookKind::kCaller:
      break;
  }
  return std::unique_ptr<BucketExchange>(std::make_unique<AllreduceExchange>(place));
}

AllreduceExchange::AllreduceExchange(BucketPlace place)
    : place_(in_parts(std::move(place))), where_(place_.parts.size(), nullptr) {}

void AllreduceExchange::begin(const Round& round) {
  factor_ = round.factor;
  next_ = 0;
  for (size_t i = 0; i < where_.size(); ++i) where_[i] = place_.memory + place_.parts[i].offset;
}

void AllreduceExchange::put(size_t parameter, std::byte* gradient) {
  for (size_t i = 0; i < where_.size(); ++i) {
    if (place_.parts[i].large && place_.parts[i].parameter == parameter) where_[i] = gradient;
  }
}

Result<std::optional<Exchange::Step>> AllreduceExchange::next() {
  if (next_ == where_.size()) return std::optional<Step>();
  const uint64_t elements = place_.parts[next_].elements;
  std::byte* const memory = where_[next_++];
  const DType dtype = place_.bucket->dtype;
  return std::optional<Step>({allreduce_of(dtype, elements, factor_), memory, memory, elements * size_of(dtype)});
}

Result<std::unique_ptr<BucketExchange>> CastExchange::make(const BucketPlace& place, DType wire,
                                                           const Allocate& allocate) {
  HORO_ASSIGN(Memory memory, allocate(place.bucket->elements * size_of(wire)));
  return std::unique_ptr<BucketExchange>(new CastExchange(place, wire, std::move(memory)));
}

void CastExchange::begin(const Round& round) {
  factor_ = round.factor;
  begun_ = false;
}

Result<std::optional<Exchange::Step>> CastExchange::next() {
  const DType dtype = place_.bucket->dtype;
  const uint64_t count = place_.bucket->elements;
  if (std::exchange(begun_, true)) {
    kernel::cast(dtype, wire_)(place_.memory, memory_.get(), count);
    return std::optional<Step>();
  }
  kernel::cast(wire_, dtype)(memory_.get(), place_.memory, count);
  return std::optional<Step>(
      {allreduce_of(wire_, count, factor_), memory_.get(), memory_.get(), count * size_of(wire_)});
}

}  // namespace horo::ddp
