#include "cli/run/variables.h"

#include <gtest/gtest.h>

namespace horo::cli::launch {
namespace {

TEST(RankVariables, TellThePlaceUnderBothNames) {
  const Placement placement = *place_ranks({{"a", 2}, {"b", 2}}, 4);
  const auto variables = variables_of(placement.ranks[3], placement);
  for (const std::string prefix : {"HORO_", "HOROVOD_"}) {
    EXPECT_EQ(variables.at(prefix + "RANK"), "3");
    EXPECT_EQ(variables.at(prefix + "SIZE"), "4");
    EXPECT_EQ(variables.at(prefix + "LOCAL_RANK"), "1");
    EXPECT_EQ(variables.at(prefix + "LOCAL_SIZE"), "2");
    EXPECT_EQ(variables.at(prefix + "CROSS_RANK"), "1");
    EXPECT_EQ(variables.at(prefix + "CROSS_SIZE"), "2");
    EXPECT_EQ(variables.at(prefix + "HOSTNAME"), "b");
  }
}

TEST(RankVariables, NeverContainTheKey) {
  for (const auto& [name, value] : variables_of(JobVariables{"job", "1.2.3.4:5"})) {
    EXPECT_TRUE(name.find("KEY") == std::string::npos || value.empty()) << name;
  }
}

TEST(ForwardedVariables, LeaveOutWhatBelongsToThisHost) {
  const Environment environment({{"PATH", "/venv/bin"},
                                 {"PYTHONPATH", "/x"},
                                 {"HOROVOD_CYCLE_TIME", "3"},
                                 {"HOME", "/h"},
                                 {"SSH_AUTH_SOCK", "/s"},
                                 {"CUDA_VISIBLE_DEVICES", "0"},
                                 {"NVIDIA_CUDA_VISIBLE_DEVICES", "0"},
                                 {"BASH_FUNC_x%%", "() {}"},
                                 {"OLDPWD", "/o"},
                                 {"HORO_KEY_FILE", "/k"},
                                 {"_HOROVOD_SECRET_KEY", "s"}});
  EXPECT_EQ(variables_to_forward(environment),
            (Environment::Variables{{"PATH", "/venv/bin"}, {"PYTHONPATH", "/x"}, {"HOROVOD_CYCLE_TIME", "3"}}));
}

}  // namespace
}  // namespace horo::cli::launch
