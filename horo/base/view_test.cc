#include "horo/base/view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace horo {
namespace {

using Shape = std::vector<int64_t>;

View make(void* data, DType dtype, const Shape& shape, const Shape& strides) {
  auto view = View::strided(data, dtype, shape, strides);
  EXPECT_TRUE(view.ok()) << view.status();
  return *view;
}

std::string error_of(const Result<View>& view) {
  EXPECT_FALSE(view.ok());
  EXPECT_EQ(view.status().code(), Code::kInvalidArgument);
  return view.status().message();
}

// Offsets, in elements, of all elements in row-major order: the plainest way to say what a view is.
std::vector<int64_t> offsets_of(const View& view) {
  std::vector<int64_t> offsets = {0};
  for (size_t i = 0; i < view.dims(); ++i) {
    std::vector<int64_t> next;
    for (int64_t offset : offsets) {
      for (int64_t k = 0; k < view.shape()[i]; ++k) next.push_back(offset + k * view.strides()[i]);
    }
    offsets = std::move(next);
  }
  return offsets;
}

TEST(View, CountsElementsAndBytes) {
  float data[24] = {};
  auto view = View::contiguous(data, DType::kF32, Shape{2, 3, 4});
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->count(), 24u);
  EXPECT_EQ(view->bytes(), 96u);
  EXPECT_TRUE(std::ranges::equal(view->strides(), Shape{12, 4, 1}));
  EXPECT_TRUE(view->is_contiguous());
  EXPECT_TRUE(view->is_dense());
  EXPECT_FALSE(view->may_overlap());
}

TEST(View, AScalarHasOneElementAndAnEmptyArrayNone) {
  float value = 0;
  auto scalar = View::contiguous(&value, DType::kF32, Shape{});
  ASSERT_TRUE(scalar.ok());
  EXPECT_EQ(scalar->count(), 1u);
  auto empty = View::contiguous(nullptr, DType::kF32, Shape{3, 0, 5});
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->count(), 0u);
  EXPECT_TRUE(empty->is_contiguous());
}

TEST(View, KnowsChannelsLastAsDenseButNotContiguous) {
  std::vector<float> data(2 * 3 * 4 * 5);
  View view = make(data.data(), DType::kF32, {2, 3, 4, 5}, {60, 1, 15, 3});
  EXPECT_FALSE(view.is_contiguous());
  EXPECT_TRUE(view.is_dense());
  EXPECT_FALSE(view.may_overlap());
}

TEST(View, IgnoresStridesOfSingleElements) {
  float data[6] = {};
  View view = make(data, DType::kF32, {1, 2, 1, 3}, {999, 3, -7, 1});
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_TRUE(view.is_dense());
}

TEST(View, ASliceIsNeitherContiguousNorDense) {
  float data[12] = {};
  View view = make(data, DType::kF32, {3, 2}, {4, 1});
  EXPECT_FALSE(view.is_contiguous());
  EXPECT_FALSE(view.is_dense());
  EXPECT_FALSE(view.may_overlap());
}

TEST(View, KnowsRepeatedElementsAndSlidingWindows) {
  float data[12] = {};
  EXPECT_TRUE(make(data, DType::kF32, {3, 2}, {0, 1}).may_overlap());
  EXPECT_TRUE(make(data, DType::kF32, {3, 2}, {1, 1}).may_overlap());
  EXPECT_FALSE(make(data + 11, DType::kF32, {12}, {-1}).may_overlap());
}

TEST(View, SizesBeyond32BitsAreRight) {
  char byte = 0;
  auto view = View::contiguous(&byte, DType::kF64, Shape{3, int64_t{1} << 31});
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->count(), uint64_t{3} << 31);
  EXPECT_EQ(view->bytes(), uint64_t{3} << 34);
}

TEST(View, StridesAtTheEdgeOfTheRangeDoNotOverflow) {
  char byte = 0;
  View view = make(&byte, DType::kU8, {2, 2}, {INT64_MAX / 2, (int64_t{1} << 62) - 2});
  EXPECT_FALSE(view.is_contiguous());
  EXPECT_FALSE(view.is_dense());
}

