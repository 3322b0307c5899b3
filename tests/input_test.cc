// Bad input: one clear line with what to do; nothing hangs, nobody else is disturbed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/job.h"
#include "tests/workload.h"

#include "horo/api/horo.h"
#include "horo/base/text.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/knobs.h"
#include "horo/rendezvous/memory_store.h"

/// Asked by LeakSanitizer at the end of a process: a forked child has what threads of its parent hold, not the threads.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();
static bool is_forked = false;
int __lsan_is_turned_off() { return is_forked; }

namespace horo::test {
namespace {

using collective::Kind;
using collective::Operation;

/// Whether a sum over the group is right.
bool works(group::Group& group, uint64_t count = 1000) { return sum_works(group, count); }

void expect_all_zero(Job& job) {
  auto codes = job.wait(Deadline::after_seconds(60));
  ASSERT_TRUE(codes.ok()) << codes.status();
  for (size_t rank = 0; rank < codes->size(); ++rank) {
    EXPECT_EQ((*codes)[rank], 0) << "rank " << rank << ": " << job.told(static_cast<int>(rank));
  }
}

bool has(const std::string& text, std::initializer_list<const char*> words) {
  return std::all_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string::npos; });
}

/// What the odd rank calls while all others call a sum of 1000 u64, and how its call is named.
struct Mismatch {
  const char* what;
  Operation odd;
  const char* named;
};

