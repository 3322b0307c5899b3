#include "cli/run/mpi_command.h"

#include <gtest/gtest.h>

#include "horo/base/text.h"

namespace horo::cli::launch {
namespace {

RunOptions options_of(const std::vector<std::string>& words) {
  auto flags = parse_flags(words);
  EXPECT_TRUE(flags.ok()) << flags.status();
  auto options = make_options(std::move(*flags), Environment());
  EXPECT_TRUE(options.ok()) << options.status();
  return *options;
}

std::string line_of(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += text(line.empty() ? "" : " ", word);
  return line;
}

TEST(MpiCommand, IsThatOfTheFamilyThatIsInstalled) {
  EXPECT_EQ(*mpi_family("mpirun (Open MPI) 4.1.4\n"), MpiFamily::kOpenMpi);
  EXPECT_EQ(*mpi_family("HYDRA build details:\n    Version: 4.0.2\n"), MpiFamily::kMpich);
  EXPECT_EQ(*mpi_family("Intel(R) MPI Library for Linux* OS\n"), MpiFamily::kMpich);
  EXPECT_EQ(mpi_family("something else").status().code(), Code::kNotFound);
}

TEST(MpiCommand, OfOpenMpiIsAsHorovodHasIt) {
  const RunOptions options = options_of({"--mpi", "-H", "a:2,b:1", "--mpi-args", "--mca x y", "python", "x.py", "-n"});
  EXPECT_TRUE(options.mpi.wanted);
  EXPECT_EQ(line_of(mpi_command(MpiFamily::kOpenMpi, options, {.is_root = true, .cores = 2}, {"PATH", "HORO_X"})),
            "mpirun --allow-run-as-root --tag-output -np 3 -H a:2,b:1 -bind-to none -map-by slot -mca pml ob1 -mca btl "
            "^openib -x PATH -x HORO_X --mca x y python x.py -n");
}

TEST(MpiCommand, SaysWhereRanksOutnumberCoresAndHowTheyAreBound) {
  const RunOptions options = options_of(
      {"--mpi", "-np", "4", "--binding-args", "-bind-to socket", "--network-interfaces", "eth0,eth1", "true"});
  EXPECT_EQ(line_of(mpi_command(MpiFamily::kOpenMpi, options, {.is_root = false, .cores = 2}, {})),
            "mpirun --tag-output -np 4 -H localhost:4 --oversubscribe -bind-to socket -mca pml ob1 -mca btl ^openib "
            "-mca btl_tcp_if_include eth0,eth1 true");
}

TEST(MpiCommand, OfMpichHasItsOwnWords) {
  const RunOptions options = options_of({"--mpi", "-np", "2", "--mpi-args", "-disable-x", "true"});
  EXPECT_EQ(line_of(mpi_command(MpiFamily::kMpich, options, {}, {"PATH"})),
            "mpirun -n 2 -hosts localhost:2 -bind-to none -prepend-rank -genvall -disable-x true");
}

TEST(MpiCommand, FlagsOfMpiWithoutItAreExplained) {
  const RunOptions options = options_of({"-np", "1", "--mpi-args", "x", "true"});
  EXPECT_FALSE(options.mpi.wanted);
  ASSERT_EQ(options.notes.size(), 1u);
  EXPECT_NE(options.notes[0].find("--mpi-args changes nothing"), std::string::npos);
  EXPECT_EQ(options_of({"--mpi", "-np", "1", "--mpi-threads-disable", "true"}).variables.at("HORO_MPI_THREADS_DISABLE"),
            "1");
}

TEST(MpiCommand, FlagsThatOnlyHorosOwnRanksTakeAreExplained) {
  const RunOptions options = options_of({"--mpi", "-np", "1", "--ssh-port", "2222", "--output-filename", "x", "true"});
  EXPECT_TRUE(options.mpi.wanted);
  ASSERT_EQ(options.notes.size(), 2u);
  EXPECT_NE(options.notes[0].find("--ssh-port changes nothing: mpirun starts the ranks"), std::string::npos);
  EXPECT_NE(options.notes[1].find("--output-filename changes nothing"), std::string::npos);
}

TEST(MpiCommand, RanksThatReadACallAndHandItsResultBackAreHorosOwn) {
  const RunOptions options = options_of({"--mpi", "-np", "1", "--input", "call", "--result-folder", "out", "true"});
  EXPECT_FALSE(options.mpi.wanted);
  ASSERT_EQ(options.notes.size(), 1u);
  EXPECT_NE(options.notes[0].find("--mpi changes nothing"), std::string::npos);
}

}  // namespace
}  // namespace horo::cli::launch
