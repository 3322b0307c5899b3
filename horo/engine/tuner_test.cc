#include "horo/engine/tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "horo/base/text.h"
#include "horo/collective/algorithm.h"

namespace horo::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

const group::GroupOptions::Ways kNoWays;

TEST(Sampler, ASampleIsAsManyWholeSteps) {
  Sampler sampler(3);
  Time now{};
  std::optional<Sample> sample;
  int batches = 0;
  // Two batches a step, which takes 10 ms; the setting's first step does not count.
  while (!sample) {
    now += milliseconds(batches % 2 == 0 ? 7 : 3);
    sampler.ran(batches % 2 == 0 ? "a" : "b", batches % 2 == 0 ? 1000 : 24);
    ++batches;
    sample = sampler.take(now);
    ASSERT_LT(batches, 100);
  }
  EXPECT_EQ(sample->bytes, 3 * 1024u);
  EXPECT_EQ(sample->steps, 3u);
  EXPECT_EQ(sample->time, milliseconds(30));
  EXPECT_DOUBLE_EQ(sample->bytes_per_us(), 3 * 1024 / 30'000.0);
}

TEST(Sampler, ATensorThatCeasesToComeDoesNotHoldItUp) {
  Sampler sampler(3);
  Time now{};
  const auto take = [&](const char* name) {
    now += milliseconds(1);
    sampler.ran(name, 10);
    return sampler.take(now);
  };
  EXPECT_FALSE(take("once"));
  EXPECT_FALSE(take("once"));  // The step that does not count has passed.
  int steps = 0;
  while (!take("other")) ASSERT_LT(++steps, 10);
}

TEST(Sampler, NamesThatNeverComeAgainEndASampleToo) {
  Sampler sampler(3);
  int samples = 0;
  for (int i = 0; i < 100'000 && samples < 2; ++i) {
    sampler.ran(text("tensor ", i), 10);
    samples += sampler.take(Time{} + milliseconds(i)) ? 1 : 0;
  }
  EXPECT_EQ(samples, 2);
}

TEST(TuningSpace, HoldsTheDefaultsAndWhatTheUserSet) {
  const TuningSpace usual = tuning_space({}, {}, kNoWays);
  const Dimension threshold = usual.dimensions()[2], window = usual.dimensions()[3];
  EXPECT_GT(threshold.start, 0u);
  EXPECT_LT(threshold.start, threshold.values - 1) << "the default is inside the range";
  EXPECT_GT(window.start, 0u);
  EXPECT_LT(window.start, window.values - 1);
  EXPECT_EQ(usual.at({0, 0, threshold.start, window.start}), Tuning{});

  const Tuning odd{.threshold = 12345, .window = microseconds(777)};
  const TuningSpace fixed = tuning_space(odd, {.threshold = true, .window = true}, kNoWays);
  EXPECT_EQ(fixed.thresholds, std::vector<uint64_t>{12345});
  EXPECT_EQ(fixed.windows, std::vector<Duration>{microseconds(777)});
  const TuningSpace half = tuning_space(odd, {.threshold = true}, kNoWays);
  EXPECT_EQ(half.thresholds.size(), 1u);
  EXPECT_EQ(half.at({0, 0, 0, half.dimensions()[3].start}), odd);
  EXPECT_TRUE(std::is_sorted(half.windows.begin(), half.windows.end()));
}

/// A job whose steps take as long as a model says, on a clock of its own.
class Job {
 public:
  explicit Job(uint64_t seed) : random_(seed) {}
  /// Until the tuner is done, or so many steps have passed.
  template <class StepTime>
  int run(Tuner& tuner, int most, const StepTime& step_time) {
    std::normal_distribution<double> noise(1.0, 0.04);
    for (int step = 0; step < most; ++step) {
      if (tuner.done()) return step;
      for (int tensor = 0; tensor < 5; ++tensor) tuner.ran(text("gradient ", tensor), 4096);
      now_ += std::chrono::duration_cast<Duration>(step_time(tuner.tuning()) * std::max(0.2, noise(random_)));
      (void)tuner.step(now_);
      for (const Measured& one : tuner.take_measured()) measured.push_back(one);
    }
    return most;
  }
  std::vector<Measured> measured;

 private:
  std::mt19937_64 random_;
  Time now_{};
};

using Micro = std::chrono::duration<double, std::micro>;

TEST(Tuner, LeavesABadStartAndStopsMeasuring) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Tuning bad{.threshold = 1000, .window = milliseconds(1)};
    Tuner tuner({.space = tuning_space(bad, {}, kNoWays)});
    Job job(seed);
    const int steps = job.run(tuner, 100'000, [](const Tuning& tuning) {
      return Micro(200 + (tuning.threshold < (1 << 20) ? 300 : 0) +
                   static_cast<double>(tuning.window.count()) / 10'000);
    });
    EXPECT_TRUE(tuner.done());
    EXPECT_GE(tuner.tuning().threshold, uint64_t{1} << 20) << "seed " << seed;
    EXPECT_GT(tuner.gain(), 1.5) << "seed " << seed;
    EXPECT_LE(steps, static_cast<int>((Search::most_samples(20) + 3) * 12));
    EXPECT_EQ(job.measured.back().phase, "done");
    EXPECT_EQ(job.measured.back().tuning, tuner.tuning());
    EXPECT_EQ(std::count_if(job.measured.begin(), job.measured.end(),
                            [](const Measured& one) { return one.phase == "warmup"; }),
              3);
    EXPECT_EQ(tuner.step(Time{}), std::nullopt);
  }
}

