// The generic kernels against computations in wider types, written independently of them.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "horo/kernel/half.h"
#include "horo/kernel/kernel_testing.h"
#include "horo/kernel/reduce.h"

namespace horo::kernel {
namespace {

template <class T>
const std::byte* raw(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

template <class T>
std::vector<T> reduced(DType dtype, ReduceOp op, const std::vector<std::vector<T>>& in, Scaling scaling = {}) {
  std::vector<const std::byte*> pointers;
  for (const auto& one : in) pointers.push_back(raw(one));
  std::vector<T> out(in[0].size());
  combine_many(dtype, op)(reinterpret_cast<std::byte*>(out.data()), pointers, out.size(), scaling);
  return out;
}

template <class T>
std::vector<T> scaled(DType dtype, std::vector<T> values, Scaling scaling) {
  auto* data = reinterpret_cast<std::byte*>(values.data());
  scale(dtype)(data, data, values.size(), scaling);
  return values;
}

template <class T>
std::vector<T> random_values(size_t count, Random& random) {
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(random());
  return values;
}

template <class T>
uint64_t bits_of(T value) {
  return static_cast<std::make_unsigned_t<T>>(value);
}

template <class T>
void check_integers(DType dtype) {
  Random random(seed());
  const auto a = random_values<T>(500, random), b = random_values<T>(500, random), c = random_values<T>(500, random);
  const auto get = [&](ReduceOp op) { return reduced<T>(dtype, op, {a, b, c}); };
  const auto sum = get(ReduceOp::kSum), product = get(ReduceOp::kProduct), low = get(ReduceOp::kMin),
             high = get(ReduceOp::kMax), both = get(ReduceOp::kAnd), any = get(ReduceOp::kOr),
             odd = get(ReduceOp::kXor);
  for (size_t i = 0; i < a.size(); ++i) {
    const uint64_t x = bits_of(a[i]), y = bits_of(b[i]), z = bits_of(c[i]);
    ASSERT_EQ(sum[i], static_cast<T>(x + y + z));
    ASSERT_EQ(product[i], static_cast<T>(x * y * z));
    ASSERT_EQ(low[i], std::min({a[i], b[i], c[i]}));
    ASSERT_EQ(high[i], std::max({a[i], b[i], c[i]}));
    ASSERT_EQ(both[i], static_cast<T>(x & y & z));
    ASSERT_EQ(any[i], static_cast<T>(x | y | z));
    ASSERT_EQ(odd[i], static_cast<T>(x ^ y ^ z));
  }
}

template <class T>
void check_division(DType dtype) {
  Random random(seed());
  auto values = random_values<T>(2000, random);
  for (T edge : {std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), T{0}, T{1}, static_cast<T>(-1)}) {
    values.push_back(edge);
  }
  for (int64_t divisor : {1LL, 2LL, 3LL, 5LL, 7LL, 8LL, 64LL, 100LL, 128LL, 255LL, 256LL, 65536LL, 1000003LL, 1LL << 31,
                          1LL << 40, (1LL << 53) + 1}) {
    const auto out = scaled<T>(dtype, values, {.divisor = divisor});
    for (size_t i = 0; i < values.size(); ++i) {
      // u64 and i64 have no wider type; the others are divided as i64.
      using Wide = std::conditional_t<std::is_same_v<T, uint64_t>, uint64_t, int64_t>;
      ASSERT_EQ(out[i], static_cast<T>(static_cast<Wide>(values[i]) / static_cast<Wide>(divisor)))
          << +values[i] << " / " << divisor;
    }
  }
}

template <class T>
void check_multiplication(DType dtype) {
  const T low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  const std::vector<T> values = {low, high, T{0}, T{1}, T{7}, static_cast<T>(-7)};
  EXPECT_EQ(scaled<T>(dtype, values, {.factor = 4.0})[0], low);
  EXPECT_EQ(scaled<T>(dtype, values, {.factor = 4.0})[1], high);
  EXPECT_EQ(scaled<T>(dtype, values, {.factor = 0.5})[4], T{3});
  EXPECT_EQ(scaled<T>(dtype, values, {.factor = std::nan("")})[4], T{0});
  if (std::numeric_limits<T>::is_signed) {
    EXPECT_EQ(scaled<T>(dtype, values, {.factor = 0.5})[5], static_cast<T>(-3));
  }
  EXPECT_EQ(scaled<T>(dtype, values, {.factor = 2.0, .divisor = 4})[4], T{2}) << "divided, truncated, multiplied";
}

template <class T>
void check_integer_type(DType dtype) {
  SCOPED_TRACE(name(dtype));
  check_integers<T>(dtype);
  check_division<T>(dtype);
  check_multiplication<T>(dtype);
}

TEST(Reference, IntegersWrapDivideWithTruncationAndSaturateWhenMultiplied) {
  check_integer_type<uint8_t>(DType::kU8);
  check_integer_type<int8_t>(DType::kI8);
  check_integer_type<uint16_t>(DType::kU16);
  check_integer_type<int16_t>(DType::kI16);
  check_integer_type<uint32_t>(DType::kU32);
  check_integer_type<int32_t>(DType::kI32);
  check_integer_type<uint64_t>(DType::kU64);
  check_integer_type<int64_t>(DType::kI64);
}

TEST(Reference, AveragesOfIntegersTruncateTowardZero) {
  const std::vector<std::vector<int32_t>> in = {{-7, 7, INT32_MIN, -1}, {0, 0, 0, 0}};
  EXPECT_EQ(reduced(DType::kI32, ReduceOp::kAverage, in, average(DType::kI32, 2)),
            (std::vector<int32_t>{-3, 3, INT32_MIN / 2, 0}));
  const std::vector<std::vector<int8_t>> three = {{-100, 100, -1}, {-1, 1, -1}, {1, -1, 0}};
  EXPECT_EQ(reduced(DType::kI8, ReduceOp::kAverage, three, average(DType::kI8, 3)), (std::vector<int8_t>{-33, 33, 0}));
}

TEST(Reference, BytesOtherThanZeroAreTrueAndResultsAreZeroOrOne) {
  const std::vector<std::vector<uint8_t>> in = {{0, 0, 2, 255}, {0, 128, 0, 4}};
  const auto get = [&](ReduceOp op) { return reduced(DType::kBool, op, in); };
  using Bytes = std::vector<uint8_t>;
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kOr}) EXPECT_EQ(get(op), (Bytes{0, 1, 1, 1}));
  for (ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kAnd}) EXPECT_EQ(get(op), (Bytes{0, 0, 0, 1}));
  EXPECT_EQ(get(ReduceOp::kXor), (Bytes{0, 1, 1, 0}));
  EXPECT_EQ(reduced<uint8_t>(DType::kBool, ReduceOp::kSum, {{0, 7}}), (Bytes{0, 1}));
}

