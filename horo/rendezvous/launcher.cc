#include "horo/rendezvous/launcher.h"

#include <charconv>
#include <vector>

#include "horo/base/text.h"

namespace horo::rendezvous {

namespace {

constexpr std::string_view kTorchRank[] = {"RANK"};
constexpr std::string_view kTorchSize[] = {"WORLD_SIZE"};
constexpr std::string_view kTorchLocalRank[] = {"LOCAL_RANK"};
constexpr std::string_view kTorchLocalSize[] = {"LOCAL_WORLD_SIZE"};
constexpr std::string_view kTorchEvidence[] = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR"};
constexpr std::string_view kTorchRun[] = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR",
                                          "MASTER_PORT"};
constexpr std::string_view kTorchHead[] = {"MASTER_ADDR"};

constexpr std::string_view kOpenMpiRank[] = {"OMPI_COMM_WORLD_RANK"};
constexpr std::string_view kOpenMpiSize[] = {"OMPI_COMM_WORLD_SIZE"};
constexpr std::string_view kOpenMpiLocalRank[] = {"OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr std::string_view kOpenMpiLocalSize[] = {"OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr std::string_view kPmixRun[] = {"PMIX_NAMESPACE", "PMIX_SERVER_TMPDIR"};

constexpr std::string_view kPmiRank[] = {"PMI_RANK"};
constexpr std::string_view kPmiSize[] = {"PMI_SIZE"};
constexpr std::string_view kHydraLocalRank[] = {"MPI_LOCALRANKID"};
constexpr std::string_view kHydraLocalSize[] = {"MPI_LOCALNRANKS"};

constexpr std::string_view kPmixRank[] = {"PMIX_RANK"};

constexpr std::string_view kMvapichRank[] = {"MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK"};
constexpr std::string_view kMvapichSize[] = {"MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE"};
constexpr std::string_view kMvapichLocalRank[] = {"MV2_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_LOCAL_RANK"};
constexpr std::string_view kMvapichLocalSize[] = {"MV2_COMM_WORLD_LOCAL_SIZE", "MVP_COMM_WORLD_LOCAL_SIZE"};

constexpr std::string_view kPalsRank[] = {"PALS_RANKID"};
constexpr std::string_view kPalsLocalRank[] = {"PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"};
constexpr std::string_view kPalsLocalSize[] = {"PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"};
constexpr std::string_view kPalsRun[] = {"PALS_APID"};

constexpr std::string_view kLsfRank[] = {"JSM_NAMESPACE_RANK"};
constexpr std::string_view kLsfSize[] = {"JSM_NAMESPACE_SIZE"};
constexpr std::string_view kLsfLocalRank[] = {"JSM_NAMESPACE_LOCAL_RANK"};
constexpr std::string_view kLsfLocalSize[] = {"JSM_NAMESPACE_LOCAL_SIZE"};
constexpr std::string_view kLsfRun[] = {"LSB_JOBID", "JSM_JSRUN_NS_ID"};

constexpr std::string_view kFluxRank[] = {"FLUX_TASK_RANK"};
constexpr std::string_view kFluxSize[] = {"FLUX_JOB_SIZE"};
constexpr std::string_view kFluxLocalRank[] = {"FLUX_TASK_LOCAL_ID"};
constexpr std::string_view kFluxRun[] = {"FLUX_JOB_ID"};

constexpr std::string_view kSlurmRank[] = {"SLURM_PROCID"};
constexpr std::string_view kSlurmSize[] = {"SLURM_STEP_NUM_TASKS"};
constexpr std::string_view kSlurmLocalRank[] = {"SLURM_LOCALID"};
constexpr std::string_view kSlurmLocalSize[] = {"SLURM_STEP_TASKS_PER_NODE"};
constexpr std::string_view kSlurmRun[] = {"SLURM_JOB_ID", "SLURM_STEP_ID"};
constexpr std::string_view kSlurmHead[] = {"SLURM_STEP_NODELIST"};

constexpr std::string_view kKubernetesRank[] = {"JOB_COMPLETION_INDEX"};
constexpr std::string_view kHoroSize[] = {"HORO_SIZE", "HOROVOD_SIZE"};

/// Steps with numbers from here on are not srun's: batch scripts, interactive shells, the step of the whole job.
constexpr uint64_t kFirstSpecialStep = 0xFFFFFFF0;

constexpr uint64_t kMostRanks = 1 << 20;

constexpr Launcher kLaunchers[] = {
    {.name = "torchrun",
     .rank = kTorchRank,
     .size = kTorchSize,
     .local_rank = kTorchLocalRank,
     .local_size = kTorchLocalSize,
     .evidence = kTorchEvidence,
     .run = kTorchRun,
     .head = kTorchHead,
     .port = "MASTER_PORT",
     .advice = "HORO_TRUST_STORE=1 hands a key over through torchrun's own store, which anybody who reaches its port "
               "can read"},
    {.name = "Open MPI",
     .rank = kOpenMpiRank,
     .size = kOpenMpiSize,
     .local_rank = kOpenMpiLocalRank,
     .local_size = kOpenMpiLocalSize,
     .run = kPmixRun,
     .speaks_mpi = true,
     .flavor = "openmpi"},
    // Slurm's and Flux's own PMI set the first two as well; only Hydra tells the local rank so.
    {.name = "MPICH (Hydra)",
     .rank = kPmiRank,
     .size = kPmiSize,
     .local_rank = kHydraLocalRank,
     .local_size = kHydraLocalSize,
     .evidence = kHydraLocalRank,
     .speaks_mpi = true,
     .flavor = "mpich"},
    {.name = "MVAPICH",
     .rank = kMvapichRank,
     .size = kMvapichSize,
     .local_rank = kMvapichLocalRank,
     .local_size = kMvapichLocalSize,
     .speaks_mpi = true,
     .flavor = "mpich"},
    {.name = "PALS",
     .rank = kPalsRank,
     .size = kPmiSize,
     .local_rank = kPalsLocalRank,
     .local_size = kPalsLocalSize,
     .run = kPalsRun,
     .flavor = "mpich"},
    {.name = "LSF (jsrun)",
     .rank = kLsfRank,
     .size = kLsfSize,
     .local_rank = kLsfLocalRank,
     .local_size = kLsfLocalSize,
     .run = kLsfRun},
    {.name = "Flux",
     .rank = kFluxRank,
     .size = kFluxSize,
     .local_rank = kFluxLocalRank,
     .hosts = "FLUX_JOB_NNODES",
     .run = kFluxRun},
    {.name = "Slurm (srun)",
     .rank = kSlurmRank,
     .size = kSlurmSize,
     .local_rank = kSlurmLocalRank,
     .local_size = kSlurmLocalSize,
     .host_index = "SLURM_NODEID",
     .hosts = "SLURM_STEP_NUM_NODES",
     .run = kSlurmRun,
     .head = kSlurmHead,
     .must_be = "SLURM_STEP_ID",
     .below = kFirstSpecialStep},
    // Tells no size: MPI does, or whoever set HORO_SIZE.
    {.name = "PMIx", .rank = kPmixRank, .size = kHoroSize, .run = kPmixRun, .speaks_mpi = true, .flavor = "openmpi"},
    {.name = "Kubernetes (indexed job)", .rank = kKubernetesRank, .size = kHoroSize},
};

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

struct Found {
  std::string_view name;
  std::string value;
};

std::optional<Found> first_of(const Environment& environment, Alternatives names) {
  for (std::string_view name : names) {
    if (auto value = environment.find(name)) return Found{name, *std::move(value)};
  }
  return std::nullopt;
}

std::optional<uint64_t> number_in(std::string_view words) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), value);
  if (error != std::errc() || end != words.data() + words.size()) return std::nullopt;
  return value;
}