TEST(Tuner, KeepsWhatIsAsGood) {
  int kept = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Tuner tuner({.space = tuning_space({}, {}, kNoWays)});
    Job job(seed);
    job.run(tuner, 100'000, [](const Tuning&) { return Micro(300); });
    EXPECT_TRUE(tuner.done());
    kept += tuner.tuning() == Tuning{} ? 1 : 0;
  }
  EXPECT_GE(kept, 45) << "of 50: the default wins ties";
}

TEST(Tuner, TakesTheWayThatIsFaster) {
  group::GroupOptions::Ways ways;
  ways.allreduce = {{.one_level = true}, {.one_level = true, .algorithm = 2}};
  Tuner tuner({.space = tuning_space({}, {.threshold = true, .window = true}, ways), .steps = 2});
  Job job(7);
  job.run(tuner, 10'000, [](const Tuning& tuning) {
    return Micro(tuning.ways.allreduce.algorithm == 2 ? 100 : tuning.ways.allreduce.one_level ? 180 : 200);
  });
  EXPECT_EQ(tuner.tuning().ways.allreduce, ways.allreduce[1]);
  EXPECT_EQ(tuner.tuning().threshold, Tuning{}.threshold);
}

TEST(Tuner, SaysThatItIsDoneWhereThereIsNothingToChoose) {
  Tuner tuner({.space = tuning_space({}, {.threshold = true, .window = true}, kNoWays)});
  EXPECT_TRUE(tuner.done());
  tuner.ran("a", 10);
  EXPECT_EQ(tuner.step(Time{}), std::nullopt);
  ASSERT_EQ(tuner.take_measured().size(), 1u);
  EXPECT_EQ(tuner.step(Time{}), std::nullopt);
  EXPECT_TRUE(tuner.take_measured().empty());
}

TEST(Tuner, ItsLogHasAsManyFieldsAsItsHeader) {
  const auto fields = [](const std::string& line) { return std::count(line.begin(), line.end(), ',') + 1; };
  Measured measured{.since_start = milliseconds(1500),
                    .phase = "search",
                    .trial = 4,
                    .tuning = {.threshold = 1 << 20, .window = microseconds(500)},
                    .sample = {.bytes = 1000, .steps = 10, .time = milliseconds(1)}};
  measured.tuning.ways.allreduce = {.one_level = true, .algorithm = 1};
  const std::string line = tuning_log_line(measured);
  EXPECT_EQ(fields(line), fields(tuning_log_header())) << line;
  EXPECT_EQ(line, text("1.5,search,4,1048576,500,0,", collective::registry()[0].name, ",1,auto,1000,10,1000,1"));
}

}  // namespace
}  // namespace horo::engine
