#include "horo/base/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace horo {
namespace {

using namespace std::chrono_literals;

constexpr IntegerKnob kStreams{
    {.name = "HORO_STREAMS", .fallback = "4", .help = "Streams per peer.", .minimum = 1, .maximum = 64}};
constexpr BytesKnob kStaging{{.name = "HORO_STAGING", .fallback = "256MiB", .help = "Memory for staging."}};
constexpr SecondsKnob kCycle{{.name = "HORO_CYCLE",
                              .legacy = "HOROVOD_CYCLE_TIME",
                              .fallback = "1ms",
                              .help = "Gather window.",
                              .legacy_unit = "ms"}};
constexpr BoolKnob kPin{{.name = "HORO_PIN", .legacy = "HOROVOD_PIN", .fallback = "0", .help = "Pin threads."}};
constexpr TextKnob kKey{{.name = "HORO_KEY", .help = "The job's key."}};
constexpr ChoiceKnob kTransport{
    {.name = "HORO_TRANSPORT", .fallback = "auto", .help = "The transport.", .choices = "auto|shm|tcp"}};
constexpr IntegerKnob kToken{{.name = "HORO_TOKEN", .fallback = "0", .help = "A secret number.", .secret = true}};
constexpr const Knob* kTable[] = {&kStreams, &kStaging, &kCycle, &kPin};
constexpr const Knob* kOtherTable[] = {&kKey, &kTransport, &kToken};

Result<Config> read(Environment::Variables variables) {
  return Config::read({kTable, kOtherTable}, Environment(std::move(variables)));
}

std::string error_of(Environment::Variables variables) {
  auto config = read(std::move(variables));
  EXPECT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
  return config.status().message();
}

TEST(Config, DefaultsHoldWhenNothingIsSet) {
  auto config = read({});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->get(kStreams), 4);
  EXPECT_EQ(config->get(kStaging), 256u << 20);
  EXPECT_EQ(config->get(kCycle), 1ms);
  EXPECT_FALSE(config->get(kPin));
  EXPECT_EQ(config->get(kKey), "");
  EXPECT_EQ(config->get(kTransport), "auto");
  EXPECT_FALSE(config->is_set(kStreams));
  EXPECT_TRUE(config->warnings().empty());
}

TEST(Config, ValuesOfEveryKindAreRead) {
  auto config = read({{"HORO_STREAMS", "64"},
                      {"HORO_STAGING", "1.5GiB"},
                      {"HORO_CYCLE", "250us"},
                      {"HORO_PIN", "Yes"},
                      {"HORO_KEY", " a b "},
                      {"HORO_TRANSPORT", "TCP"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->get(kStreams), 64);
  EXPECT_EQ(config->get(kStaging), 3u << 29);
  EXPECT_EQ(config->get(kCycle), 250us);
  EXPECT_TRUE(config->get(kPin));
  EXPECT_EQ(config->get(kKey), "a b");
  EXPECT_EQ(config->get(kTransport), "tcp");
  EXPECT_TRUE(config->is_set(kStreams));
}

TEST(Config, BytesAreReadInAllSpellings) {
  const std::pair<const char*, uint64_t> kCases[] = {
      {"0", 0},          {"4096", 4096},   {"4096B", 4096},    {"64k", 65536},
      {"64 KiB", 65536}, {"2M", 2u << 20}, {"1T", 1ull << 40}, {"9223372036854775807", INT64_MAX}};
  for (auto [written, bytes] : kCases) {
    auto config = read({{"HORO_STAGING", written}});
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->get(kStaging), bytes) << written;
  }
  for (const char* written : {"-1", "64KB", "1e6", "0.3", "MiB", "1..5M", "9223372036854775808", "nan", "inf"}) {
    EXPECT_NE(error_of({{"HORO_STAGING", written}}), "") << written;
  }
}

TEST(Config, TimesAreReadInAllSpellings) {
  const std::pair<const char*, Duration> kCases[] = {{"2", 2s},      {"0.5", 500ms}, {"250ms", 250ms}, {"2s", 2s},
                                                     {"5min", 5min}, {"1h", 1h},     {"0", 0s}};
  for (auto [written, time] : kCases) {
    auto config = read({{"HORO_CYCLE", written}});
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->get(kCycle), time) << written;
  }
  for (const char* written : {"-1", "1d", "soon", "1e99", "99999999999h", "."}) {
    EXPECT_NE(error_of({{"HORO_CYCLE", written}}), "") << written;
  }
}

TEST(Config, AMalformedValueNamesVariableValueAndWhatIsAccepted) {
  EXPECT_EQ(error_of({{"HORO_STREAMS", "many"}}), "HORO_STREAMS holds 'many', accepted is an integer from 1 to 64");
  EXPECT_EQ(error_of({{"HORO_STREAMS", "65"}}), "HORO_STREAMS holds '65', accepted is an integer from 1 to 64");
  EXPECT_EQ(error_of({{"HORO_TRANSPORT", "rdma"}}), "HORO_TRANSPORT holds 'rdma', accepted is one of auto, shm, tcp");
  EXPECT_EQ(error_of({{"HOROVOD_CYCLE_TIME", "x"}}),
            "HOROVOD_CYCLE_TIME holds 'x', accepted is a time, for example 30, 0.5, 250ms or 5min");
}