Result<int> read_number(const Launcher& launcher, const Found& found) {
  const auto value = number_in(found.value);
  if (value && *value <= kMostRanks) return static_cast<int>(*value);
  return invalid(
      text(found.name, " (", launcher.name, ") is '", found.value, "', not a number from 0 to ", kMostRanks));
}

/// The entry of host `index` in "2(x3),1"; -1 where it is not told.
int tasks_of_host(std::string_view list, uint64_t index) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view entry = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    uint64_t times = 1;
    if (const size_t open = entry.find("(x"); open != std::string_view::npos && entry.back() == ')') {
      times = number_in(entry.substr(open + 2, entry.size() - open - 3)).value_or(1);
      entry = entry.substr(0, open);
    }
    const auto tasks = number_in(entry);
    if (!tasks || *tasks > kMostRanks) return -1;
    if (index < times) return static_cast<int>(*tasks);
    index -= times;
  }
  return -1;
}

bool applies(const Launcher& launcher, const Environment& environment) {
  if (!first_of(environment, launcher.rank)) return false;
  if (!launcher.evidence.empty() && !first_of(environment, launcher.evidence)) return false;
  if (launcher.must_be.empty()) return true;
  const auto value = environment.find(launcher.must_be);
  const auto number = value ? number_in(*value) : std::nullopt;
  return number && *number < launcher.below;
}

std::string run_of(const Launcher& launcher, const Environment& environment) {
  std::string run;
  for (std::string_view name : launcher.run) {
    if (auto value = environment.find(name)) run += text(run.empty() ? "" : ".", *value);
  }
  return run;
}

