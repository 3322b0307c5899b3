#include "horo/engine/adasum.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "horo/base/text.h"
#include "horo/engine/runner.h"
#include "horo/kernel/reduce.h"

namespace horo::engine {

namespace {

constexpr size_t kBlock = 512;
constexpr size_t kLanes = 8;
using Block = std::array<double, kBlock>;

const double* widen(Block& block, const std::byte* from, size_t count, DType dtype) {
  if (dtype == DType::kF64) {
    std::copy_n(from, count * sizeof(double), reinterpret_cast<std::byte*>(block.data()));
  } else {
    kernel::cast(DType::kF64, dtype)(reinterpret_cast<std::byte*>(block.data()), from, count);
  }
  std::fill(block.begin() + static_cast<long>(count), block.end(), 0.0);
  return block.data();
}

void narrow(std::byte* to, const Block& block, size_t count, DType dtype) {
  const auto* from = reinterpret_cast<const std::byte*>(block.data());
  if (dtype == DType::kF64) {
    std::copy_n(from, count * sizeof(double), to);
  } else {
    kernel::cast(dtype, DType::kF64)(to, from, count);
  }
}

/// A vector of (almost) no length has nothing in common with anything.
double coefficient(double dot, double length) {
  static const double kLeast = std::sqrt(std::numeric_limits<double>::min());
  return length < kLeast ? 1.0 : 1.0 - dot / length * 0.5;
}

struct Lanes {
  std::array<double, kLanes> sums{};
  void add(const double* a, const double* b) {
    for (size_t i = 0; i < kBlock; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
    }
  }
  double total() const {
    double sum = 0.0;
    for (double lane : sums) sum += lane;
    return sum;
  }
};

}  // namespace

Products products(const std::byte* a, const std::byte* b, uint64_t count, DType dtype) {
  Lanes dot, left, right;
  Block wide_a, wide_b;
  for (uint64_t at = 0; at < count; at += kBlock) {
    const size_t length = std::min<uint64_t>(kBlock, count - at);
    const double* x = widen(wide_a, a + at * size_of(dtype), length, dtype);
    const double* y = widen(wide_b, b + at * size_of(dtype), length, dtype);
    dot.add(x, y);
    left.add(x, x);
    right.add(y, y);
  }
  return {dot.total(), left.total(), right.total()};
}

void combine(std::byte* a, const std::byte* b, uint64_t count, DType dtype, const Products& whole) {
  const double of_a = coefficient(whole.dot, whole.left), of_b = coefficient(whole.dot, whole.right);
  Block wide_a, wide_b;
  for (uint64_t at = 0; at < count; at += kBlock) {
    const size_t length = std::min<uint64_t>(kBlock, count - at);
    widen(wide_a, a + at * size_of(dtype), length, dtype);
    widen(wide_b, b + at * size_of(dtype), length, dtype);
    for (size_t i = 0; i < kBlock; ++i) wide_a[i] = of_a * wide_a[i] + of_b * wide_b[i];
    narrow(a + at * size_of(dtype), wide_a, length, dtype);
  }
}

std::vector<Range> parts_in(const std::vector<uint64_t>& counts, Range slice) {
  std::vector<Range> parts;
  uint64_t begin = 0;
  for (uint64_t count : counts) {
    const uint64_t first = std::clamp(slice.begin, begin, begin + count);
    const uint64_t last = std::clamp(slice.end, begin, begin + count);
    parts.push_back({first - slice.begin, std::max(first, last) - slice.begin});
    if (parts.back().count() == 0) parts.back() = {0, 0};
    begin += count;
  }
  return parts;
}

// Each member gets one slice of everybody's vectors, combines all of them level by level, and hands its slice of the
// result to everybody: as many bytes as an ordinary allreduce moves. Only the products of whole tensors must be summed
// over the members before a level can be combined, three numbers per pair and tensor.
Status Runner::adasum(Pieces& pieces) {
  const auto members = static_cast<size_t>(carrier_.size());
  const auto self = static_cast<size_t>(carrier_.member());
  const Tensor& terms = *pieces[0].tensor;
  const size_t element = size_of(terms.dtype);
  std::vector<uint64_t> counts;
  uint64_t total = 0;
  for (Piece& piece : pieces) {
    HORO_TRY(make_output(piece, piece.tensor->shape));
    counts.push_back(piece.tensor->count());
    total += counts.back();
  }
  const kernel::DefaultFloatMode mode;
  const std::vector<uint64_t> slices = shares(total, carrier_.size());
  HORO_ASSIGN(std::span<std::byte> whole, room(0, total * element));
  HORO_ASSIGN(std::span<std::byte> mine, room(1, slices[self] * element * members));
  std::byte* to = whole.data();
  for (const Piece& piece : pieces) {
    const uint64_t count = piece.tensor->count();
    if (piece.call == nullptr) {
      fill_identity(to, count, terms.dtype, Reduction::kAdasum);
    } else {
      kernel::scale(terms.dtype)(to, piece.call->input, count, {terms.prescale, 1});
    }
    to += count * element;
  }
  collective::Operation scatter;
  scatter.kind = collective::Kind::kAlltoall;
  scatter.dtype = terms.dtype;
  scatter.counts = slices;
  scatter.receive_counts.assign(members, slices[self]);
  HORO_TRY(carry(scatter, whole.data(), mine.data()));
  uint64_t begin = 0;
  for (size_t m = 0; m < self; ++m) begin += slices[m];
  HORO_TRY(combine_slices(pieces, {begin, begin + slices[self]}, counts, mine));
  collective::Operation gather;
  gather.kind = collective::Kind::kAllgather;
  gather.dtype = terms.dtype;
  gather.counts = slices;
  HORO_TRY(carry(gather, mine.data(), whole.data()));
  const std::byte* from = whole.data();
  for (const Piece& piece : pieces) {
    const uint64_t count = piece.tensor->count();
    if (piece.call != nullptr) kernel::scale(terms.dtype)(piece.output->memory, from, count, {terms.postscale, 1});
    from += count * element;
  }
  return {};
}

// `mine` holds this member's slice of member 0's vectors, then of member 1's, ...; the result replaces the first.
Status Runner::combine_slices(const Pieces& pieces, Range slice, const std::vector<uint64_t>& counts,
                              std::span<std::byte> mine) {
  const DType dtype = pieces[0].tensor->dtype;
  const size_t element = size_of(dtype);
  const std::vector<Range> parts = parts_in(counts, slice);
  const auto at = [&](size_t member, Range part) {
    return mine.data() + (member * slice.count() + part.begin) * element;
  };
  const auto members = static_cast<size_t>(carrier_.size());
  for (size_t distance = 1; distance < members; distance *= 2) {
    std::vector<Products> all;
    for (size_t a = 0; a + distance < members; a += 2 * distance) {
      for (Range part : parts) all.push_back(products(at(a, part), at(a + distance, part), part.count(), dtype));
    }
    collective::Operation sum;
    sum.kind = collective::Kind::kAllreduce;
    sum.dtype = DType::kF64;
    sum.count = all.size() * 3;
    auto* numbers = reinterpret_cast<std::byte*>(all.data());
    HORO_TRY(carrier_.run(sum, numbers, numbers));
    size_t next = 0;
    for (size_t a = 0; a + distance < members; a += 2 * distance) {
      for (Range part : parts) {
        combine(at(a, part), at(a + distance, part), part.count(), dtype, all[next++]);
      }
    }
  }
  return {};
}

}  // namespace horo::engine