TEST(Config, AllMalformedValuesAreNamedAtOnce) {
  std::string message = error_of({{"HORO_STREAMS", "many"}, {"HORO_PIN", "perhaps"}});
  EXPECT_NE(message.find("HORO_STREAMS holds 'many'"), std::string::npos) << message;
  EXPECT_NE(message.find("HORO_PIN holds 'perhaps'"), std::string::npos) << message;
}

TEST(Config, ASecretNeverAppearsInAMessage) {
  std::string message = error_of({{"HORO_TOKEN", "hunter2"}});
  EXPECT_EQ(message.find("hunter2"), std::string::npos) << message;
  EXPECT_NE(message.find("HORO_TOKEN"), std::string::npos) << message;
}

TEST(Config, AnEmptyValueCountsAsUnset) {
  auto config = read({{"HORO_STREAMS", ""}, {"HOROVOD_PIN", ""}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->get(kStreams), 4);
  EXPECT_FALSE(config->is_set(kPin));
}

TEST(Config, AnUnknownKnobIsAWarningWithTheNearestName) {
  auto config = read({{"HORO_STAGNG", "1"}, {"HORO_QQQQQQQQQQQQQQQQ", "1"}});
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->warnings().size(), 2u);
  EXPECT_EQ(config->warnings()[0], "HORO_QQQQQQQQQQQQQQQQ is set but horo has no such knob");
  EXPECT_EQ(config->warnings()[1], "HORO_STAGNG is set but horo has no such knob; did you mean HORO_STAGING?");
}

TEST(Config, AnUnknownHorovodVariableIsListedAndIgnored) {
  auto config = read({{"HOROVOD_NCCL_LINK", "x"}, {"HOROVOD_PIN", "1"}, {"PATH", "x"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->warnings().empty());
  EXPECT_EQ(config->ignored(), std::vector<std::string>{"HOROVOD_NCCL_LINK"});
}

TEST(Config, ALegacyNameIsHonouredInItsOwnUnit) {
  auto config = read({{"HOROVOD_CYCLE_TIME", "5"}, {"HOROVOD_PIN", "1"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->get(kCycle), 5ms);
  EXPECT_TRUE(config->get(kPin));
  EXPECT_TRUE(config->is_set(kPin));
}

TEST(Config, TheNewNameWinsOverTheLegacyOneAndADifferenceIsAWarning) {
  auto same = read({{"HORO_CYCLE", "5ms"}, {"HOROVOD_CYCLE_TIME", "5"}});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(same->warnings().empty());

  auto different = read({{"HORO_CYCLE", "7ms"}, {"HOROVOD_CYCLE_TIME", "5"}});
  ASSERT_TRUE(different.ok()) << different.status();
  EXPECT_EQ(different->get(kCycle), 7ms);
  ASSERT_EQ(different->warnings().size(), 1u);
  EXPECT_EQ(different->warnings()[0], "HORO_CYCLE and HOROVOD_CYCLE_TIME are both set and differ; HORO_CYCLE is used");
}

TEST(Config, TheProcessEnvironmentIsASnapshot) {
  ASSERT_EQ(setenv("HORO_STREAMS", "9", 1), 0);
  Environment before = Environment::of_process();
  ASSERT_EQ(setenv("HORO_STREAMS", "10", 1), 0);
  EXPECT_EQ(before.find("HORO_STREAMS"), "9");
  EXPECT_EQ(Environment::of_process().find("HORO_STREAMS"), "10");
  ASSERT_EQ(unsetenv("HORO_STREAMS"), 0);
  EXPECT_EQ(Environment::of_process().find("HORO_STREAMS"), std::nullopt);
}

TEST(Config, ChangesReplaceAndUnset) {
  Environment environment = Environment({{"A", "1"}, {"B", "2"}}).with({{"A", ""}, {"C", "3"}});
  EXPECT_EQ(environment.find("A"), std::nullopt);
  EXPECT_EQ(environment.find("B"), "2");
  EXPECT_EQ(environment.find("C"), "3");
}

TEST(ConfigDeathTest, AKnobOutsideTheTablesIsOurOwnMistake) {
  auto config = Config::read({kTable}, Environment());
  ASSERT_TRUE(config.ok());
  EXPECT_DEATH((void)config->get(kTransport), "HORO_TRANSPORT is in no table");
}

TEST(Knobs, AreRenderedAsMarkdownAndAsHelp) {
  const KnobTable kTables[] = {kTable, kOtherTable};
  std::string markdown = knobs_markdown(kTables);
  EXPECT_NE(markdown.find("| `HORO_CYCLE` | `1ms` | a time, for example 30, 0.5, 250ms or 5min | Gather window. | "
                          "`HOROVOD_CYCLE_TIME` |"),
            std::string::npos)
      << markdown;
  std::string help = knobs_help(kTables);
  EXPECT_NE(help.find("HORO_TRANSPORT=auto\n    The transport.\n    Accepted: one of auto, shm, tcp."),
            std::string::npos)
      << help;
}

}  // namespace
}  // namespace horo
