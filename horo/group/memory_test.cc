#include "horo/group/memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "horo/base/system.h"

namespace horo::group {
namespace {

TEST(Memory, WhatIsFreedGoesBackToTheSystem) {
  auto memory = Memory::create(0);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto resident = [&] {
    struct stat file {};
    EXPECT_EQ(fstat((*memory)->segment().fd().get(), &file), 0);
    return static_cast<uint64_t>(file.st_blocks) * 512;
  };
  constexpr uint64_t kBytes = uint64_t{16} << 20;
  auto kept = (*memory)->allocate(100);
  auto one = (*memory)->allocate(kBytes);
  ASSERT_TRUE(kept.ok() && one.ok());
  EXPECT_EQ((*memory)->offset(one->data()) % page_size(), 0u);
  (*kept)[0] = std::byte{5};
  EXPECT_GE(resident(), kBytes);
  (*memory)->free(one->data());
  EXPECT_LE(resident(), page_size());
  EXPECT_EQ((*kept)[0], std::byte{5});
  auto area = (*memory)->take_area(kBytes);
  ASSERT_TRUE(area.ok());
  ASSERT_TRUE((*memory)->commit(*area, kBytes / 2, 0).ok());
  EXPECT_GE(resident(), kBytes / 2);
  (*memory)->free(area->data());
  EXPECT_LE(resident(), page_size());
}

}  // namespace
}  // namespace horo::group
