// Casts and the bits of halves: exhaustive where 16 bits allow it.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "horo/kernel/half.h"
#include "horo/kernel/kernel_testing.h"
#include "horo/kernel/reduce.h"

namespace horo::kernel {
namespace {

struct Format {
  DType dtype;
  int fraction_bits;
  int bias;
  int infinity;  ///< Bits without sign.
};
constexpr Format kF16{DType::kF16, 10, 15, 0x7C00};
constexpr Format kBF16{DType::kBF16, 7, 127, 0x7F80};

/// The value that the bits stand for, by the definition of the format.
double value_of(const Format& format, uint16_t bits) {
  const int magnitude = bits & 0x7FFF;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (magnitude > format.infinity) return std::nan("");
  if (magnitude == format.infinity) return sign * std::numeric_limits<double>::infinity();
  const int exponent = magnitude >> format.fraction_bits;
  const int fraction = magnitude & ((1 << format.fraction_bits) - 1);
  const int whole = exponent == 0 ? fraction : fraction | (1 << format.fraction_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - format.bias - format.fraction_bits);
}

template <class To, class From>
std::vector<To> casted(DType to, DType from, const std::vector<From>& values, Isa isa) {
  std::vector<To> out(values.size());
  cast(to, from, isa)(reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<const std::byte*>(values.data()),
                      values.size());
  return out;
}

std::vector<uint16_t> all_halves() {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  return halves;
}

class HalfCasts : public testing::TestWithParam<Format> {
 protected:
  Format format_ = GetParam();
  uint16_t nan_ = format_.dtype == DType::kF16 ? kF16NaN : kBF16NaN;
};

TEST_P(HalfCasts, WidenEveryValueExactly) {
  const auto halves = all_halves();
  for (Isa isa : available()) {
    const auto floats = casted<float>(DType::kF32, format_.dtype, halves, isa);
    const auto doubles = casted<double>(DType::kF64, format_.dtype, halves, isa);
    for (size_t i = 0; i < halves.size(); ++i) {
      const double exact = value_of(format_, halves[i]);
      if (std::isnan(exact)) {
        ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), 0x7FC00000U) << name(isa);
        ASSERT_EQ(std::bit_cast<uint64_t>(doubles[i]), 0x7FF8000000000000U) << name(isa);
        continue;
      }
      ASSERT_EQ(floats[i], exact) << name(isa) << " bits " << halves[i];
      ASSERT_EQ(std::signbit(floats[i]), std::signbit(exact));
      ASSERT_EQ(doubles[i], exact) << name(isa) << " bits " << halves[i];
    }
  }
}

TEST_P(HalfCasts, BringEveryValueBack) {
  const auto halves = all_halves();
  for (Isa isa : available()) {
    const auto same = casted<uint16_t>(format_.dtype, format_.dtype, halves, isa);
    const auto floats = casted<float>(DType::kF32, format_.dtype, halves, isa);
    const auto doubles = casted<double>(DType::kF64, format_.dtype, halves, isa);
    const auto from_floats = casted<uint16_t>(format_.dtype, DType::kF32, floats, isa);
    const auto from_doubles = casted<uint16_t>(format_.dtype, DType::kF64, doubles, isa);
    for (size_t i = 0; i < halves.size(); ++i) {
      const uint16_t expected = std::isnan(value_of(format_, halves[i])) ? nan_ : halves[i];
      ASSERT_EQ(same[i], expected) << name(isa);
      ASSERT_EQ(from_floats[i], expected) << name(isa);
      ASSERT_EQ(from_doubles[i], expected) << name(isa);
    }
  }
}

/// Halfway between neighbours, and the next values on both sides: ties to even, else to the nearer one.
TEST_P(HalfCasts, RoundToNearestEvenAtAndBesideEveryMidpoint) {
  std::vector<double> values;
  std::vector<uint16_t> expected;
  const auto expect = [&](double value, int bits) {
    values.push_back(value), expected.push_back(static_cast<uint16_t>(bits));
    values.push_back(-value), expected.push_back(static_cast<uint16_t>(bits | 0x8000));
  };
  for (int bits = 0; bits < format_.infinity; ++bits) {
    const double low = value_of(format_, static_cast<uint16_t>(bits));
    const bool last = bits + 1 == format_.infinity;  // Beyond the last value the next would be one step further.
    const double below = value_of(format_, static_cast<uint16_t>(bits - 1));
    const double high = last ? low + (low - below) : value_of(format_, static_cast<uint16_t>(bits + 1));
    const double middle = (low + high) / 2;
    expect(middle, bits % 2 == 0 ? bits : bits + 1);
    expect(static_cast<double>(std::nextafter(static_cast<float>(middle), 0.0F)), bits);
    expect(static_cast<double>(std::nextafter(static_cast<float>(middle), INFINITY)), bits + 1);
  }
  std::vector<float> floats(values.begin(), values.end());
  for (Isa isa : available()) {
    EXPECT_EQ(casted<uint16_t>(format_.dtype, DType::kF32, floats, isa), expected) << name(isa);
    EXPECT_EQ(casted<uint16_t>(format_.dtype, DType::kF64, values, isa), expected) << name(isa);
  }
}

/// A double a hair beside a midpoint becomes the midpoint when rounded to f32 first, and then the wrong half.
TEST_P(HalfCasts, RoundDoublesOnceOnly) {
  std::vector<double> values;
  std::vector<uint16_t> expected;
  for (int bits = 0; bits + 1 < format_.infinity; bits += 7) {
    const double low = value_of(format_, static_cast<uint16_t>(bits));
    const double middle = (low + value_of(format_, static_cast<uint16_t>(bits + 1))) / 2;
    values.push_back(std::nextafter(middle, 0.0)), expected.push_back(static_cast<uint16_t>(bits));
    values.push_back(std::nextafter(middle, 1e300)), expected.push_back(static_cast<uint16_t>(bits + 1));
  }
  values.push_back(1e300), expected.push_back(static_cast<uint16_t>(format_.infinity));
  values.push_back(1e-300), expected.push_back(0);
  values.push_back(-5e-324), expected.push_back(0x8000);
  for (Isa isa : available()) {
    EXPECT_EQ(casted<uint16_t>(format_.dtype, DType::kF64, values, isa), expected) << name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfCasts, testing::Values(kF16, kBF16),
                         [](const auto& test) { return std::string(name(test.param.dtype)); });

TEST(Casts, GiveTheSameBitsOnEveryInstructionSet) {
  Random random(seed());
  const std::array<DType, 4> floats = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
  for (DType from : floats) {
    for (DType to : floats) {
      for (size_t count : {0, 1, 15, 16, 33, 1024 + 17}) {
        Buffer in(count * size_of(from), 1), expected(count * size_of(to), 0);
        in.fill(from, random);
        cast(to, from, Isa::kGeneric)(expected.data(), in.data(), count);
        for (Isa isa : available()) {
          Buffer out(count * size_of(to), 3);
          cast(to, from, isa)(out.data(), in.data(), count);
          ASSERT_EQ(out.bytes(), expected.bytes()) << name(isa) << " " << name(from) << " to " << name(to);
          ASSERT_TRUE(out.fences_intact());
        }
      }
    }
  }
}

TEST(Casts, DoNotExistForOtherTypes) {
  EXPECT_EQ(cast(DType::kF32, DType::kI32), nullptr);
  EXPECT_EQ(cast(DType::kF8E4M3, DType::kF32), nullptr);
}

}  // namespace
}  // namespace horo::kernel