TEST(Reference, MinAndMaxGiveNanIfEitherIsNan) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> in = {{nan, 1, nan, -inf, 2}, {1, nan, -nan, inf, 1}};
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const auto out = reduced(DType::kF32, op, in);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), 0x7FC00000U) << i;
    EXPECT_EQ(out[3], op == ReduceOp::kMin ? -inf : inf);
    EXPECT_EQ(out[4], op == ReduceOp::kMin ? 1 : 2);
  }
}

TEST(Reference, FloatsAreCombinedInTheOrderOfTheListForOneToNineInputs) {
  for (size_t inputs = 1; inputs <= 9; ++inputs) {
    std::vector<std::vector<float>> in;
    float in_order = 0, factored = 0;
    for (size_t j = 0; j < inputs; ++j) {
      const float value = std::ldexp(1.0F, j % 2 == 0 ? 24 : 0) * (j % 4 == 2 ? -1.0F : 1.0F) + static_cast<float>(j);
      in.push_back(std::vector<float>(1500, value));
      in_order = j == 0 ? value : in_order + value;
    }
    factored = in_order / static_cast<float>(inputs);
    EXPECT_EQ(reduced(DType::kF32, ReduceOp::kSum, in)[1499], in_order) << inputs;
    EXPECT_EQ(reduced(DType::kF32, ReduceOp::kSum, in, average(DType::kF32, static_cast<int>(inputs)))[1499], factored);
  }
}

