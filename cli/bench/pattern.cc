#include "cli/bench/pattern.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

namespace horo::bench {

namespace {

/// A whole number of at most 11 bits as f16.
uint16_t half_bits(int value) {
  const auto magnitude = static_cast<uint32_t>(value < 0 ? -value : value);
  const auto sign = static_cast<uint16_t>(value < 0 ? 0x8000 : 0);
  if (magnitude == 0) return sign;
  const int exponent = std::bit_width(magnitude) - 1;
  const uint32_t fraction = (magnitude << (10 - exponent)) & 0x3ff;
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent + 15) << 10 | fraction);
}

template <class T>
void put(std::byte* out, T value) {
  std::memcpy(out, &value, sizeof value);
}

void encode_element(DType dtype, int value, std::byte* out) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8:
      return put(out, static_cast<int8_t>(value));
    case DType::kU16:
    case DType::kI16:
      return put(out, static_cast<int16_t>(value));
    case DType::kU32:
    case DType::kI32:
      return put(out, static_cast<int32_t>(value));
    case DType::kU64:
    case DType::kI64:
      return put(out, static_cast<int64_t>(value));
    case DType::kF16:
      return put(out, half_bits(value));
    case DType::kBF16:
      return put(out, static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
    case DType::kF64:
      return put(out, static_cast<double>(value));
    case DType::kC64:
      put(out + 4, 0.0F);
      return put(out, static_cast<float>(value));
    case DType::kC128:
      put(out + 8, 0.0);
      return put(out, static_cast<double>(value));
    default:
      return put(out, static_cast<float>(value));
  }
}

}  // namespace

bool Pattern::supports(DType dtype) { return can_reduce(dtype, ReduceOp::kSum) && dtype != DType::kBool; }

Pattern::Pattern(DType dtype, uint64_t seed, int ranks)
    : dtype_(dtype), size_(size_of(dtype)), seed_(seed), ranks_(ranks), digits_(kPeriod), tile_(kPeriod * size_) {
  std::mt19937_64 random(seed);
  // Sums of up to 16 ranks stay below 128, where bf16 (8 bits) still holds every whole number.
  std::uniform_int_distribution<int> digit(is_integer(dtype) ? 0 : -7, 7);
  for (uint64_t i = 0; i < kPeriod; ++i) {
    digits_[i] = static_cast<int8_t>(digit(random));
    encode_element(dtype_, digits_[i], &tile_[i * size_]);
  }
}

uint64_t Pattern::shift(int rank, uint64_t turn) const {
  uint64_t mixed = seed_ + static_cast<uint64_t>(rank) * 0x9e3779b97f4a7c15 + turn * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return (mixed ^ (mixed >> 31)) % kPeriod;
}

void Pattern::fill(std::span<std::byte> tensor, int rank, uint64_t turn) const {
  uint64_t at = shift(rank, turn);
  for (size_t done = 0; done < tensor.size(); at = 0) {
    const size_t bytes = std::min(tensor.size() - done, (kPeriod - at) * size_);
    std::memcpy(tensor.data() + done, &tile_[at * size_], bytes);
    done += bytes;
  }
}

bool Pattern::equals(std::span<const std::byte> part, const std::vector<std::byte>& tile, uint64_t start) const {
  uint64_t at = start % kPeriod;
  for (size_t done = 0; done < part.size(); at = 0) {
    const size_t bytes = std::min(part.size() - done, (kPeriod - at) * size_);
    if (std::memcmp(part.data() + done, &tile[at * size_], bytes) != 0) return false;
    done += bytes;
  }
  return true;
}

const std::vector<std::byte>& Pattern::sum_of(uint64_t turn) {
  if (sum_turn_ == turn) return sum_;
  std::vector<int> sums(kPeriod);
  for (int rank = 0; rank < ranks_; ++rank) {
    const uint64_t from = shift(rank, turn);
    for (uint64_t i = 0; i < kPeriod; ++i) sums[i] += digits_[(i + from) % kPeriod];
  }
  sum_.resize(tile_.size());
  for (uint64_t i = 0; i < kPeriod; ++i) encode_element(dtype_, sums[i], &sum_[i * size_]);
  sum_turn_ = turn;
  return sum_;
}

bool Pattern::holds(Op op, std::span<const std::byte> output, int rank, uint64_t turn) {
  const size_t block = output.size() / static_cast<size_t>(ranks_);
  const auto me = static_cast<uint64_t>(rank);
  switch (op) {
    case Op::kAllreduce:
      return equals(output, sum_of(turn), 0);
    case Op::kReduce:
      return rank != 0 || equals(output, sum_of(turn), 0);
    case Op::kBroadcast:
      return equals(output, tile_, shift(0, turn));
    case Op::kReducescatter:
      return equals(output, sum_of(turn), me * (output.size() / size_));
    case Op::kAllgather:
    case Op::kAlltoall:
      for (int from = 0; from < ranks_; ++from) {
        const uint64_t skipped = op == Op::kAlltoall ? me * (block / size_) : 0;
        if (!equals(output.subspan(static_cast<size_t>(from) * block, block), tile_, shift(from, turn) + skipped)) {
          return false;
        }
      }
      return true;
    case Op::kGather:
      return rank != 0 || holds(Op::kAllgather, output, rank, turn);
    case Op::kScatter:
      return equals(output, tile_, shift(0, turn) + me * (output.size() / size_));
    case Op::kSendRecv:
      return rank != ranks_ - 1 || equals(output, tile_, shift(0, turn));
    case Op::kCopy:
      return equals(output, tile_, shift(rank, turn));
    case Op::kStream:
      return rank != 0 && rank != ranks_ - 1 ? true : equals(output, tile_, shift(ranks_ - 1 - rank, turn));
    case Op::kBarrier:
    case Op::kWait:
    case Op::kIdle:
    case Op::kEngine:
      return true;
  }
  return false;
}

}  // namespace horo::bench
