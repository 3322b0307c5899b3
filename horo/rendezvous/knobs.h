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

inline constexpr const Knob* kKnobs[] = {&kRank,      &kSize,     &kStore,     &kJobId,       &kKeyFile,
                                         &kKeyFd,     &kHostId,   &kLocalRank, &kLocalSize,   &kCrossRank,
                                         &kCrossSize, &kHostname, &kResultFd,  &kStartTimeout};

}  // namespace horo::rendezvous
