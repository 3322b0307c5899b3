// What a launcher, or a user without one, tells a rank about its job.
#pragma once

#include "horo/base/knob.h"

namespace horo::rendezvous {

inline constexpr IntegerKnob kRank{{.name = "HORO_RANK",
                                    .legacy = "HOROVOD_RANK",
                                    .fallback = "-1",
                                    .help = "This process's number in the job, from 0.",
                                    .minimum = -1,
                                    .maximum = (1 << 20) - 1,
                                    .test = "Place.IsReadFromTheEnvironmentWithItsOldNames"}};
inline constexpr IntegerKnob kSize{{.name = "HORO_SIZE",
                                    .legacy = "HOROVOD_SIZE",
                                    .fallback = "-1",
                                    .help = "How many processes the job has.",
                                    .minimum = -1,
                                    .maximum = 1 << 20,
                                    .test = "Place.IsReadFromTheEnvironmentWithItsOldNames"}};
inline constexpr TextKnob kStore{
    {.name = "HORO_STORE",
     .help = "host:port of the store where the ranks meet; rank 0 serves it if nobody does.",
     .test = "Place.IsReadFromTheEnvironmentWithItsOldNames"}};
inline constexpr TextKnob kJobId{{.name = "HORO_JOB_ID",
                                  .fallback = "horo",
                                  .help = "Tells this job's processes from those of other jobs.",
                                  .test = "Place.IsReadFromTheEnvironmentWithItsOldNames"}};
inline constexpr IntegerKnob kSeat{
    {.name = "HORO_SEAT",
     .fallback = "-1",
     .help =
         "Set by horo run in elastic jobs: the process's own number, which stays while its rank changes. One without "
         "HORO_RANK waits until the job takes it in.",
     .minimum = -1,
     .maximum = 1 << 30,
     .test = "ApiDoor.ANewcomerWaitsUntilTheJobTakesItIn"}};
inline constexpr TextKnob kKeyFile{{.name = "HORO_KEY_FILE",
                                    .help = "File with the job's key: 32 bytes that only this user can read.",
                                    .test = "KeyLoan.OfAFileIsReadAsOftenAsOneLikes"}};
inline constexpr IntegerKnob kKeyFd{
    {.name = "HORO_KEY_FD",
     .fallback = "-1",
     .help = "Open descriptor that the job's key is read from, and that is then closed.",
     .minimum = -1,
     .maximum = 1 << 20,
     .test = "KeyLoan.OfADescriptorIsClosedOnceTheJobIsJoined"}};
inline constexpr BoolKnob kTrustStore{
    {.name = "HORO_TRUST_STORE",
     .fallback = "0",
     .help = "Under torchrun on several hosts: take the job's key from torchrun's store, which asks nobody who he is.",
     .test = "test_torchrun::test_ranks_on_several_hosts_need_a_key_or_trust"}};
inline constexpr ChoiceKnob kController{
    {.name = "HORO_CONTROLLER",
     .legacy = "HOROVOD_CONTROLLER",
     .fallback = "auto",
     .help = "How ranks find each other: through MPI, or through horo's own store (gloo means that too); auto: through "
             "MPI where its launcher started them.",
     .choices = "auto|horo|gloo|mpi",
     .test = "test_mpi::test_without_mpi_ranks_of_mpirun_meet_through_a_file"}};
inline constexpr ChoiceKnob kCpuOperations{
    {.name = "HORO_CPU_OPERATIONS",
     .legacy = "HOROVOD_CPU_OPERATIONS",
     .fallback = "horo",
     .help = "What moves the data of tensors in the host's memory: horo's own operations (gloo and ccl mean them too), "
             "or MPI's.",
     .choices = "horo|gloo|ccl|mpi",
     .test = "test_mpi::test_ranks_of_mpirun_compute_the_same_with_either_data_plane"}};
inline constexpr TextKnob kMpiLibrary{{.name = "HORO_MPI_LIBRARY",
                                       .help = "File of the MPI library to open, where none is loaded yet.",
                                       .test = "test_mpi::test_what_is_missing_is_said"}};
inline constexpr BoolKnob kMpiThreadsDisable{
    {.name = "HORO_MPI_THREADS_DISABLE",
     .legacy = "HOROVOD_MPI_THREADS_DISABLE",
     .fallback = "0",
     .help = "Do not ask MPI for calls from several threads; its operations cannot be used then.",
     .test = "test_mpi::test_what_is_missing_is_said"}};
inline constexpr TextKnob kHostId{{.name = "HORO_HOST_ID",
                                   .help = "Ranks with equal values count as being on one host.",
                                   .test = "GroupKnobs.RanksWithEqualHostIdsShareMemory"}};

/// What a launcher tells beyond what a rank needs: for scripts. The engine counts the ranks of a host itself.
inline constexpr IntegerKnob kLocalRank{{.name = "HORO_LOCAL_RANK",
                                         .legacy = "HOROVOD_LOCAL_RANK",
                                         .fallback = "-1",
                                         .help = "Set by horo run: the rank's number on its host.",
                                         .test = "Run.RanksFindTheirPlaceUnderBothNames"}};
inline constexpr IntegerKnob kLocalSize{{.name = "HORO_LOCAL_SIZE",
                                         .legacy = "HOROVOD_LOCAL_SIZE",
                                         .fallback = "-1",
                                         .help = "Set by horo run: how many ranks the host has.",
                                         .test = "Run.RanksFindTheirPlaceUnderBothNames"}};
inline constexpr IntegerKnob kCrossRank{{.name = "HORO_CROSS_RANK",
                                         .legacy = "HOROVOD_CROSS_RANK",
                                         .fallback = "-1",
                                         .help = "Set by horo run: the number among ranks of equal local rank.",
                                         .test = "Run.RanksFindTheirPlaceUnderBothNames"}};
inline constexpr IntegerKnob kCrossSize{{.name = "HORO_CROSS_SIZE",
                                         .legacy = "HOROVOD_CROSS_SIZE",
                                         .fallback = "-1",
                                         .help = "Set by horo run: how many ranks have the same local rank.",
                                         .test = "Run.RanksFindTheirPlaceUnderBothNames"}};
inline constexpr TextKnob kHostname{{.name = "HORO_HOSTNAME",
                                     .legacy = "HOROVOD_HOSTNAME",
                                     .help = "Set by horo run: the host as the user named it.",
                                     .test = "Run.RanksFindTheirPlaceUnderBothNames"}};
inline constexpr IntegerKnob kResultFd{
    {.name = "HORO_RESULT_FD",
     .fallback = "-1",
     .help = "Set by horo run --result-folder: descriptor for the bytes that this rank hands back.",
     .test = "RunFlags.ResultsComeBackOfEveryRank"}};

/// And what the launcher itself reads.
inline constexpr SecondsKnob kStartTimeout{
    {.name = "HORO_START_TIMEOUT",
     .legacy = "HOROVOD_START_TIMEOUT",
     .fallback = "30s",
     .help = "Read by horo run, where --start-timeout is not given: how long hosts have to answer.",
     .test = "RunFlags.StartTimeoutEndsTheWaitForHosts"}};

inline constexpr const Knob* kKnobs[] = {&kRank,       &kSize,          &kStore,      &kJobId,
                                         &kSeat,       &kKeyFile,       &kKeyFd,      &kTrustStore,
                                         &kController, &kCpuOperations, &kMpiLibrary, &kMpiThreadsDisable,
                                         &kHostId,     &kLocalRank,     &kLocalSize,  &kCrossRank,
                                         &kCrossSize,  &kHostname,      &kResultFd,   &kStartTimeout};

}  // namespace horo::rendezvous