TEST(View, SizesThatOverflowAreRefused) {
  char byte = 0;
  const int64_t big = int64_t{1} << 40;
  EXPECT_NE(error_of(View::contiguous(&byte, DType::kF32, Shape{big, big})).find("does not fit"), std::string::npos);
  EXPECT_NE(error_of(View::contiguous(&byte, DType::kF32, Shape{0, big, big})).find("does not fit"), std::string::npos);
  EXPECT_NE(error_of(View::contiguous(&byte, DType::kC128, Shape{INT64_MAX / 8})), "");
  EXPECT_NE(error_of(View::strided(&byte, DType::kF32, Shape{big, 2}, Shape{big, 1})), "");
  EXPECT_NE(error_of(View::strided(&byte, DType::kF32, Shape{1}, Shape{INT64_MIN})), "");
}

TEST(View, BadArgumentsAreRefusedWithTheReason) {
  float data[4] = {};
  EXPECT_EQ(error_of(View::contiguous(data, DType::kF32, Shape{2, -1})), "shape [2, -1] has a negative extent");
  EXPECT_EQ(error_of(View::contiguous(nullptr, DType::kF32, Shape{2})), "a null pointer for f32[2]");
  EXPECT_EQ(error_of(View::contiguous(data, static_cast<DType>(99), Shape{2})), "unknown dtype 99");
  EXPECT_EQ(error_of(View::contiguous(data, DType::kF32, Shape(17, 1))),
            "an array of 17 dimensions; at most 16 are supported");
  EXPECT_EQ(error_of(View::strided(data, DType::kF32, Shape{2}, Shape{})), "shape [2] and strides [] differ in length");
}

TEST(View, UnpackingIntoRepeatedElementsIsRefusedAndWritesNothing) {
  float data[2] = {1, 2};
  const float in[6] = {9, 9, 9, 9, 9, 9};
  Status status = unpack(make(data, DType::kF32, {3, 2}, {0, 1}), reinterpret_cast<const std::byte*>(in));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(data[0], 1);
}

// A random view into `elements` elements: random extents, dimensions in random order in memory, gaps and reversals.
struct RandomView {
  Shape shape, strides;
  int64_t origin = 0;
  int64_t elements = 1;

  explicit RandomView(std::mt19937_64& random) {
    auto up_to = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit + 1)); };
    const size_t dims = static_cast<size_t>(up_to(5));
    shape.resize(dims);
    strides.resize(dims);
    std::vector<size_t> order(dims);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    for (size_t i : order) {
      shape[i] = up_to(5);
      strides[i] = elements;
      const int64_t extent = std::max<int64_t>(shape[i], 1);
      if (up_to(3) == 0) {
        origin += elements * (extent - 1);
        strides[i] = -elements;
      }
      elements *= extent + (up_to(2) == 0 ? up_to(2) : 0);
    }
  }
};

TEST(View, PackAndUnpackAgreeWithThePlainDefinition) {
  const int given = testing::UnitTest::GetInstance()->random_seed();
  const uint64_t seed = given > 0 ? static_cast<uint64_t>(given) : std::random_device{}() % 99999 + 1;
  SCOPED_TRACE(testing::Message() << "repeat with --gtest_random_seed=" << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const auto dtype = static_cast<DType>(random() % kDTypeCount);
    const size_t size = size_of(dtype);
    RandomView plan(random);
    std::vector<std::byte> memory(static_cast<size_t>(plan.elements) * size);
    for (std::byte& byte : memory) byte = static_cast<std::byte>(random());
    View view = make(memory.data() + static_cast<size_t>(plan.origin) * size, dtype, plan.shape, plan.strides);
    auto offsets = offsets_of(view);
    ASSERT_EQ(view.count(), offsets.size());

    const uint64_t first = random() % (view.count() + 1);
    const uint64_t count = random() % (view.count() - first + 1);
    std::vector<std::byte> packed(count * size);
    pack(view, packed.data(), first, count);
    for (uint64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(plan.origin + offsets[first + i]) * size;
      ASSERT_EQ(std::memcmp(&packed[i * size], &memory[at], size), 0) << view.to_string() << " element " << first + i;
    }

    auto expected = memory;
    for (std::byte& byte : packed) byte = static_cast<std::byte>(random());
    for (uint64_t i = 0; i < count; ++i) {
      std::memcpy(&expected[static_cast<size_t>(plan.origin + offsets[first + i]) * size], &packed[i * size], size);
    }
    Status status = unpack(view, packed.data(), first, count);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(memory, expected) << view.to_string();
  }
}

}  // namespace
}  // namespace horo
