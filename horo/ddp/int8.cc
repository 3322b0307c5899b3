#include "horo/ddp/int8.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace horo::ddp {

namespace {

constexpr float kLevels = 127.0F;
/// Adding and subtracting it rounds to the nearest integer, ties to even, for |x| < 2^22, in vector registers too.
constexpr float kRounder = 12582912.0F;

}  // namespace

float largest(const float* values, uint64_t count) {
  // As integers the bits of absolute values are in the same order, infinity and NaN last.
  uint32_t most = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFF;
    most = bits > most ? bits : most;
  }
  const auto value = std::bit_cast<float>(most);
  return std::isfinite(value) ? value : std::numeric_limits<float>::quiet_NaN();
}

void quantize(int8_t* out, const float* values, uint64_t count, float largest) {
  const float scale = kLevels / largest;
  // Nothing but zeros, nothing that makes sense, or so small that the scale has no number.
  if (!(largest > 0) || !std::isfinite(scale)) {
    std::memset(out, 0, count);
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    const float rounded = values[i] * scale + kRounder - kRounder;
    out[i] = static_cast<int8_t>(static_cast<int32_t>(rounded));
  }
}

void add_dequantized(float* out, const int8_t* in, uint64_t count, float largest) {
  const float scale = largest / kLevels;
  for (uint64_t i = 0; i < count; ++i) out[i] += static_cast<float>(in[i]) * scale;
}

void dequantize(float* out, const int8_t* in, uint64_t count, float largest) {
  const float scale = largest / kLevels;
  for (uint64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]) * scale;
}

Int8Exchange::Int8Exchange(const BucketPlace& place) : place_(place) {
  const Bucket& bucket = *place.bucket;
  const auto members = static_cast<uint64_t>(place.members);
  for (uint64_t member = 0; member < members; ++member) {
    const uint64_t begin = bucket.elements * member / members;
    const uint64_t end = bucket.elements * (member + 1) / members;
    Slice slice;
    slice.begin = begin;
    slice.elements = end - begin;
    for (size_t tensor = 0; tensor < bucket.parameters.size(); ++tensor) {
      const uint64_t last = tensor + 1 < bucket.begins.size() ? bucket.begins[tensor + 1] : bucket.elements;
      const uint64_t from = std::max(begin, bucket.begins[tensor]), to = std::min(end, last);
      if (from < to) slice.pieces.push_back({tensor, from, to - from});
    }
    bytes_.push_back(slice.bytes());
    slices_.push_back(std::move(slice));
  }
  total_ = std::accumulate(bytes_.begin(), bytes_.end(), uint64_t{0});
  sum_.resize(slices_[static_cast<size_t>(place.member)].elements);
}

Status Int8Exchange::allocate(const Allocate& allocate) {
  const uint64_t own = bytes_[static_cast<size_t>(place_.member)];
  HORO_ASSIGN(sent_, allocate(total_));
  HORO_ASSIGN(received_, allocate(own * bytes_.size()));
  HORO_ASSIGN(mine_, allocate(own));
  return {};
}

Result<std::unique_ptr<BucketExchange>> Int8Exchange::make(const BucketPlace& place, const Allocate& allocate) {
  std::unique_ptr<Int8Exchange> made(new Int8Exchange(place));
  HORO_TRY(made->allocate(allocate));
  return std::unique_ptr<BucketExchange>(std::move(made));
}

void Int8Exchange::begin(const Round& round) {
  factor_ = round.factor;
  step_ = 0;
}

Result<std::optional<Exchange::Step>> Int8Exchange::next() {
  switch (step_++) {
    case 0:
      return std::optional(send());
    case 1:
      return std::optional(give());
    default:
      take();
      return std::optional<Step>();
  }
}

Exchange::Step Int8Exchange::send() {
  const Bucket& bucket = *place_.bucket;
  std::vector<float> scales;
  for (size_t tensor = 0; tensor < bucket.parameters.size(); ++tensor) {
    const uint64_t last = tensor + 1 < bucket.begins.size() ? bucket.begins[tensor + 1] : bucket.elements;
    scales.push_back(largest(values() + bucket.begins[tensor], last - bucket.begins[tensor]));
  }
  std::byte* to = sent_.get();
  for (const Slice& slice : slices_) {
    auto* elements = reinterpret_cast<int8_t*>(to + slice.pieces.size() * sizeof(float));
    for (size_t i = 0; i < slice.pieces.size(); ++i) {
      const Piece& piece = slice.pieces[i];
      std::memcpy(to + i * sizeof(float), &scales[piece.tensor], sizeof(float));
      quantize(elements + (piece.begin - slice.begin), values() + piece.begin, piece.count, scales[piece.tensor]);
    }
    to += slice.bytes();
  }
  collective::Operation operation;
  operation.kind = collective::Kind::kAlltoall;
  operation.counts = bytes_;
  operation.receive_counts.assign(bytes_.size(), bytes_[static_cast<size_t>(place_.member)]);
  return {operation, sent_.get(), received_.get(), total_ / 2};
}

Exchange::Step Int8Exchange::give() {
  const Slice& slice = slices_[static_cast<size_t>(place_.member)];
  std::fill(sum_.begin(), sum_.end(), 0.0F);
  for (size_t member = 0; member < slices_.size(); ++member) {
    const std::byte* from = received_.get() + member * slice.bytes();
    const auto* elements = reinterpret_cast<const int8_t*>(from + slice.pieces.size() * sizeof(float));
    for (size_t i = 0; i < slice.pieces.size(); ++i) {
      const Piece& piece = slice.pieces[i];
      float scale = 0;
      std::memcpy(&scale, from + i * sizeof(float), sizeof scale);
      const uint64_t at = piece.begin - slice.begin;
      add_dequantized(sum_.data() + at, elements + at, piece.count, scale);
    }
  }
  const auto factor = static_cast<float>(factor_);
  for (float& value : sum_) value *= factor;
  std::byte* to = mine_.get();
  auto* elements = reinterpret_cast<int8_t*>(to + slice.pieces.size() * sizeof(float));
  for (size_t i = 0; i < slice.pieces.size(); ++i) {
    const uint64_t at = slice.pieces[i].begin - slice.begin;
    const float scale = largest(sum_.data() + at, slice.pieces[i].count);
    std::memcpy(to + i * sizeof(float), &scale, sizeof scale);
    quantize(elements + at, sum_.data() + at, slice.pieces[i].count, scale);
  }
  collective::Operation operation;
  operation.kind = collective::Kind::kAllgather;
  operation.counts = bytes_;
  return {operation, mine_.get(), sent_.get(), total_ / 2};
}

void Int8Exchange::take() {
  const std::byte* from = sent_.get();
  for (const Slice& slice : slices_) {
    const auto* elements = reinterpret_cast<const int8_t*>(from + slice.pieces.size() * sizeof(float));
    for (size_t i = 0; i < slice.pieces.size(); ++i) {
      const Piece& piece = slice.pieces[i];
      float scale = 0;
      std::memcpy(&scale, from + i * sizeof(float), sizeof scale);
      dequantize(values() + piece.begin, elements + (piece.begin - slice.begin), piece.count, scale);
    }
    from += slice.bytes();
  }
}

}  // namespace horo::ddp
