#include "horo/transport/undo.h"

#include <gtest/gtest.h>

namespace horo::transport {
namespace {

using Bytes = std::vector<std::byte>;

TEST(Undo, PutsBackWhatWasKeptAndNothingElse) {
  Bytes memory(1000), kept(1000, std::byte{0xEE});
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i % 251);
  const Bytes before = memory;
  Undo undo;
  EXPECT_FALSE(undo.keeps());
  undo.begin(memory, kept.data());
  EXPECT_TRUE(undo.keeps());
  undo.keep(memory.data() + 100, 50);
  undo.keep(memory.data() + 150, 50);
  undo.keep(memory.data() + 990, 10);
  undo.keep(memory.data(), 0);
  std::fill(memory.begin(), memory.end(), std::byte{0xFF});
  undo.put_back();
  for (size_t i = 0; i < memory.size(); ++i) {
    const bool was_kept = (i >= 100 && i < 200) || i >= 990;
    EXPECT_EQ(memory[i], was_kept ? before[i] : std::byte{0xFF}) << i;
    EXPECT_EQ(kept[i], was_kept ? before[i] : std::byte{0xEE}) << i;
  }
}

TEST(Undo, ForgetsWhatWasKeptBefore) {
  Bytes memory(10, std::byte{1}), kept(10);
  Undo undo;
  undo.begin(memory, kept.data());
  undo.keep(memory.data(), 10);
  std::fill(memory.begin(), memory.end(), std::byte{2});
  undo.begin(memory, kept.data());
  undo.put_back();
  EXPECT_EQ(memory, Bytes(10, std::byte{2}));
  undo.begin(memory, nullptr);
  EXPECT_FALSE(undo.keeps());
}

}  // namespace
}  // namespace horo::transport
