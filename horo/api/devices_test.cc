#include "horo/api/devices.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "horo/api/horo.hpp"

namespace horo {
namespace {

/// Code and words of a status, which this frees.
std::pair<int, std::string> outcome(horo_status* status) {
  std::pair<int, std::string> all(horo_status_code(status), horo_status_message(status));
  horo_status_free(status);
  return all;
}

horo_cast terms(horo_dtype to, horo_dtype from) {
  horo_cast made = HORO_CAST_INIT;
  made.to = to;
  made.from = from;
  return made;
}

TEST(ApiCast, HalvesKeepWhatTheyCan) {
  const Engine engine;
  horo_group* world = horo_engine_world(engine.get());
  const std::array<float, 5> given{1.0F, -2.5F, 0.0F, 65536.0F, 1.0F + 1.0F / 4096};
  std::array<uint16_t, 5> halves{};
  std::array<float, 5> back{};
  const horo_cast_array there{halves.data(), given.data(), given.size(), nullptr};
  const horo_cast_array again{back.data(), halves.data(), given.size(), nullptr};
  horo_cast narrow = terms(HORO_F16, HORO_F32), wide = terms(HORO_F32, HORO_F16);
  check(horo_group_cast(world, &narrow, &there, 1));
  check(horo_group_cast(world, &wide, &again, 1));
  EXPECT_EQ(back, (std::array<float, 5>{1.0F, -2.5F, 0.0F, std::numeric_limits<float>::infinity(), 1.0F}));
}

TEST(ApiCast, ArraysThatNameTheSamePlaceHaveOneLargestValue) {
  const Engine engine;
  horo_group* world = horo_engine_world(engine.get());
  const std::array<float, 3> one{1.0F, -0.5F, 0.25F};
  const std::array<float, 2> other{-2.0F, 1.0F};
  std::array<int8_t, 5> bytes{};
  std::array<float, 5> back{};
  float largest = 7.0F;
  const horo_cast_array there[] = {{bytes.data(), one.data(), 3, &largest},
                                   {bytes.data() + 3, other.data(), 2, &largest}};
  horo_cast narrow = terms(HORO_I8, HORO_F32);
  check(horo_group_cast(world, &narrow, there, 2));
  EXPECT_EQ(largest, 2.0F);
  EXPECT_EQ(bytes, (std::array<int8_t, 5>{64, -32, 16, -127, 64}));
  const horo_cast_array again{back.data(), bytes.data(), 5, &largest};
  horo_cast wide = terms(HORO_F32, HORO_I8);
  check(horo_group_cast(world, &wide, &again, 1));
  EXPECT_FLOAT_EQ(back[3], -2.0F);
  EXPECT_NEAR(back[0], 1.0F, 2.0F / 127);
  wide.add = 1;
  wide.factor = 0.25F;
  check(horo_group_cast(world, &wide, &again, 1));
  EXPECT_FLOAT_EQ(back[3], -1.0F);
}

TEST(ApiCast, WhatIsNotFiniteMakesTheWholeNaN) {
  const Engine engine;
  horo_group* world = horo_engine_world(engine.get());
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const std::array<float, 3> given{bad, 3.0F, 1.0F};
    std::array<int8_t, 3> bytes{5, 5, 5};
    std::array<float, 3> back{};
    float largest = 0;
    horo_cast narrow = terms(HORO_I8, HORO_F32), wide = terms(HORO_F32, HORO_I8);
    // The bad value first, then others that must not hide it.
    const horo_cast_array there[] = {{bytes.data(), given.data(), 1, &largest},
                                     {bytes.data() + 1, given.data() + 1, 2, &largest}};
    check(horo_group_cast(world, &narrow, there, 2));
    const horo_cast_array again{back.data(), bytes.data(), 3, &largest};
    check(horo_group_cast(world, &wide, &again, 1));
    for (const float one : back) EXPECT_TRUE(std::isnan(one));
  }
}

TEST(ApiCast, WhatThereIsNotIsRefused) {
  const Engine engine;
  horo_group* world = horo_engine_world(engine.get());
  float value = 1;
  const horo_cast_array array{&value, &value, 1, nullptr};
  horo_cast asked = terms(HORO_I32, HORO_F32);
  EXPECT_NE(outcome(horo_group_cast(world, &asked, &array, 1)).second.find("no cast from element type 10 to 5"),
            std::string::npos);
  asked = terms(HORO_I8, HORO_F32);
  EXPECT_NE(outcome(horo_group_cast(world, &asked, &array, 1)).second.find("largest"), std::string::npos);
  EXPECT_EQ(outcome(horo_group_cast(nullptr, &asked, &array, 1)).first, HORO_INVALID_ARGUMENT);
  EXPECT_EQ(outcome(horo_group_cast(world, nullptr, &array, 1)).first, HORO_INVALID_ARGUMENT);
  EXPECT_EQ(outcome(horo_group_cast(world, &asked, nullptr, 1)).first, HORO_INVALID_ARGUMENT);
  horo_memory* memory = nullptr;
  EXPECT_EQ(outcome(horo_group_allocate_on(nullptr, 0, 1, &memory)).first, HORO_INVALID_ARGUMENT);
  EXPECT_EQ(outcome(horo_group_allocate_on(world, 0, 0, &memory)).first, HORO_INVALID_ARGUMENT);
  EXPECT_EQ(outcome(horo_group_allocate_on(world, 0, 1, nullptr)).first, HORO_INVALID_ARGUMENT);
  EXPECT_EQ(outcome(horo_runtime_allocate_on(nullptr, 0, 1, &memory)).first, HORO_INVALID_ARGUMENT);
  EXPECT_EQ(outcome(horo_request_wait_in_stream(nullptr, nullptr, 0)).first, HORO_INVALID_ARGUMENT);
  EXPECT_EQ(outcome(horo_handle_wait_in_stream(nullptr, nullptr, 0)).first, HORO_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace horo