std::vector<Mismatch> mismatches(int ranks) {
  std::vector<Mismatch> all = {{"count", sum_of(1001), "1001"},
                               {"small count", sum_of(1), "allreduce of 1 "},
                               {"large count", sum_of(200'000), "200000"},
                               {"dtype", sum_of(1000, DType::kI64), "i64"},
                               {"kind", {}, "barrier"},
                               {"operation", sum_of(1000), "max"},
                               {"rooted kind", sum_of(1000), "reduce of 1000"},
                               {"kind with counts", {}, "allgather"}};
  all[5].odd.op = ReduceOp::kMax;
  all[6].odd.kind = Kind::kReduce;
  all[7].odd.kind = Kind::kAllgather;
  all[7].odd.dtype = DType::kU64;
  all[7].odd.counts.assign(static_cast<size_t>(ranks), 10);
  return all;
}

int disagree(group::Engine& engine, int odd_rank) {
  for (const Mismatch& mismatch : mismatches(engine.size())) {
    std::vector<uint64_t> in(200'000, 7), out(200'000, 9);
    const bool odd = engine.rank() == odd_rank;
    const Status status = engine.world().run(odd ? mismatch.odd : sum_of(1000), reinterpret_cast<std::byte*>(in.data()),
                                             reinterpret_cast<std::byte*>(out.data()), Deadline::after_seconds(10));
    tell(text(mismatch.what, ": ", status.to_string(), "\n"));
    if (status.code() != Code::kMismatch) return 4;
    if (!has(status.message(), {mismatch.named, "allreduce of 1000 u64"})) return 5;
    if (in != std::vector<uint64_t>(in.size(), 7)) return 6;
    if (!works(engine.world())) return 7;
  }
  // Two rooted calls that differ in the root alone.
  std::vector<uint64_t> in(1000, 7), out(1000, 9);
  Operation operation = sum_of(1000);
  operation.kind = Kind::kBroadcast;
  operation.root = engine.rank() == odd_rank ? 0 : 1;
  const Status status = engine.world().run(operation, reinterpret_cast<std::byte*>(in.data()),
                                           reinterpret_cast<std::byte*>(out.data()), Deadline::after_seconds(10));
  tell(text("root: ", status.to_string(), "\n"));
  if (status.code() != Code::kMismatch || !has(status.message(), {"root"})) return 8;
  return works(engine.world()) ? 0 : 9;
}

TEST(BadInput, CallsThatDifferFailEverywhereNamingBothSidesAndTheGroupGoesOn) {
  for (const char* transport : {"shm", "tcp"}) {
    for (int odd : {0, 2}) {
      SCOPED_TRACE(text(transport, ", odd rank ", odd));
      JobOptions options{.ranks = 3, .environment = {{"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", transport}}};
      auto job = Job::start(options, [&](group::Engine& engine) { return disagree(engine, odd); });
      ASSERT_TRUE(job.ok()) << job.status();
      expect_all_zero(**job);
    }
  }
}

/// Starts an engine that claims a place in a job without a key, in a process of its own; what came of it.
std::string claim(int rank, int size, const std::string& store) {
  int words[2];
  if (pipe(words) != 0) return "no pipe";
  const pid_t pid = fork();
  if (pid == 0) {
    Environment environment(Environment::Variables{{"HORO_TIMEOUT", "5s"}, {"HORO_INTERFACE", "127.0.0.1"}});
    auto options = options_of_rank(rank, size, environment, store, nullptr);
    auto engine = options.ok() ? group::Engine::start(std::move(*options))
                               : Result<std::unique_ptr<group::Engine>>(options.status());
    const std::string outcome = engine.ok() ? "joined" : engine.status().to_string();
    if (write(words[1], outcome.data(), outcome.size()) < 0) _exit(1);
    _exit(0);
  }
  close(words[1]);
  std::string outcome(4096, '\0');
  const ssize_t got = read(words[0], outcome.data(), outcome.size());
  outcome.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  close(words[0]);
  waitpid(pid, nullptr, 0);
  return outcome;
}

TEST(BadInput, ARankNumberTakenTwiceIsRefusedAndItsHolderIsUnaffected) {
  Hold hold;
  auto job = Job::start({.ranks = 2, .with_key = false}, [&](group::Engine& engine) {
    hold.take_part();
    tell("ready\n");
    while (true) {
      if (!works(engine.world())) return 4;
      if (!works(engine.world(), 100'000)) return 5;
      uint64_t done = hold.wait(Deadline::after_seconds(0)) ? 1 : 0;
      auto* bytes = reinterpret_cast<std::byte*>(&done);
      if (!engine.world().run(sum_of(1), bytes, bytes).ok()) return 6;
      if (done > 0) return 0;
    }
  });
  ASSERT_TRUE(job.ok()) << job.status();
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE((*job)->next_line(rank, Deadline::after_seconds(20)).ok());
  const std::string store = (*job)->store_address().to_string();
  for (int rank : {0, 1}) {
    const std::string outcome = claim(rank, 2, store);
    EXPECT_TRUE(has(outcome, {"invalid-argument"})) << outcome;
    EXPECT_TRUE(has(outcome, {"rank ", std::to_string((*job)->pid(rank)).c_str()}))
        << "does not name the holder: " << outcome;
  }
  const std::string bigger = claim(2, 3, store);
  EXPECT_TRUE(has(bigger, {"invalid-argument", "2", "3"})) << bigger;
  hold.let_go();
  expect_all_zero(**job);
}

/// Makes a group while `poor` cannot open any more descriptors, and tells how it went: nothing for success.
int make_group_without_descriptors(group::Engine& engine, int poor) {
  if (!works(engine.world())) return 3;
  const int next = dup(0);
  close(next);
  const rlimit none{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
  if (engine.rank() == poor && setrlimit(RLIMIT_NOFILE, &none) != 0) return 4;
  auto group = engine.create_group({0, 1}, Deadline::after_seconds(6));
  if (!group.ok()) tell(group.status().to_string());
  if (group.ok() && !works(**group)) return 5;
  return works(engine.world()) ? 0 : 6;  // What is there goes on.
}

std::vector<std::string> outcomes_without_descriptors(const char* transport, int poor) {
  JobOptions options{
      .ranks = 2,
      .environment = {{"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", transport}, {"HORO_TIMEOUT", "3s"}}};
  options.environment["HORO_LOG_LEVEL"] = "off";
  auto job = Job::start(options, [&](group::Engine& engine) { return make_group_without_descriptors(engine, poor); });
  if (!job.ok()) return {job.status().to_string(), ""};
  auto codes = (*job)->wait(Deadline::after_seconds(30));
  std::vector<std::string> outcomes = {(*job)->told(0), (*job)->told(1)};
  EXPECT_TRUE(codes.ok() && *codes == std::vector<int>(2, 0)) << outcomes[0] << outcomes[1];
  return outcomes;
}

TEST(BadInput, WithoutDescriptorsAGroupInSharedMemoryIsMadeAllTheSame) {
  // Segments and processes are known since the ranks met.
  for (int poor : {0, 1}) EXPECT_EQ(outcomes_without_descriptors("shm", poor), (std::vector<std::string>{"", ""}));
}

TEST(BadInput, WithoutDescriptorsAGroupOverSocketsFailsOnBothRanksAndTheOldOneGoesOn) {
  // The higher rank connects. If it cannot, it says so, to the other one too.
  const auto connector = outcomes_without_descriptors("tcp", 1);
  EXPECT_TRUE(has(connector[1], {"unavailable", "cannot open a data stream to rank 0", "descriptors", "ulimit"}))
      << connector[1];
  EXPECT_TRUE(has(connector[0], {"unavailable", "rank 1 gave up the group", "descriptors"})) << connector[0];
  // If the lower one cannot accept, it turns the stream away, and hears what the other one makes of it.
  const auto acceptor = outcomes_without_descriptors("tcp", 0);
  EXPECT_TRUE(has(acceptor[0], {"rank 1 gave up the group", "cannot open a data stream to rank 0"})) << acceptor[0];
  EXPECT_TRUE(has(acceptor[1], {"peer-lost", "cannot open a data stream to rank 0"})) << acceptor[1];
}

TEST(BadInput, WithoutDescriptorsAnEngineDoesNotStart) {
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit none{6, 6};
    setrlimit(RLIMIT_NOFILE, &none);
    auto config =
        Config::read({group::kKnobs, rendezvous::kKnobs}, Environment(Environment::Variables{{"HORO_TIMEOUT", "2s"}}));
    group::EngineOptions options{.rank = 0, .size = 2, .config = *config};
    options.store = std::make_shared<rendezvous::MemoryStore>();
    auto engine = group::Engine::start(std::move(options));
    if (engine.ok()) _exit(3);
    std::fprintf(stderr, "%s\n", engine.status().to_string().c_str());
    _exit(engine.status().code() == Code::kUnavailable ? 0 : 4);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(BadInput, AForkedChildIsRefusedAndItsEndDoesNotDisturbItsParent) {
  for (const char* transport : {"shm", "tcp"}) {
    JobOptions options{.ranks = 2, .environment = {{"HORO_INTERFACE", "127.0.0.1"}, {"HORO_TRANSPORT", transport}}};
    auto job = Job::start(options, [](group::Engine& engine) {
      if (!works(engine.world())) return 3;
      for (bool by_exit : {true, false}) {
        const pid_t child = fork();
        if (child == 0) {
          is_forked = true;
          uint64_t value = 1;
          auto* bytes = reinterpret_cast<std::byte*>(&value);
          const Status run = engine.world().run(sum_of(1), bytes, bytes);
          const auto submitted = engine.world().submit(sum_of(1), bytes, bytes);
          const auto group = engine.create_group({0, 1}, Deadline::after_seconds(1));
          const bool refused = run.code() == Code::kForked && submitted.status().code() == Code::kForked &&
                               group.status().code() == Code::kForked && value == 1;
          by_exit ? std::exit(refused ? 0 : 4) : _exit(refused ? 0 : 4);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status != 0) return 4;
        for (int turn = 0; turn < 20; ++turn) {
          if (!works(engine.world())) return 5;
        }
      }
      return 0;
    });
    ASSERT_TRUE(job.ok()) << job.status();
    expect_all_zero(**job);
  }
}

/// A memory cgroup of this test's own, v1 or v2, with a limit.
class MemoryCgroup {
 public:
  explicit MemoryCgroup(uint64_t limit) {
    const std::string name = text("/horo-test-", getpid());
    for (const char* base : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      const char* file = base == std::string("/sys/fs/cgroup") ? "/memory.max" : "/memory.limit_in_bytes";
      folder_ = base + name;
      if (mkdir(folder_.c_str(), 0755) != 0) continue;
      if (write_to(folder_ + file, std::to_string(limit))) return;
      rmdir(folder_.c_str());
    }
    folder_.clear();
  }
  ~MemoryCgroup() {
    if (!folder_.empty()) rmdir(folder_.c_str());
  }
  bool made() const { return !folder_.empty(); }
  bool enter() const { return write_to(folder_ + "/cgroup.procs", std::to_string(getpid())); }

 private:
  static bool write_to(const std::string& file, const std::string& words) {
    const int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC);
    const bool written = fd >= 0 && write(fd, words.data(), words.size()) == static_cast<ssize_t>(words.size());
    if (fd >= 0) close(fd);
    return written;
  }
  std::string folder_;
};

TEST(BadInput, TooLittleMemoryInTheCgroupFailsTheOperationOnAllRanksAndKillsNobody) {
  constexpr uint64_t kLimit = 128 << 20;
  MemoryCgroup cgroup(kLimit);
  if (!cgroup.made()) GTEST_SKIP() << "memory cgroups cannot be made here (needs root and a writable /sys/fs/cgroup)";
  JobOptions options{.ranks = 3, .environment = {{"HORO_STAGING", "512MiB"}}};
  options.enter = [&](int rank) { return rank != 1 || cgroup.enter(); };
  auto job = Job::start(options, [](group::Engine& engine) {
    if (engine.world().transport_name() != "shm" || !works(engine.world())) return 3;
    // An input that lies in memory which is not touched: only the library would need memory for it.
    constexpr uint64_t kBytes = 400 << 20;
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return 4;
    auto* bytes = static_cast<std::byte*>(memory);
    const Status status = engine.world().run(sum_of(kBytes / 8), bytes, bytes, Deadline::after_seconds(30));
    tell(text(status.to_string(), "\n"));
    if (status.code() != Code::kUnavailable) return 5;
    return works(engine.world()) ? 0 : 6;
  });
  ASSERT_TRUE(job.ok()) << job.status();
  expect_all_zero(**job);
  job->reset();
}

/// A started engine of one rank, or the error.
std::string start_alone(std::vector<const char*> settings, std::string* log = nullptr, const char* key_file = nullptr) {
  settings.push_back(nullptr);
  horo_engine_options options = HORO_ENGINE_OPTIONS_INIT;
  options.settings = settings.data();
  options.key_file = key_file;
  options.log_sink = [](void* context, int, const char* line) {
    if (context != nullptr) *static_cast<std::string*>(context) += text(line, "\n");
  };
  options.log_context = log;
  horo_engine* engine = nullptr;
  horo_status* status = horo_engine_start(&options, &engine);
  std::string words = status == nullptr ? "" : horo_status_message(status);
  horo_status_free(status);
  if (engine != nullptr) horo_engine_destroy(engine);
  return words;
}

TEST(BadInput, AnUnknownKnobIsAWarningWithTheNearestName) {
  std::string log;
  EXPECT_EQ(start_alone({"HORO_STAGNIG=64MiB"}, &log), "");
  EXPECT_TRUE(has(log, {"HORO_STAGNIG", "HORO_STAGING"})) << log;
}

TEST(BadInput, AMalformedKnobIsAnError) {
  EXPECT_TRUE(has(start_alone({"HORO_STAGING=lots"}), {"invalid-argument", "HORO_STAGING", "lots"}));
  EXPECT_TRUE(has(start_alone({"HORO_FREEZE_TIMEOUT=-1s"}), {"invalid-argument", "HORO_FREEZE_TIMEOUT"}));
  EXPECT_TRUE(has(start_alone({"HORO_TRANSPORT=pigeon"}), {"invalid-argument", "HORO_TRANSPORT", "pigeon", "shm"}));
  EXPECT_TRUE(has(start_alone({"nonsense"}), {"invalid-argument", "nonsense"}));
}

TEST(BadInput, AKeyFileThatOthersCanReadIsRefused) {
  char name[] = "/tmp/horo-key-XXXXXX";
  const int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, "0123456789abcdef0123456789abcdef", 32), 32);
  ASSERT_EQ(fchmod(fd, 0644), 0);
  const std::string open_to_all = start_alone({}, nullptr, name);
  EXPECT_TRUE(has(open_to_all, {name})) << open_to_all;
  ASSERT_EQ(fchmod(fd, 0600), 0);
  EXPECT_EQ(start_alone({}, nullptr, name), "");
  ASSERT_EQ(ftruncate(fd, 31), 0);
  EXPECT_TRUE(has(start_alone({}, nullptr, name), {name, "3"}));
  close(fd);
  unlink(name);
  EXPECT_TRUE(has(start_alone({}, nullptr, name), {name}));
}

horo_code code_and_free(horo_status* status) {
  const horo_code code = horo_status_code(status);
  horo_status_free(status);
  return code;
}

TEST(BadInput, NullPointersAndUnknownValuesAreErrorsOfTheCall) {
  horo_engine_options options = HORO_ENGINE_OPTIONS_INIT;
  horo_engine* engine = nullptr;
  EXPECT_EQ(code_and_free(horo_engine_start(nullptr, &engine)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code_and_free(horo_engine_start(&options, nullptr)), HORO_INVALID_ARGUMENT);
  ASSERT_EQ(horo_engine_start(&options, &engine), nullptr);
  horo_group* world = horo_engine_world(engine);
  uint64_t value = 1;
  EXPECT_EQ(code_and_free(horo_allreduce(world, nullptr, &value, 1, HORO_U64, HORO_SUM)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code_and_free(horo_allreduce(world, &value, nullptr, 1, HORO_U64, HORO_SUM)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code_and_free(horo_allreduce(nullptr, &value, &value, 1, HORO_U64, HORO_SUM)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code_and_free(horo_allreduce(world, &value, &value, 1, static_cast<horo_dtype>(99), HORO_SUM)),
            HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code_and_free(horo_allreduce(world, &value, &value, 1, HORO_U64, static_cast<horo_reduce_op>(99))),
            HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code_and_free(horo_allreduce(world, &value, &value, 1, HORO_BYTE, HORO_SUM)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code_and_free(horo_broadcast(world, &value, 1, HORO_U64, 1)), HORO_INVALID_ARGUMENT);
  horo_operation operation = HORO_OPERATION_INIT;
  operation.kind = static_cast<horo_kind>(99);
  EXPECT_EQ(code_and_free(horo_group_run(world, &operation, &value, &value)), HORO_INVALID_ARGUMENT);
  operation.kind = HORO_ALLGATHER;
  operation.dtype = HORO_U64;
  EXPECT_EQ(code_and_free(horo_group_run(world, &operation, &value, &value)), HORO_INVALID_ARGUMENT) << "no counts";
  EXPECT_EQ(code_and_free(horo_group_run(world, nullptr, &value, &value)), HORO_INVALID_ARGUMENT);
  const int outside[] = {0, 1};
  horo_group* group = nullptr;
  EXPECT_EQ(code_and_free(horo_group_create(engine, outside, 2, &group)), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(code_and_free(horo_allreduce(world, &value, &value, 1, HORO_U64, HORO_SUM)), HORO_OK)
      << "the group goes on";
  EXPECT_EQ(value, 1u);
  horo_engine_destroy(engine);
}

}  // namespace
}  // namespace horo::test
