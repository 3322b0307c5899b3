#include "horo/transport/shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "horo/base/system.h"

namespace horo::transport::shm {
namespace {

constexpr size_t kBytes = size_t{8} << 20;

uint64_t resident(const Segment& segment) {
  struct stat file {};
  EXPECT_EQ(fstat(segment.fd().get(), &file), 0);
  return static_cast<uint64_t>(file.st_blocks) * 512;
}

TEST(Segment, APeerCanOnlyRead) {
  auto segment = Segment::create_private("test", kBytes);
  ASSERT_TRUE(segment.ok()) << segment.status();
  std::memcpy(segment->memory().data(), "hello", 5);
  const int fd = segment->peer_fd().get();
  EXPECT_EQ(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  auto peer = map_peer(segment->peer_fd(), kBytes, Access::kRead);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(std::memcmp(peer->memory().data(), "hello", 5), 0);
  EXPECT_NE(mprotect(peer->memory().data(), kBytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_NE(ftruncate(fd, 4096), 0);
  EXPECT_NE(write(fd, "x", 1), 1);
  EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
  EXPECT_FALSE(map_peer(segment->peer_fd(), kBytes, Access::kReadWrite).ok());
  EXPECT_EQ(std::memcmp(segment->memory().data(), "hello", 5), 0);
}

TEST(Segment, TheOwnerCannotChangeItsLengthEither) {
  for (auto make : {Segment::create_private, Segment::create_shared}) {
    auto segment = make("test", kBytes);
    ASSERT_TRUE(segment.ok()) << segment.status();
    EXPECT_NE(ftruncate(segment->fd().get(), 4096), 0);
    EXPECT_NE(ftruncate(segment->fd().get(), kBytes * 2), 0);
    EXPECT_NE(fcntl(segment->fd().get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  }
}

TEST(Segment, PagesThatAreReleasedGoBackToTheSystemAlsoWhereAPeerHasReadThem) {
  auto segment = Segment::create_private("test", kBytes);
  ASSERT_TRUE(segment.ok()) << segment.status();
  auto peer = map_peer(segment->peer_fd(), kBytes, Access::kRead);
  ASSERT_TRUE(peer.ok()) << peer.status();
  ASSERT_TRUE(segment->populate(0, kBytes).ok());
  std::memset(segment->memory().data(), 7, kBytes);
  for (size_t at = 0; at < kBytes; at += page_size()) ASSERT_EQ(peer->memory()[at], std::byte{7});
  EXPECT_EQ(resident(*segment), kBytes);
  segment->release(0, kBytes / 2);
  EXPECT_EQ(resident(*segment), kBytes / 2);
  EXPECT_EQ(segment->memory()[0], std::byte{0});
  EXPECT_EQ(segment->memory()[kBytes / 2], std::byte{7});
  ASSERT_TRUE(segment->populate(0, kBytes / 2).ok());
  segment->memory()[5] = std::byte{9};
  EXPECT_EQ(peer->memory()[5], std::byte{9}) << "what comes back is shared as before";
}

TEST(Segment, PartsOfPagesAreNotReleased) {
  auto segment = Segment::create_private("test", kBytes);
  ASSERT_TRUE(segment.ok()) << segment.status();
  std::memset(segment->memory().data(), 7, kBytes);
  const size_t page = page_size();
  segment->release(page - 1, page + 2);
  EXPECT_EQ(segment->memory()[page - 1], std::byte{7});
  EXPECT_EQ(segment->memory()[page], std::byte{0});
  EXPECT_EQ(segment->memory()[2 * page], std::byte{7});
  segment->release(4 * page + 1, page);
  EXPECT_EQ(segment->memory()[4 * page + 1], std::byte{7});
}

}  // namespace
}  // namespace horo::transport::shm
