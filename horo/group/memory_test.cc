#include "horo/group/memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "horo/base/system.h"

namespace horo::group {
namespace {

uint64_t resident(const transport::shm::Segment& segment) {
  struct stat file {};
  EXPECT_EQ(fstat(segment.fd().get(), &file), 0);
  return static_cast<uint64_t>(file.st_blocks) * 512;
}

constexpr uint64_t kBytes = uint64_t{16} << 20;

TEST(Memory, WhatIsFreedGoesBackToTheSystem) {
  auto memory = Memory::create(0);
  ASSERT_TRUE(memory.ok()) << memory.status();
  auto kept = (*memory)->allocate(100);
  auto one = (*memory)->allocate(kBytes);
  ASSERT_TRUE(kept.ok() && one.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(one->data()) % page_size(), 0u);
  (*kept)[0] = std::byte{5};
  EXPECT_GE(resident((*memory)->buffers()), kBytes);
  (*memory)->free(one->data());
  EXPECT_LE(resident((*memory)->buffers()), page_size());
  EXPECT_EQ((*kept)[0], std::byte{5});
  auto area = (*memory)->take_area(kBytes);
  ASSERT_TRUE(area.ok());
  ASSERT_TRUE((*memory)->commit(*area, kBytes / 2, 0).ok());
  EXPECT_GE(resident((*memory)->segment()), kBytes / 2);
  (*memory)->free_area(area->data());
  EXPECT_LE(resident((*memory)->segment()), page_size());
}

TEST(Memory, WhatIsWithdrawnNobodyElseWritesNorGetsAgain) {
  auto memory = Memory::create(0);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const transport::shm::Segment& buffers = (*memory)->buffers();
  auto peer = transport::shm::map_peer(buffers.fd(), buffers.memory().size(), transport::shm::Access::kReadWrite);
  ASSERT_TRUE(peer.ok()) << peer.status();
  auto other = (*memory)->allocate(kBytes);
  auto one = (*memory)->allocate(kBytes);
  ASSERT_TRUE(other.ok() && one.ok());
  std::memset(one->data(), 1, kBytes);
  const auto at = static_cast<size_t>(one->data() - buffers.memory().data());
  std::byte* seen = peer->memory().data() + at;
  const size_t page = page_size();
  EXPECT_EQ(seen[page], std::byte{1});
  EXPECT_TRUE((*memory)->shows(one->data() + 1, kBytes - 1));

  (*memory)->withdraw(one->subspan(page, kBytes - 2 * page));
  EXPECT_FALSE((*memory)->shows(one->data(), kBytes));
  EXPECT_TRUE((*memory)->shows(other->data(), kBytes));
  EXPECT_LE(resident(buffers), kBytes + 2 * page) << "what was there is given back";
  seen[page] = seen[kBytes - page - 1] = std::byte{9};  // A writer that was left behind.
  EXPECT_EQ((*one)[page], std::byte{0});
  EXPECT_EQ((*one)[kBytes - page - 1], std::byte{0});
  EXPECT_EQ((*one)[0], std::byte{1}) << "beside the pages";
  EXPECT_EQ((*one)[kBytes - 1], std::byte{1});
  (*one)[page] = std::byte{3};
  EXPECT_EQ(seen[page], std::byte{9});

  (*memory)->free(one->data());
  auto next = (*memory)->allocate(kBytes);
  ASSERT_TRUE(next.ok());
  EXPECT_TRUE(next->data() >= one->data() + kBytes || next->data() + kBytes <= one->data());
  EXPECT_TRUE((*memory)->shows(next->data(), kBytes));
  EXPECT_LE(resident(buffers), 2 * kBytes);
}

}  // namespace
}  // namespace horo::group
