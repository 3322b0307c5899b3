// Every flag, by what it does. The rows of the table name these tests, and flag_table_test.cc holds them to it.
#include "cli/run/flags.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "cli/process.h"
#include "cli/run/config_file.h"
#include "cli/run/duct.h"
#include "cli/run/options.h"

#include "horo/api/horo.h"
#include "horo/base/build.h"
#include "horo/base/pattern_testing.h"
#include "horo/base/text.h"
#include "horo/net/poller.h"

namespace horo::cli::launch {
namespace {

bool contains(const std::string& all, const std::string& words) { return all.find(words) != all.npos; }

Result<RunOptions> options_of(const std::vector<std::string>& words, const Environment& environment = Environment()) {
  HORO_ASSIGN(FlagValues flags, parse_flags(words));
  return make_options(std::move(flags), environment);
}

std::string error_of(const std::vector<std::string>& words) {
  const auto options = options_of(words);
  return options.ok() ? "" : options.status().message();
}

struct Ran {
  int code = -1;
  std::string out;
  std::string err;
};

/// With a folder of its own, and the program as a user runs it.
class RunFlags : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "horo-flags-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& contents, bool executable = false) const {
    std::ofstream(file(name), std::ios::binary) << contents;
    if (executable) std::filesystem::permissions(file(name), std::filesystem::perms::owner_all);
    return file(name);
  }
  std::string read(const std::string& name) const {
    std::ifstream in(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Ran shell(const std::string& command) const {
    const int status = std::system(text(command, " > ", file("out"), " 2> ", file("err"), " < /dev/null").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out"), read("err")};
  }
  Ran horo(const std::string& words) const { return shell(text(own_folder(), "/bin/horo run ", words)); }

  std::string folder_;
};

TEST_F(RunFlags, NumProcIsHowManyRanks) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"-np", "3"}, {"--np", "3"}, {"--num-proc", "3"}, {"--num-proc=3"}, {"-np=3"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"python", "-np", "7", "x"});
    const auto options = options_of(all);
    ASSERT_TRUE(options.ok()) << words[0] << ": " << options.status();
    EXPECT_EQ(options->placement.ranks.size(), 3u);
    EXPECT_EQ(options->command, (std::vector<std::string>{"python", "-np", "7", "x"}));
  }
  EXPECT_TRUE(contains(error_of({"python"}), "-np is missing"));
  EXPECT_TRUE(contains(error_of({"-np", "2"}), "no command"));
  EXPECT_TRUE(contains(error_of({"-np", "0", "x"}), "'0' is not a whole number, 1 or more"));
  EXPECT_TRUE(contains(error_of({"-np", "two", "x"}), "'two'"));
  EXPECT_EQ(options_of({"-np", "1", "--", "-np"})->command, std::vector<std::string>{"-np"});
}

TEST_F(RunFlags, HostsAreTakenFromTheCommandLine) {
  const auto options = options_of({"-np", "3", "-H", "a:2,b:2", "x"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->placement.hosts, (std::vector<Host>{{"a", 2}, {"b", 1}}));
  // All slots, if nothing else is said.
  EXPECT_EQ(options_of({"--hosts", "a:2,b:2", "x"})->placement.ranks.size(), 4u);
  EXPECT_TRUE(contains(error_of({"-np", "5", "-H", "a:2,b:2", "x"}), "too few slots"));
  EXPECT_TRUE(contains(error_of({"-np", "2", "-H", "a:b", "x"}), "'a:b'"));
  EXPECT_TRUE(contains(error_of({"-H", "a", "--hostfile", "f", "x"}), "exclude each other"));
}

TEST_F(RunFlags, HostfilesAreRead) {
  const std::string path = write("hosts", "a slots=2\nb slots=3\n");
  for (const char* name : {"--hostfile", "-hostfile"}) {
    const auto options = options_of({name, path, "x"});
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->placement.hosts, (std::vector<Host>{{"a", 2}, {"b", 3}}));
  }
  EXPECT_TRUE(contains(error_of({"--hostfile", write("bad", "a\nb slots=x\n"), "x"}), "bad:2: 'slots=x'"));
  EXPECT_TRUE(contains(error_of({"--hostfile", file("absent"), "x"}), "absent: No such file"));
  EXPECT_TRUE(contains(error_of({"--hostfile", file(""), "x"}), "Is a directory"));
}

