#include "horo/rendezvous/launcher.h"

#include <gtest/gtest.h>

namespace horo::rendezvous {
namespace {

using Variables = Environment::Variables;

/// What a process sees that a launcher has started, as recorded.
struct Recorded {
  const char* what;
  Variables variables;
  std::string_view launcher;
  int rank, size, local_rank, local_size;
  bool one_host;
  std::string run, store;
};

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"GROUP_WORLD_SIZE", "2"},
                             {"ROLE_RANK", "5"},
                             {"ROLE_WORLD_SIZE", "8"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "abc"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"},
                             {"TORCHELASTIC_MAX_RESTARTS", "1"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                            {"OMPI_MCA_orte_num_nodes", "1"},
                            {"PMIX_RANK", "1"},
                            {"PMIX_NAMESPACE", "1544486913"},
                            {"PMIX_SERVER_TMPDIR", "/tmp/ompi/pid.9"}};

const Variables kHydra = {{"PMI_RANK", "3"},
                          {"PMI_SIZE", "4"},
                          {"MPI_LOCALRANKID", "1"},
                          {"MPI_LOCALNRANKS", "2"},
                          {"PMI_FD", "6"},
                          {"HYDI_CONTROL_FD", "7"},
                          {"MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "node1"}};

const Variables kSrun = {{"SLURM_JOB_ID", "4711"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "6"},
                         {"SLURM_NTASKS", "7"},
                         {"SLURM_STEP_NUM_TASKS", "7"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "3"},
                         {"SLURM_STEP_NUM_NODES", "4"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                         {"SLURM_STEP_NODELIST", "gpu[008-010,12]"},
                         {"SLURM_JOB_NODELIST", "gpu[008-010,12]"},
                         // Of srun --mpi=pmix, and of srun --mpi=pmi2.
                         {"PMIX_RANK", "6"},
                         {"PMI_RANK", "6"},
                         {"PMI_SIZE", "7"}};

const Recorded kRecorded[] = {
    {"torchrun on two hosts", kTorchrun, "torchrun", 5, 8, 1, 4, false, "abc.0.node1.29500", "node1:29501"},
    {"mpirun of Open MPI", kOpenMpi, "Open MPI", 1, 2, 1, 2, true, "1544486913./tmp/ompi/pid.9", ""},
    {"mpiexec of MPICH", kHydra, "MPICH (Hydra)", 3, 4, 1, 2, false, "", ""},
    {"mpirun_rsh of MVAPICH",
     {{"MV2_COMM_WORLD_RANK", "0"},
      {"MV2_COMM_WORLD_SIZE", "2"},
      {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
      {"MV2_COMM_WORLD_LOCAL_SIZE", "1"}},
     "MVAPICH",
     0,
     2,
     0,
     1,
     false,
     "",
     ""},
    {"mpiexec of PALS",
     {{"PALS_RANKID", "2"},
      {"PALS_APID", "9f3"},
      {"PALS_LOCAL_RANKID", "0"},
      {"PALS_LOCAL_SIZE", "2"},
      {"PMI_RANK", "2"},
      {"PMI_SIZE", "4"}},
     "PALS",
     2,
     4,
     0,
     2,
     false,
     "9f3",
     ""},
    {"jsrun of LSF",
     {{"JSM_NAMESPACE_RANK", "1"},
      {"JSM_NAMESPACE_SIZE", "6"},
      {"JSM_NAMESPACE_LOCAL_RANK", "1"},
      {"JSM_NAMESPACE_LOCAL_SIZE", "6"},
      {"LSB_JOBID", "77"},
      {"PMIX_RANK", "1"}},
     "LSF (jsrun)",
     1,
     6,
     1,
     6,
     true,
     "77",
     ""},
    {"flux run",
     {{"FLUX_TASK_RANK", "3"},
      {"FLUX_JOB_SIZE", "4"},
      {"FLUX_TASK_LOCAL_ID", "3"},
      {"FLUX_JOB_NNODES", "1"},
      {"FLUX_JOB_ID", "f8x"},
      {"PMI_RANK", "3"},
      {"PMI_SIZE", "4"},
      {"PMI_FD", "9"}},
     "Flux",
     3,
     4,
     3,
     4,
     true,
     "f8x",
     ""},
    {"an indexed job of Kubernetes",
     {{"JOB_COMPLETION_INDEX", "1"}, {"HORO_SIZE", "2"}},
     "Kubernetes (indexed job)",
     1,
     2,
     -1,
     -1,
     false,
     "",
     ""},
};

TEST(Launcher, IsFoundInRecordedEnvironments) {
  for (const Recorded& recorded : kRecorded) {
    SCOPED_TRACE(recorded.what);
    auto finding = find_launcher(Environment(recorded.variables));
    ASSERT_TRUE(finding.ok()) << finding.status();
    ASSERT_TRUE(finding->place.has_value());
    const LauncherPlace& place = *finding->place;
    EXPECT_EQ(place.launcher->name, recorded.launcher);
    EXPECT_EQ(place.rank, recorded.rank);
    EXPECT_EQ(place.size, recorded.size);
    EXPECT_EQ(place.local_rank, recorded.local_rank);
    EXPECT_EQ(place.local_size, recorded.local_size);
    EXPECT_EQ(place.one_host, recorded.one_host);
    EXPECT_EQ(place.run, recorded.run);
    EXPECT_EQ(place.store, recorded.store);
  }
}

TEST(Launcher, OfSlurmIsBelievedInsideAStepOnly) {
  auto finding = find_launcher(Environment(kSrun));
  ASSERT_TRUE(finding.ok() && finding->place) << finding.status();
  EXPECT_EQ(finding->place->launcher->name, "Slurm (srun)");
  EXPECT_EQ(finding->place->rank, 6);
  EXPECT_EQ(finding->place->size, 7);
  EXPECT_EQ(finding->place->local_size, 1);
  EXPECT_EQ(finding->place->run, "4711.0");
  EXPECT_TRUE(finding->place->store.starts_with("gpu008:2")) << finding->place->store;
  EXPECT_TRUE(finding->warning.empty());

  // The batch script itself, an interactive shell, and a shell that ssh opened in the allocation.
  Environment base = Environment(kSrun).with({{"PMIX_RANK", ""}, {"PMI_RANK", ""}});
  for (const char* step : {"4294967291", "4294967290", ""}) {
    auto outside = find_launcher(base.with({{"SLURM_STEP_ID", step}, {"SLURM_PROCID", "0"}}));
    ASSERT_TRUE(outside.ok()) << outside.status();
    EXPECT_FALSE(outside->place.has_value()) << step;
    EXPECT_NE(outside->warning.find("7 tasks, but srun did not start this process"), std::string::npos);
  }
  // One task is what it is.
  EXPECT_EQ(find_launcher(base.with({{"SLURM_STEP_ID", ""}, {"SLURM_NTASKS", "1"}}))->warning, "");
}

TEST(Launcher, RankAndSizeComeFromOneFamily) {
  // torchrun inside an allocation of Slurm's, and inside mpirun: the inner one has the rank.
  for (const Variables& outer : {kSrun, kOpenMpi, kHydra}) {
    auto inner = find_launcher(Environment(outer).with(kTorchrun));
    ASSERT_TRUE(inner.ok() && inner->place) << inner.status();
    EXPECT_EQ(inner->place->launcher->name, "torchrun");
    EXPECT_EQ(inner->place->size, 8);
  }
  // RANK and WORLD_SIZE alone are anybody's.
  auto bare = find_launcher(Environment({{"RANK", "1"}, {"WORLD_SIZE", "2"}}));
  EXPECT_FALSE(bare->place.has_value());
  // A rank without a size is no place, and no other family's size is put beside it.
  auto half = find_launcher(Environment({{"OMPI_COMM_WORLD_RANK", "1"}, {"PMI_SIZE", "4"}}));
  ASSERT_TRUE(half.ok() && half->place);
  EXPECT_EQ(half->place->size, 0) << "MPI's to tell";
  auto pmix = find_launcher(Environment({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "n"}}));
  ASSERT_TRUE(pmix.ok() && pmix->place);
  EXPECT_EQ(pmix->place->launcher->name, "PMIx");
  EXPECT_EQ(pmix->place->size, 0);
  EXPECT_FALSE(find_launcher(Environment(Variables{{"JOB_COMPLETION_INDEX", "1"}}))->place.has_value());
}

TEST(Launcher, NamesWhatIsMalformed) {
  const auto words = [](const Variables& variables) {
    return find_launcher(Environment(variables)).status().message();
  };
  EXPECT_NE(words({{"OMPI_COMM_WORLD_RANK", "one"}, {"OMPI_COMM_WORLD_SIZE", "2"}}).find("OMPI_COMM_WORLD_RANK"),
            std::string::npos);
  EXPECT_NE(words({{"FLUX_TASK_RANK", "4"}, {"FLUX_JOB_SIZE", "4"}}).find("beyond FLUX_JOB_SIZE 4"), std::string::npos);
  Variables torchrun = kTorchrun;
  torchrun["MASTER_PORT"] = "x";
  EXPECT_NE(words(torchrun).find("MASTER_PORT"), std::string::npos);
}

TEST(Launcher, HostListsBeginWithTheHostOfRankZero) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[008-010,12],gpu3"), "node008");
  EXPECT_EQ(first_host("node[7]"), "node7");
  EXPECT_EQ(first_host("a,b[1-2]"), "a");
  EXPECT_EQ(first_host("[fd00::1]"), "[fd00::1]");
}

}  // namespace
}  // namespace horo::rendezvous