template <auto kWiden, auto kNarrow>
void check_halves(DType dtype) {
  Random random(seed());
  for (size_t inputs : {1, 2, 3, 5, 9}) {
    std::vector<std::vector<uint16_t>> in;
    for (size_t j = 0; j < inputs; ++j) in.push_back(random_values<uint16_t>(700, random));
    const auto out = reduced(dtype, ReduceOp::kSum, in);
    const auto mean = reduced(dtype, ReduceOp::kAverage, in, average(dtype, 3));
    const auto part = reduced(dtype, ReduceOp::kSum, in, {.factor = 1.0 / 3});
    const auto both = reduced(dtype, ReduceOp::kAverage, in, {.factor = 0.3, .divisor = 3});
    for (size_t i = 0; i < out.size(); ++i) {
      float sum = kWiden(in[0][i]);
      for (size_t j = 1; j < inputs; ++j) sum += kWiden(in[j][i]);
      ASSERT_EQ(out[i], kNarrow(sum)) << "accumulated in f32, rounded once";
      ASSERT_EQ(mean[i], kNarrow(sum / 3.0F));
      ASSERT_EQ(part[i], kNarrow(sum * static_cast<float>(1.0 / 3)));
      ASSERT_EQ(both[i], kNarrow(sum / static_cast<float>(3 / 0.3)));
    }
  }
}

TEST(Reference, HalvesAreAccumulatedInFloatsAndRoundedOnce) {
  check_halves<f16_to_f32, f32_to_f16>(DType::kF16);
  check_halves<bf16_to_f32, f32_to_bf16>(DType::kBF16);
}

TEST(Reference, AnAverageOfEqualNumbersIsThatNumber) {
  for (int members = 1; members <= 100; ++members) {
    for (float value : {7.0F, 0.1F, -3e-20F, 1e30F}) {
      // The sum of equal small integers is exact; that of others is not, but nothing is added to its error.
      const float sum = static_cast<float>(members) * value;
      EXPECT_EQ(reduced<float>(DType::kF32, ReduceOp::kSum, {{sum}}, average(DType::kF32, members))[0],
                sum / static_cast<float>(members));
    }
    const double whole = 49.0 * members;
    EXPECT_EQ(reduced<double>(DType::kF64, ReduceOp::kSum, {{whole}}, average(DType::kF64, members))[0], 49.0);
  }
}

TEST(Reference, ComplexNumbersAddAndMultiply) {
  using C = std::complex<double>;
  const std::vector<std::vector<C>> in = {{{1, 2}, {3, -1}}, {{-2, 5}, {0, 1}}, {{1, 1}, {2, 0}}};
  EXPECT_EQ(reduced(DType::kC128, ReduceOp::kSum, in), (std::vector<C>{{0, 8}, {5, 0}}));
  EXPECT_EQ(reduced(DType::kC128, ReduceOp::kProduct, in), (std::vector<C>{{-13, -11}, {2, 6}}));
  EXPECT_EQ(reduced(DType::kC128, ReduceOp::kSum, in, {.factor = 0.5}), (std::vector<C>{{0, 4}, {2.5, 0}}));
  EXPECT_EQ(reduced(DType::kC128, ReduceOp::kSum, in, average(DType::kC128, 3)),
            (std::vector<C>{{0, 8.0 / 3}, {5.0 / 3, 0}}));
  using F = std::complex<float>;
  const std::vector<std::vector<F>> floats = {{{1, 2}}, {{-2, 5}}};
  EXPECT_EQ(reduced(DType::kC64, ReduceOp::kProduct, floats), (std::vector<F>{{-12, 1}}));
}

}  // namespace
}  // namespace horo::kernel