/// Below the range that systems give out themselves, and the same for all ranks of a run.
uint64_t port_of_run(std::string_view run) {
  constexpr uint64_t kFirst = 20000, kPorts = 12000;
  uint64_t hash = 14695981039346656037ULL;
  for (const char letter : run) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  return kFirst + hash % kPorts;
}

Result<std::string> store_of(const Launcher& launcher, const Environment& environment, std::string_view run) {
  const auto head = first_of(environment, launcher.head);
  if (!head) return std::string();
  const std::string host = first_host(head->value);
  const bool bare_ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  const std::string name = bare_ipv6 ? text("[", host, "]") : host;
  if (launcher.port.empty()) return text(name, ":", port_of_run(run));
  const auto in_use = environment.find(launcher.port);
  if (!in_use) return std::string();
  const auto port = number_in(*in_use);
  if (!port || *port == 0 || *port > 65535) {
    return invalid(text(launcher.port, " (", launcher.name, ") is '", *in_use, "', not a port"));
  }
  return text(name, ":", *port == 65535 ? *port - 1 : *port + 1);
}

Status read_locals(const Environment& environment, LauncherPlace& place) {
  const Launcher& launcher = *place.launcher;
  if (auto local_rank = first_of(environment, launcher.local_rank)) {
    HORO_ASSIGN(place.local_rank, read_number(launcher, *local_rank));
  }
  if (auto local_size = first_of(environment, launcher.local_size)) {
    if (launcher.host_index.empty()) {
      HORO_ASSIGN(place.local_size, read_number(launcher, *local_size));
    } else {
      const auto index = environment.find(launcher.host_index);
      place.local_size = tasks_of_host(local_size->value, number_in(index.value_or("0")).value_or(0));
    }
  }
  const auto hosts = launcher.hosts.empty() ? std::nullopt : environment.find(launcher.hosts);
  place.one_host = place.local_size == place.size || hosts == "1";
  if (place.one_host) place.local_size = place.size;
  return {};
}

Result<LauncherPlace> read_place(const Launcher& launcher, const Environment& environment, const Found& rank,
                                 const Found& size) {
  LauncherPlace place;
  place.launcher = &launcher;
  place.variable = rank.name;
  HORO_ASSIGN(place.rank, read_number(launcher, rank));
  HORO_ASSIGN(place.size, read_number(launcher, size));
  if (place.rank >= place.size) {
    return invalid(text(rank.name, " is ", place.rank, ", beyond ", size.name, " ", place.size, " (", launcher.name,
                        "); set HORO_RANK and HORO_SIZE"));
  }
  HORO_TRY(read_locals(environment, place));
  place.run = run_of(launcher, environment);
  HORO_ASSIGN(place.store, store_of(launcher, environment, place.run));
  return place;
}

/// In an allocation of Slurm's for several tasks, but not in a step: the script itself, a shell, ssh.
std::string slurm_warning(const Environment& environment) {
  const auto job = environment.find("SLURM_JOB_ID");
  const auto tasks = environment.find("SLURM_NTASKS");
  if (!job || !tasks || *tasks == "1") return {};
  return text("Slurm gave job ", *job, " ", *tasks, " tasks, but srun did not start this process: it is a job of one ",
              "rank. Start ranks with `srun python train.py`, or with `horo run`");
}

}  // namespace

std::span<const Launcher> launchers() { return kLaunchers; }

std::string first_host(std::string_view list) {
  const size_t open = list.find('[');
  const size_t comma = list.find(',');
  // "[fd00::1]" is an address and no list.
  if (open == 0 || open == std::string_view::npos || comma < open) return std::string(list.substr(0, comma));
  const size_t end = list.find_first_of(",-]", open + 1);
  if (end == std::string_view::npos) return std::string(list);
  return text(list.substr(0, open), list.substr(open + 1, end - open - 1));
}

Result<LauncherFinding> find_launcher(const Environment& environment) {
  LauncherFinding finding;
  const Launcher* sizeless = nullptr;
  for (const Launcher& launcher : kLaunchers) {
    if (!applies(launcher, environment)) continue;
    const auto size = first_of(environment, launcher.size);
    if (!size) {
      if (sizeless == nullptr) sizeless = &launcher;
      continue;
    }
    HORO_ASSIGN(finding.place, read_place(launcher, environment, *first_of(environment, launcher.rank), *size));
    return finding;
  }
  if (sizeless != nullptr && sizeless->speaks_mpi) {
    // Its size is MPI's to tell.
    LauncherPlace place;
    place.launcher = sizeless;
    const Found rank = *first_of(environment, sizeless->rank);
    place.variable = rank.name;
    HORO_ASSIGN(place.rank, read_number(*sizeless, rank));
    place.size = 0;
    place.run = run_of(*sizeless, environment);
    finding.place = std::move(place);
    return finding;
  }
  finding.warning = slurm_warning(environment);
  return finding;
}

}  // namespace horo::rendezvous
