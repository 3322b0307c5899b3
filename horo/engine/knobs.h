// What a user can set about negotiated execution.
#pragma once

#include "horo/base/knob.h"

namespace horo::engine {

inline constexpr BytesKnob kFusionThreshold{
    {.name = "HORO_FUSION_THRESHOLD",
     .legacy = "HOROVOD_FUSION_THRESHOLD",
     .fallback = "128MiB",
     .help = "Tensors that are ready together are run as one operation of at most this size; 0: never.",
     .minimum = 0,
     .test = "EngineKnobs.FusionThresholdSaysHowMuchRunsTogether"}};
inline constexpr SecondsKnob kGatherWindow{
    {.name = "HORO_GATHER_WINDOW",
     .legacy = "HOROVOD_CYCLE_TIME",
     .fallback = "1ms",
     .help = "The longest time that a ready tensor waits for others while no thread waits for a result.",
     .legacy_unit = "ms",
     .test = "EngineKnobs.GatherWindowIsHowLongATensorWaitsForOthers"}};
inline constexpr IntegerKnob kCacheCapacity{
    {.name = "HORO_CACHE_CAPACITY",
     .legacy = "HOROVOD_CACHE_CAPACITY",
     .fallback = "1024",
     .help = "Tensors that all ranks remember, so that a number announces them; 0: none.",
     .minimum = 0,
     .maximum = 1 << 18,
     .test = "EngineKnobs.CacheCapacityIsHowManyTensorsAreRemembered"}};
inline constexpr BoolKnob kDisableGroupFusion{
    {.name = "HORO_DISABLE_GROUP_FUSION",
     .legacy = "HOROVOD_DISABLE_GROUP_FUSION",
     .fallback = "0",
     .help = "Whether tensors that were handed in as a group are never run together with others.",
     .test = "EngineKnobs.DisableGroupFusionKeepsGroupsApart"}};
inline constexpr BoolKnob kStallCheckDisable{
    {.name = "HORO_STALL_CHECK_DISABLE",
     .legacy = "HOROVOD_STALL_CHECK_DISABLE",
     .fallback = "0",
     .help = "Whether nothing is said about tensors that some ranks never hand in.",
     .test = "EngineKnobs.StallCheckDisableSaysNothing"}};
inline constexpr SecondsKnob kStallWarning{
    {.name = "HORO_STALL_WARNING",
     .legacy = "HOROVOD_STALL_CHECK_TIME_SECONDS",
     .fallback = "60s",
     .help = "A tensor that some ranks have not handed in for so long is named, with these ranks.",
     .test = "EngineKnobs.StallWarningIsWhenAMissingRankIsNamed"}};
inline constexpr SecondsKnob kStallAbort{
    {.name = "HORO_STALL_ABORT",
     .legacy = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
     .fallback = "0",
     .help = "After so long everything fails instead; must be longer than HORO_STALL_WARNING; 0: never.",
     .test = "EngineKnobs.StallAbortEndsTheWait"}};

inline constexpr BoolKnob kAutotune{
    {.name = "HORO_AUTOTUNE",
     .legacy = "HOROVOD_AUTOTUNE",
     .fallback = "0",
     .help = "Whether better values of HORO_FUSION_THRESHOLD and HORO_GATHER_WINDOW, and better ways of allreduce and "
             "allgather between hosts, are looked for while the job runs; what is set stays as it is.",
     .test = "Autotune.LeavesABadThresholdOnAllRanksAtOnce"}};
inline constexpr TextKnob kAutotuneLog{{.name = "HORO_AUTOTUNE_LOG",
                                        .legacy = "HOROVOD_AUTOTUNE_LOG",
                                        .help = "CSV file of what autotune measures, written by rank 0.",
                                        .test = "Autotune.LeavesABadThresholdOnAllRanksAtOnce"}};
inline constexpr IntegerKnob kAutotuneWarmupSamples{{.name = "HORO_AUTOTUNE_WARMUP_SAMPLES",
                                                     .legacy = "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
                                                     .fallback = "3",
                                                     .help = "Samples at the beginning that do not count.",
                                                     .minimum = 0,
                                                     .maximum = 1 << 20,
                                                     .test = "Autotune.LeavesABadThresholdOnAllRanksAtOnce"}};
inline constexpr IntegerKnob kAutotuneStepsPerSample{{.name = "HORO_AUTOTUNE_STEPS_PER_SAMPLE",
                                                      .legacy = "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
                                                      .fallback = "10",
                                                      .help = "How often the tensors come again in one sample.",
                                                      .minimum = 1,
                                                      .maximum = 1 << 20,
                                                      .test = "Autotune.LeavesABadThresholdOnAllRanksAtOnce"}};
inline constexpr IntegerKnob kAutotuneTrials{{.name = "HORO_AUTOTUNE_TRIALS",
                                              .legacy = "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
                                              .fallback = "20",
                                              .help = "Settings that are tried at most, each in up to six samples.",
                                              .minimum = 1,
                                              .maximum = 1 << 20,
                                              .test = "Autotune.ChoosesTheWayBetweenHostsWithoutChangingABit"}};

inline constexpr TextKnob kTimeline{
    {.name = "HORO_TIMELINE",
     .legacy = "HOROVOD_TIMELINE",
     .help = "The file that rank 0's timeline goes to (the others' are named after it); DYNAMIC: none yet.",
     .test = "Timelines.CanBeParsedWhileTheJobRunsAndHaveEveryPhaseAfterwards"}};
inline constexpr BoolKnob kTimelineMarkCycles{
    {.name = "HORO_TIMELINE_MARK_CYCLES",
     .legacy = "HOROVOD_TIMELINE_MARK_CYCLES",
     .fallback = "0",
     .help = "Whether the timeline marks where the coordinator lets the ranks run what is ready.",
     .test = "Timelines.CanBeParsedWhileTheJobRunsAndHaveEveryPhaseAfterwards"}};

inline constexpr IntegerKnob kMetricsPort{
    {.name = "HORO_METRICS_PORT",
     .fallback = "0",
     .help =
         "Metrics are served over HTTP there: local rank 0 listens on this port, local rank 1 on the next; 0: none.",
     .minimum = 0,
     .maximum = 65535,
     .test = "Metrics.AreServedByEachRankOnItsOwnPort"}};
inline constexpr TextKnob kMetricsAddress{
    {.name = "HORO_METRICS_ADDRESS",
     .fallback = "127.0.0.1",
     .help = "The IP address that metrics are served at; 0.0.0.0 or ::, for everybody who can reach this host.",
     .test = "Metrics.AreServedAtTheAddressThatWasAskedFor"}};

inline constexpr const Knob* kKnobs[] = {
    &kFusionThreshold,        &kGatherWindow,   &kCacheCapacity, &kDisableGroupFusion, &kStallCheckDisable,
    &kStallWarning,           &kStallAbort,     &kAutotune,      &kAutotuneLog,        &kAutotuneWarmupSamples,
    &kAutotuneStepsPerSample, &kAutotuneTrials, &kTimeline,      &kTimelineMarkCycles, &kMetricsPort,
    &kMetricsAddress};

}  // namespace horo::engine
