#include "cli/run/lines.h"

#include <gtest/gtest.h>

#include <random>

#include "horo/base/text.h"

namespace horo::cli::launch {
namespace {

using Lines = std::vector<std::string>;

TEST(LineCutter, GivesWholeLinesHoweverTheBytesArrive) {
  const std::string binary = std::string("binary ") + '\0' + "\xff\x1b[0m\n";
  const std::string all = "one\ntwo\r\n\n\rthree\r" + binary + "rest";
  const Lines expected{"one\n", "two\r\n", "\n", "\r", "three\r", binary};
  for (size_t step = 1; step <= all.size(); ++step) {
    LineCutter cutter;
    Lines lines;
    for (size_t at = 0; at < all.size(); at += step) {
      for (auto& line : cutter.add(std::string_view(all).substr(at, step))) lines.push_back(line);
    }
    EXPECT_EQ(lines, expected) << "in steps of " << step;
    EXPECT_EQ(cutter.rest(), "rest");
    EXPECT_EQ(cutter.rest(), "");
  }
}

TEST(LineCutter, CutsEndlessLinesSoThatMemoryStaysBounded) {
  LineCutter cutter;
  const std::string long_piece(LineCutter::kMostBytes * 5 / 2, 'x');
  const Lines lines = cutter.add(long_piece);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), LineCutter::kMostBytes);
  EXPECT_EQ(lines[0] + lines[1] + cutter.rest(), long_piece);
}

TEST(LineCutter, LosesNothingOfRandomBytes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  LineCutter cutter;
  std::string given, got;
  for (int i = 0; i < 2000; ++i) {
    std::string piece(random() % 50, ' ');
    for (char& c : piece) c = "\r\nab\0"[random() % 5];
    given += piece;
    for (const auto& line : cutter.add(piece)) {
      got += line;
      EXPECT_TRUE(line.ends_with('\n') || line.ends_with('\r'));
      const size_t end = line.find_first_of("\r\n");
      EXPECT_TRUE(end == line.size() - 1 || line.substr(end) == "\r\n");
    }
  }
  EXPECT_EQ(got + cutter.rest(), given);
}

TEST(LineMixer, PrefixesEveryLineWithRankAndStream) {
  LineMixer mixer(false);
  EXPECT_EQ(mixer.write(1, Stream::kStdout, "hello\n", "now"), "[1]<stdout>:hello\n");
  EXPECT_EQ(mixer.write(0, Stream::kStderr, "no end", "now"), "[0]<stderr>:no end\n");
  LineMixer dated(true);
  EXPECT_EQ(dated.write(1, Stream::kStdout, "hello\n", "Mon "), "Mon [1]<stdout>:hello\n");
}

TEST(LineMixer, AProgressBarOfOneRankIsNotOverwrittenByAnother) {
  LineMixer mixer(false);
  EXPECT_EQ(mixer.write(0, Stream::kStderr, "10%\r", ""), "[0]<stderr>:10%\r");
  EXPECT_EQ(mixer.write(0, Stream::kStderr, "20%\r", ""), "[0]<stderr>:20%\r");
  EXPECT_EQ(mixer.write(1, Stream::kStderr, "x\n", ""), "\n[1]<stderr>:x\n");
  EXPECT_EQ(mixer.write(0, Stream::kStderr, "30%\r", ""), "[0]<stderr>:30%\r");
  EXPECT_EQ(mixer.write_own("horo run: ended"), "\nhoro run: ended\n");
}

TEST(Tail, KeepsTheLastLines) {
  Tail tail;
  for (size_t i = 0; i < Tail::kMostLines + 5; ++i) tail.add(Stream::kStderr, text("line ", i, "\r\n"));
  ASSERT_EQ(tail.lines().size(), Tail::kMostLines);
  EXPECT_EQ(tail.lines().front(), "<stderr>:line 5");
  tail.add(Stream::kStdout, std::string(10000, 'x'));
  EXPECT_LT(tail.lines().back().size(), 500u);
}

}  // namespace
}  // namespace horo::cli::launch