TEST_F(RunFlags, ADiscoveryScriptIsWaitedForUntilThereAreEnoughSlots) {
  const std::string script = write("find", text("#!/bin/sh\necho ran >> ", file("runs"), "\necho a:2\necho b\n"), true);
  const auto options = options_of({"--host-discovery-script", script, "--slots-per-host", "3", "x"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->placement.hosts, (std::vector<Host>{{"a", 2}, {"b", 3}}));
  EXPECT_EQ(read("runs"), "ran\n");
  EXPECT_TRUE(options->elastic.wanted);
  // Another slot each time.
  const std::string grows = write("grows", text("#!/bin/sh\necho a:1 >> ", file("list"), "\ncat ", file("list")), true);
  const auto grown = options_of({"-np", "2", "--host-discovery-script", grows, "x"});
  ASSERT_TRUE(grown.ok()) << grown.status();
  EXPECT_EQ(grown->placement.ranks.size(), 2u);
  EXPECT_TRUE(contains(error_of({"-np", "9", "--host-discovery-script", script, "--elastic-timeout", "0", "x"}),
                       "too few slots: -np asks for 9 ranks, the hosts offer 3"));
  EXPECT_TRUE(
      contains(error_of({"--host-discovery-script", write("fails", "#!/bin/sh\nexit 3\n", true), "x"}), "code 3"));
}

TEST_F(RunFlags, InterfacesOverrideRouting) {
  const auto options = options_of(
      {"-np", "1", "--network-interfaces", "eth0,ib0", "--network-interface", "lo", "--network-interface", "wl0", "x"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->interfaces, (std::vector<std::string>{"eth0", "ib0", "lo", "wl0"}));
  const Ran ran = horo("-np 1 --network-interfaces nothing0,lo sh -c 'echo at $HORO_INTERFACE'");
  EXPECT_TRUE(contains(ran.out, "at 127.0.0.1")) << ran.out << ran.err;
  const Ran absent = horo("-np 1 --network-interfaces nothing0 true");
  EXPECT_EQ(absent.code, 1);
  EXPECT_TRUE(contains(absent.err, "lo (127.0.0.1)")) << absent.err;
}

TEST_F(RunFlags, ATakenPortIsNamed) {
  // One job holds the port while another asks for it.
  const Ran ran = horo("-np 1 sh -c '" + own_folder() + "/bin/horo run -np 1 --store-port ${HORO_STORE##*:} true'");
  EXPECT_EQ(ran.code, 1) << ran.out << ran.err;
  EXPECT_TRUE(contains(ran.err, "Address already in use")) << ran.err;
  EXPECT_TRUE(contains(error_of({"-np", "1", "--store-port", "70000", "x"}), "is no port"));
}

TEST_F(RunFlags, StartTimeoutEndsTheWaitForHosts) {
  const std::string silent = write("silent", "#!/bin/sh\nexec tail -f /dev/null\n", true);
  const Ran ran = horo(text("-H there:1 --start-timeout 0.3 --ssh-command ", silent, " true"));
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(contains(ran.err, "no answer from host there within 0.3 s")) << ran.err;
  const Environment environment(Environment::Variables{{"HOROVOD_START_TIMEOUT", "7"}});
  EXPECT_EQ(options_of({"-np", "1", "x"}, environment)->start_timeout, std::chrono::seconds(7));
  EXPECT_EQ(options_of({"-np", "1", "--start-timeout", "9", "x"}, environment)->start_timeout, std::chrono::seconds(9));
  const Environment both(Environment::Variables{{"HOROVOD_START_TIMEOUT", "7"}, {"HORO_START_TIMEOUT", "2min"}});
  EXPECT_EQ(options_of({"-np", "1", "x"}, both)->start_timeout, std::chrono::minutes(2));
  const Environment wrong(Environment::Variables{{"HOROVOD_START_TIMEOUT", "soon"}});
  EXPECT_TRUE(contains(options_of({"-np", "1", "x"}, wrong).status().message(), "HOROVOD_START_TIMEOUT holds 'soon'"));
}

TEST_F(RunFlags, GracePeriodIsKept) {
  const Time begin = Clock::now();
  const Ran ran =
      horo("-np 2 --grace-period 0.7 sh -c 'if [ $HORO_RANK = 0 ]; then trap \"\" TERM; echo > " + file("ready") +
           "; exec tail -f /dev/null; fi; while [ ! -e " + file("ready") + " ]; do :; done; exit 5'");
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_EQ(ran.code, 5) << ran.err;
  EXPECT_GE(seconds, 0.7);
  EXPECT_LT(seconds, 20);
  EXPECT_EQ(options_of({"-np", "1", "x"})->grace, std::chrono::seconds(5));
}

TEST_F(RunFlags, FlagsWinOverTheConfigFile) {
  const std::string path = write("c.yaml", "params:\n  cycle_time_ms: 7\n  cache_capacity: 99\n");
  const auto options = options_of({"-np", "1", "--config-file", path, "--cycle-time-ms", "2", "x"});
  ASSERT_TRUE(options.ok()) << options.status();
  std::string cycle, cache;
  for (const auto& [name, value] : options->variables) {
    const bool is_cycle = name == "HORO_GATHER_WINDOW" || name == "HOROVOD_CYCLE_TIME";
    if (is_cycle && !value.empty()) cycle = value;
    if (name.ends_with("_CACHE_CAPACITY") && !value.empty()) cache = value;
  }
  EXPECT_TRUE(cycle == "2" || cycle == "2ms") << cycle;
  EXPECT_EQ(cache, "99");
  EXPECT_TRUE(contains(error_of({"-np", "1", "--config-file", file("absent"), "x"}), "absent: No such file"));
  EXPECT_TRUE(contains(error_of({"-np", "1", "--config-file", file(""), "x"}), "Is a directory"));
}

TEST_F(RunFlags, VerboseSaysWhatIsStarted) {
  const Ran ran = horo("-np 1 --verbose true");
  EXPECT_TRUE(contains(ran.err, "host localhost through: horo agent")) << ran.err;
  EXPECT_TRUE(contains(ran.err, "ranks meet at 127.0.0.1:")) << ran.err;
  EXPECT_EQ(horo("-np 1 true").err, "");
}

TEST_F(RunFlags, VersionAndCheckBuildStartNothing) {
  EXPECT_TRUE(test::is_like("[0-9]+[.][0-9]+[.][0-9]+\n", horo("-v").out));
  EXPECT_EQ(horo("--version").out, horo("-v").out);
  const Ran built = horo("-cb");
  EXPECT_EQ(built.code, 0);
  for (const char* words : {"Available Frameworks:", "] PyTorch", "Available Controllers:\n    [X] horo", "] tcp"}) {
    EXPECT_TRUE(contains(built.out, words)) << built.out;
  }
  EXPECT_EQ(horo("--check-build").out, built.out);
  EXPECT_TRUE(contains(horo("--help").out, "--fusion-threshold-mb"));
}

TEST_F(RunFlags, SshFlagsReachSsh) {
  const std::string fake =
      write("ssh", text("#!/bin/sh\necho \"$@\" > ", file("words"), "\necho no way >&2\nexit 255\n"), true);
  const Ran ran = horo(text("-H me@there:1 -p 2022 -i ", file("id"), " --ssh-command '", fake, " -q' true"));
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(contains(ran.err, "host me@there: cannot be reached through ssh: no way")) << ran.err;
  const std::string words = read("words");
  EXPECT_TRUE(words.starts_with("-q ")) << words;
  EXPECT_TRUE(contains(words, "-p 2022")) << words;
  EXPECT_TRUE(contains(words, text("-i ", file("id")))) << words;
  EXPECT_TRUE(contains(words, "-- me@there ")) << words;
  EXPECT_EQ(options_of({"-np", "1", "--ssh-port=33", "--ssh-identity-file", "k", "x"})->ssh.port, 33);
  EXPECT_EQ(options_of({"-np", "1", "-p33", "x"})->ssh.port, 33);
  EXPECT_TRUE(contains(error_of({"-np", "1", "-p", "99999", "x"}), "is no port"));
}

TEST_F(RunFlags, VersionsThatDifferAreNamed) {
  MessageCutter unused(false);
  AgentHello hello{.protocol = 77, .version = "8.1.4"};
  const auto payload = encode(hello);
  std::string bytes = "Welcome!\n" + std::string(kGreeting);
  bytes += static_cast<char>(payload.size());
  bytes += std::string(3, '\0') + '\1';
  bytes.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  write("hello", bytes);
  const std::string fake = write("ssh", text("#!/bin/sh\ncat ", file("hello"), "\nexec tail -f /dev/null\n"), true);
  const Ran ran = horo(text("-H there:1 --ssh-command ", fake, " true"));
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(contains(ran.err, "host there: versions differ: it has horo 8.1.4")) << ran.err;
  EXPECT_TRUE(contains(ran.err, std::string(build_info().version))) << ran.err;
}

TEST_F(RunFlags, OutputGoesToFilesToo) {
  const Ran ran =
      horo(text("-np 11 --output-filename ", file("all/logs"), " sh -c 'echo out $HORO_RANK; echo err >&2'"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "[10]<stdout>:out 10\n"));
  EXPECT_EQ(read("all/logs/rank.03/stdout"), "out 3\n");
  EXPECT_EQ(read("all/logs/rank.10/stderr"), "err\n");
  const Ran bad = horo(text("-np 1 --output-filename ", write("plain", ""), "/x true"));
  EXPECT_EQ(bad.code, 2);
  EXPECT_TRUE(contains(bad.err, "--output-filename: cannot make")) << bad.err;
}

TEST_F(RunFlags, EveryRankReadsTheInput) {
  // More than a message and more than the launcher queues at once, with bytes of all kinds.
  std::string input;
  for (size_t i = 0; i < 3'000'000; ++i) input += static_cast<char>(i * 7 + i / 251);
  write("input", input);
  const Ran ran = horo(text("-np 3 --input ", file("input"), " --output-filename ", file("got"), " cat"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(read(text("got/rank.", rank, "/stdout")) == input) << rank;
  EXPECT_EQ(horo(text("-np 2 --input ", write("none", ""), " cat")).out, "");
  const Ran missing = horo(text("-np 1 --input ", file("absent"), " cat"));
  EXPECT_EQ(missing.code, 2);
  EXPECT_TRUE(contains(missing.err, "--input: cannot read")) << missing.err;
}

TEST_F(RunFlags, ResultsComeBackOfEveryRank) {
  std::filesystem::create_directory(file("back"));
  // One ends well, one fails after it has handed something back, one hands nothing back.
  write("rank.sh",
        "case $HORO_RANK in\n"
        "0) head -c 200000 /dev/zero > /proc/self/fd/$HORO_RESULT_FD; exec tail -f /dev/null;;\n"
        "1) echo last words; echo sorry > /proc/self/fd/$HORO_RESULT_FD; while [ $(stat -c %s back/rank.0) -lt 200000 "
        "]; do :; done; exit "
        "3;;\n"
        "*) exec tail -f /dev/null;;\nesac\n");
  const Ran ran =
      shell(text("cd ", folder_, " && ", own_folder(), "/bin/horo run -np 3 --result-folder back sh rank.sh"));
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_EQ(ran.out, "[1]<stdout>:last words\n") << "what ranks hand back is not shown";
  EXPECT_TRUE(read("back/rank.0") == std::string(200'000, '\0'));
  EXPECT_EQ(read("back/rank.1"), "sorry\n");
  EXPECT_EQ(read("back/rank.2"), "");
  EXPECT_EQ(std::filesystem::status(file("back/rank.1")).permissions(), std::filesystem::perms(0600));
  const auto outcome = nlohmann::json::parse(read("back/outcome.json"));
  EXPECT_EQ(outcome["code"], 3);
  EXPECT_EQ(outcome["first"], 1);
  EXPECT_EQ(outcome["returned"].size(), 2u);
  ASSERT_EQ(outcome["ranks"].size(), 3u);
  EXPECT_EQ(outcome["ranks"][0]["rank"], 1);
  EXPECT_EQ(outcome["ranks"][0]["tail"][0], "<stdout>:last words");
  // Old results are never mixed with new ones, and without the flag ranks find no descriptor.
  EXPECT_EQ(horo(text("-np 3 --result-folder ", file("back"), " true")).code, 2);
  EXPECT_EQ(horo("-np 1 sh -c 'echo \"<$HORO_RESULT_FD>\"'").out, "[0]<stdout>:<>\n");
}

TEST_F(RunFlags, TheJobEndsWithItsCaller) {
  // The caller is a shell that is killed; its job writes the number of a rank and would run for ever.
  const std::string job =
      text(own_folder(), "/bin/horo run -np 1 --end-with-parent $$ --grace-period 1 sh -c 'echo $$ > ", file("pid"),
           ".new; mv ", file("pid"), ".new ", file("pid"), "; exec tail -f /dev/null'");
  const std::string caller =
      write("caller",
            text("#!/bin/sh\n", job, " &\nwhile [ ! -s ", file("pid"), " ]; do sleep 0.01; done\nkill -9 $$\n"), true);
  shell(caller);
  const int rank = std::stoi(read("pid"));
  const net::UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, rank, 0)));
  const Deadline deadline = Deadline::after_seconds(20);
  EXPECT_TRUE(!handle || net::wait_ready(handle.get(), net::Interest::kRead, deadline, "the end of a rank").ok())
      << "rank " << rank << " outlives the caller";
  EXPECT_EQ(horo("-np 1 --end-with-parent 1 true").code, 2);
}

TEST_F(RunFlags, TimestampsStandInFrontOfLines) {
  for (const char* name : {"--prefix-output-with-timestamp", "-prefix-timestamp"}) {
    const Ran ran = horo(text("-np 1 ", name, " echo hello"));
    EXPECT_TRUE(
        test::is_like("[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4}[[]0]<stdout>:hello\n", ran.out))
        << ran.out;
  }
}

TEST_F(RunFlags, GpusAreGivenOutToRanks) {
  const auto run = [&](const std::string& words) {
    return shell(text("CUDA_VISIBLE_DEVICES=4,7 ", own_folder(), "/bin/horo run ", words,
                      " sh -c 'echo $HORO_RANK $CUDA_VISIBLE_DEVICES $HORO_SHARE_GPUS'"));
  };
  Ran ran = run("-np 2 --gpus-per-rank 1");
  EXPECT_TRUE(contains(ran.out, ":0 4\n") && contains(ran.out, ":1 7\n")) << ran.out << ran.err;
  ran = run("-np 3 --gpus-per-rank 1");
  EXPECT_NE(ran.code, 0);
  EXPECT_TRUE(contains(ran.err, "needs 3 GPUs, and it has 2 (CUDA_VISIBLE_DEVICES=4,7)")) << ran.err;
  ran = run("-np 3 --gpus-per-rank 1 --share-gpus");
  EXPECT_TRUE(contains(ran.out, ":2 4 1\n")) << ran.out << ran.err;
  EXPECT_TRUE(contains(error_of({"-np", "2", "--mpi", "--gpus-per-rank", "1", "x"}), "mpirun starts the ranks"));
}

/// Words of a command line, and what ranks must find.
struct Setting {
  std::vector<std::string> words;
  std::string variable;  ///< Behind HORO_ or HOROVOD_, or the whole name.
  std::string value;
  std::string horo = {};        ///< Where horo's own name is another.
  std::string horo_value = {};  ///< And its value.
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all{
      {{"--fusion-threshold-mb", "64"}, "FUSION_THRESHOLD", "67108864"},
      {{"--fusion-threshold-mb=0"}, "FUSION_THRESHOLD", "0"},
      {{"--cycle-time-ms", "2.5"}, "CYCLE_TIME", "2.5", "GATHER_WINDOW", "2.5ms"},
      {{"--cache-capacity", "0"}, "CACHE_CAPACITY", "0"},
      {{"--elastic-timeout", "30"}, "ELASTIC_TIMEOUT", "30"},
      {{"--reset-limit", "5"}, "RESET_LIMIT", "5"},
      {{"--hierarchical-allreduce"}, "HIERARCHICAL_ALLREDUCE", "1"},
      {{"--no-hierarchical-allreduce"}, "HIERARCHICAL_ALLREDUCE", "0"},
      {{"--hierarchical-allgather"}, "HIERARCHICAL_ALLGATHER", "1"},
      {{"--torus-allreduce"}, "TORUS_ALLREDUCE", "1"},
      {{"--autotune"}, "AUTOTUNE", "1"},
      {{"--no-autotune"}, "AUTOTUNE", "0"},
      {{"--autotune-log-file", "a.csv"}, "AUTOTUNE_LOG", "a.csv"},
      {{"--autotune-warmup-samples", "0"}, "AUTOTUNE_WARMUP_SAMPLES", "0"},
      {{"--autotune-steps-per-sample", "5"}, "AUTOTUNE_STEPS_PER_SAMPLE", "5"},
      {{"--autotune-bayes-opt-max-samples", "9"}, "AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "9", "AUTOTUNE_TRIALS"},
      {{"--autotune-gaussian-process-noise", "0.5"}, "AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.5"},
      {{"--timeline-filename", "t.json"}, "TIMELINE", "t.json"},
      {{"--timeline-mark-cycles"}, "TIMELINE_MARK_CYCLES", "1"},
      {{"--metrics-port", "9400"}, "METRICS_PORT", "9400"},
      {{"--encrypt"}, "ENCRYPT", "1"},
      {{"--no-stall-check"}, "STALL_CHECK_DISABLE", "1"},
      {{"--stall-check"}, "STALL_CHECK_DISABLE", "0"},
      {{"--stall-check-warning-time-seconds", "30"}, "STALL_CHECK_TIME_SECONDS", "30", "STALL_WARNING"},
      {{"--stall-check-shutdown-time-seconds", "90"}, "STALL_SHUTDOWN_TIME_SECONDS", "90", "STALL_ABORT"},
      {{"--log-level", "DEBUG"}, "LOG_LEVEL", "debug"},
      {{"--log-with-timestamp"}, "LOG_HIDE_TIME", "0"},
      {{"--log-without-timestamp"}, "LOG_HIDE_TIME", "1"},
      {{"--log-hide-timestamp"}, "LOG_HIDE_TIME", "1"},
      {{"--no-log-hide-timestamp"}, "LOG_HIDE_TIME", "0"},
      {{"--gloo-timeout-seconds", "45"}, "GLOO_TIMEOUT_SECONDS", "45", "TIMEOUT"},
      {{"--num-nccl-streams", "2"}, "NUM_NCCL_STREAMS", "2"},
      {{"--thread-affinity", "3"}, "THREAD_AFFINITY", "3"},
      {{"--mpi-threads-disable"}, "MPI_THREADS_DISABLE", "1"},
      {{"--no-mpi-threads-disable"}, "MPI_THREADS_DISABLE", "0"},
      {{"--tcp"}, "NCCL_IB_DISABLE", "1"},
      {{"--share-gpus"}, "SHARE_GPUS", "1"},
  };
  return all;
}

TEST_F(RunFlags, SetTheirVariables) {
  std::set<std::string_view> proven;
  for (const Setting& setting : settings()) {
    std::vector<std::string> words{"-np", "1"};
    words.insert(words.end(), setting.words.begin(), setting.words.end());
    words.emplace_back("x");
    const auto flags = parse_flags(words);
    ASSERT_TRUE(flags.ok()) << flags.status();
    ASSERT_EQ(flags->command, std::vector<std::string>{"x"});
    proven.insert(find_flag(setting.words[0].substr(0, setting.words[0].find('=')))->name);
    if (setting.variable.starts_with("NCCL")) {
      EXPECT_EQ(variables_of(*flags, "").at(setting.variable), setting.value);
      continue;
    }
    const std::string horo = "HORO_" + (setting.horo.empty() ? setting.variable : setting.horo);
    const std::string old = "HOROVOD_" + setting.variable;
    // A build that knows the variable gets it under its own name, another under the old one.
    const auto known = variables_of(*flags, text("| `", horo, "` |"));
    EXPECT_EQ(known.at(horo), setting.horo_value.empty() ? setting.value : setting.horo_value);
    EXPECT_EQ(known.at(old), "");
    const auto unknown = variables_of(*flags, "");
    EXPECT_EQ(unknown.at(old), setting.value);
    EXPECT_EQ(unknown.at(horo), "");
  }
  for (const FlagRow& row : flag_table()) {
    EXPECT_TRUE(row.variable.empty() || proven.count(row.name) == 1) << row.name << " is not proven above";
  }
  // Nothing is set for flags that are not given: what the environment has stays.
  EXPECT_TRUE(variables_of(*parse_flags({"-np", "1", "x"}), "").empty());
  const Ran ran = horo("-np 1 --log-level DEBUG sh -c 'echo $HORO_LOG_LEVEL'");
  EXPECT_EQ(ran.out, "[0]<stdout>:debug\n") << ran.err;
}

TEST_F(RunFlags, AnElasticJobSaysHowFewRanksWillDo) {
  const auto least_of = [](std::vector<std::string> words) {
    words.emplace_back("x");
    const auto options = options_of(words);
    if (!options.ok()) return -1;
    return options->elastic.wanted ? options->elastic.least : 0;
  };
  EXPECT_EQ(least_of({"-np", "3"}), 0);
  EXPECT_EQ(least_of({"-np", "3", "--min-np", "2"}), 2);
  EXPECT_EQ(least_of({"-np", "3", "--max-np", "4"}), 3);
  EXPECT_TRUE(contains(error_of({"-np", "3", "--min-np", "4", "x"}), "--min-np 4 with 3 ranks"));
  EXPECT_TRUE(contains(error_of({"-np", "3", "--max-np", "2", "x"}), "--max-np 2 with 3 ranks"));
  // The others go on, and what they end with counts.
  const std::string command = "sh -c 'test $HORO_RANK = 1 && exit 3; echo $HORO_ELASTIC_MIN_RANKS'";
  const Ran ran = horo("-np 2 --min-np 1 " + command);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "[0]<stdout>:1\n");
  const Ran ended = horo("-np 2 --min-np 2 sh -c 'test $HORO_RANK = 1 && exit 3; exec tail -f /dev/null'");
  EXPECT_EQ(ended.code, 3) << ended.err;
  EXPECT_TRUE(contains(ended.err, "1 rank is left, fewer than --min-np 2")) << ended.err;
}

TEST_F(RunFlags, WithoutMeaningHereAreExplained) {
  for (const FlagRow& row : flag_table()) {
    if (row.note.empty()) continue;
    std::vector<std::string> words{"-np", "1", std::string(row.name)};
    if (row.kind == FlagKind::kText) words.emplace_back("-x y");
    if (row.kind == FlagKind::kPositive || row.kind == FlagKind::kCount) words.emplace_back("2");
    if (row.kind == FlagKind::kPair) words.insert(words.end(), {"1", "10"});
    words.emplace_back("x");
    const auto options = options_of(words);
    ASSERT_TRUE(options.ok()) << row.name << ": " << options.status();
    ASSERT_EQ(options->notes.size(), 1u) << row.name;
    EXPECT_TRUE(contains(options->notes[0], std::string(row.name)));
    EXPECT_FALSE(contains(options->notes[0], "\n"));
    EXPECT_TRUE(options->variables.empty()) << row.name;
  }
  EXPECT_TRUE(contains(horo("-np 1 --gloo true").err, "--gloo changes nothing"));
  EXPECT_TRUE(contains(error_of({"-np", "1", "--gloo", "--mpi", "x"}), "exclude each other"));
}

TEST_F(RunFlags, WrongOnesAreAnsweredWithTheNearest) {
  EXPECT_TRUE(contains(error_of({"-np", "1", "--fusion-treshold-mb", "3", "x"}), "'--fusion-threshold-mb'"));
  EXPECT_TRUE(contains(error_of({"-np", "1", "--cycle-time-ms", "fast", "x"}), "--cycle-time-ms: 'fast'"));
  EXPECT_TRUE(contains(error_of({"-np", "1", "--cycle-time-ms", "-1", "x"}), "'-1' is not a number, 0 or more"));
  EXPECT_TRUE(contains(error_of({"-np", "1", "--autotune-gaussian-process-noise", "1.5", "x"}), "from 0 to 1"));
  EXPECT_TRUE(contains(error_of({"-np", "1", "--log-level", "LOUD", "x"}), "WARNING"));
  EXPECT_FALSE(error_of({"-np"}).empty());
  const Ran ran = horo("-np 2 --nothing true");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(contains(ran.err, "--help")) << ran.err;
}

TEST_F(RunFlags, HorovodrunIsAnotherName) {
  std::filesystem::create_symlink(own_folder() + "/bin/horo", file("horovodrun"));
  const Ran ran = shell(text(file("horovodrun"), " -np 2 -H localhost:2 echo hello"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "[1]<stdout>:hello\n")) << ran.out;
}

}  // namespace
}  // namespace horo::cli::launch
