#include "tests/exact_call.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "horo/base/text.h"
#include "horo/kernel/half.h"

namespace horo::test {

using collective::Kind;

namespace {

constexpr std::byte kUntouched{0xE7};
constexpr size_t kFence = 16;  ///< Bytes behind the memory that nobody may write.

bool has_counts(Kind kind) {
  return kind == Kind::kReduceScatter || kind == Kind::kAllgather || kind == Kind::kGather || kind == Kind::kScatter;
}

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

/// Writes a small integer as an element.
void encode(DType dtype, int value, std::byte* at) {
  switch (dtype) {
    case DType::kF16:
      return put(at, kernel::f32_to_f16(static_cast<float>(value)));
    case DType::kBF16:
      return put(at, kernel::f32_to_bf16(static_cast<float>(value)));
    case DType::kF32:
      return put(at, static_cast<float>(value));
    case DType::kF64:
      return put(at, static_cast<double>(value));
    case DType::kC64:
      put(at + 4, 0.0F);
      return put(at, static_cast<float>(value));
    case DType::kC128:
      put(at + 8, 0.0);
      return put(at, static_cast<double>(value));
    default: {
      const auto wide = static_cast<int64_t>(value);  // Little-endian: the low bytes are the narrower number.
      std::memcpy(at, &wide, size_of(dtype));
    }
  }
}

}  // namespace

std::string ExactCase::to_string() const {
  return text(transport::name(kind), " ", name(dtype), " ", name(op), " of ", count, uneven ? " uneven" : " even",
              in_place ? " in place" : " out of place", ", root ", root);
}

bool is_possible(Kind kind, DType dtype, ReduceOp op) {
  const bool reduces = kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
  return !reduces || can_reduce(dtype, op);
}

ExactCall::ExactCall(const ExactCase& of, int members, int member) : of_(of), members_(members), member_(member) {
  operation_.kind = of.kind;
  operation_.dtype = of.dtype;
  operation_.op = of.op;
  operation_.root = of.root % members;
  operation_.target = (operation_.root + 1) % members;
  operation_.count = of.count;
  if (has_counts(of.kind)) {
    for (int one = 0; one < members; ++one) operation_.counts.push_back(sent(one, 0));
  }
  if (of.kind == Kind::kAlltoall) {
    for (int peer = 0; peer < members; ++peer) {
      operation_.counts.push_back(sent(member, peer));
      operation_.receive_counts.push_back(sent(peer, member));
    }
  }
  const size_t element = size_of(of.dtype);
  const uint64_t given = input_count(member), results = operation_.result_count(member);
  in_.assign((of.in_place ? std::max(given, results) : given) * element + kFence, kUntouched);
  if (!of.in_place) out_.assign(results * element + kFence, kUntouched);
  for (uint64_t i = 0; i < given; ++i) encode(of.dtype, input_value(member, i), in_.data() + i * element);
}

uint64_t ExactCall::sent(int from, int to) const {
  if (!of_.uneven || of_.count == 0) return of_.count;
  return (from + to) % 3 == 2 ? 0 : of_.count + static_cast<uint64_t>(2 * from + to);
}

uint64_t ExactCall::input_count(int member) const {
  const bool is_root = member == operation_.root;
  switch (of_.kind) {
    case Kind::kBroadcast:
    case Kind::kSendRecv:
      return is_root ? of_.count : 0;
    case Kind::kScatter:
      return is_root ? operation_.total() : 0;
    case Kind::kAllgather:
    case Kind::kGather:
      return operation_.counts[static_cast<size_t>(member)];
    case Kind::kBarrier:
      return 0;
    default:
      return operation_.total();
  }
}

// Exact in every type: sums stay below 128, products are powers of two. Averages are 1, 2 or 4, all from one member:
// the factor 1/7, rounded, makes other whole numbers inexact.
int ExactCall::input_value(int member, uint64_t index) const {
  const uint64_t mixed = (static_cast<uint64_t>(member) * 7 + index * 31 + of_.salt) * 0x9E3779B97F4A7C15ull >> 40;
  const int bits = of_.dtype == DType::kBool ? 2 : 0;
  if (!operation_.reduces()) return static_cast<int>(mixed % static_cast<uint64_t>(bits != 0 ? bits : 120));
  if (bits != 0) return static_cast<int>(mixed % 2);
  if (of_.op == ReduceOp::kProduct) return static_cast<int>(1 + mixed % 2);
  if (of_.op == ReduceOp::kAverage) {
    const uint64_t common = (index * 31 + of_.salt) * 0x9E3779B97F4A7C15ull >> 40;
    const bool gives = common % static_cast<uint64_t>(members_) == static_cast<uint64_t>(member);
    return gives ? members_ << (common >> 16) % 3 : 0;
  }
  return static_cast<int>(mixed % 14);
}

int ExactCall::reduced(uint64_t index) const {
  int result = input_value(0, index);
  for (int member = 1; member < members_; ++member) {
    const int value = input_value(member, index);
    switch (of_.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        result = of_.dtype == DType::kBool ? (result | value) : result + value;
        break;
      case ReduceOp::kMin:
        result = std::min(result, value);
        break;
      case ReduceOp::kMax:
        result = std::max(result, value);
        break;
      case ReduceOp::kProduct:
        result = of_.dtype == DType::kBool ? (result & value) : result * value;
        break;
      case ReduceOp::kAnd:
        result &= value;
        break;
      case ReduceOp::kOr:
        result |= value;
        break;
      case ReduceOp::kXor:
        result ^= value;
        break;
    }
  }
  return of_.op == ReduceOp::kAverage ? result / members_ : result;
}

int ExactCall::expected(uint64_t index) const {
  switch (of_.kind) {
    case Kind::kAllreduce:
    case Kind::kReduce:
      return reduced(index);
    case Kind::kBroadcast:
    case Kind::kSendRecv:
      return input_value(operation_.root, index);
    case Kind::kReduceScatter:
    case Kind::kScatter: {
      uint64_t before = 0;
      for (int one = 0; one < member_; ++one) before += operation_.counts[static_cast<size_t>(one)];
      return of_.kind == Kind::kScatter ? input_value(operation_.root, before + index) : reduced(before + index);
    }
    case Kind::kAllgather:
    case Kind::kGather: {
      int from = 0;
      for (; index >= operation_.counts[static_cast<size_t>(from)]; ++from)
        index -= operation_.counts[static_cast<size_t>(from)];
      return input_value(from, index);
    }
    case Kind::kAlltoall: {
      int from = 0;
      for (; index >= sent(from, member_); ++from) index -= sent(from, member_);
      uint64_t before = 0;
      for (int to = 0; to < member_; ++to) before += sent(from, to);
      return input_value(from, before + index);
    }
    default:
      return 0;
  }
}

std::string ExactCall::wrong() const {
  const size_t element = size_of(of_.dtype);
  const std::vector<std::byte>& out = of_.in_place ? in_ : out_;
  const uint64_t results = operation_.result_count(member_), given = input_count(member_);
  std::byte right[16];
  for (uint64_t i = 0; i < results; ++i) {
    encode(of_.dtype, expected(i), right);
    if (std::memcmp(right, out.data() + i * element, element) != 0) {
      return text(of_.to_string(), ": element ", i, " of ", results, " is not ", expected(i));
    }
  }
  for (uint64_t i = of_.in_place ? results : 0; i < given; ++i) {
    encode(of_.dtype, input_value(member_, i), right);
    if (!of_.in_place && std::memcmp(right, in_.data() + i * element, element) != 0) {
      return text(of_.to_string(), ": input ", i, " of ", given, " has changed");
    }
  }
  for (const std::vector<std::byte>* memory : {&in_, &out_}) {
    if (memory->empty()) continue;
    if (!std::all_of(memory->end() - kFence, memory->end(), [](std::byte one) { return one == kUntouched; })) {
      return text(of_.to_string(), ": written behind the memory");
    }
  }
  return "";
}

}  // namespace horo::test
