// What a user can set about an engine and its groups.
#pragma once

#include "horo/base/knob.h"
#include "horo/device/knobs.h"

namespace horo::group {

inline constexpr BytesKnob kStaging{
    {.name = "HORO_STAGING",
     .fallback = "256MiB",
     .help = "Memory per rank and group in which operations are staged. Up to this size a failed operation leaves its "
             "inputs as they were.",
     .minimum = 4 << 20,
     .test = "GroupKnobs.StagingBoundsTheMemoryOfOperations"}};
inline constexpr SecondsKnob kTimeout{
    {.name = "HORO_TIMEOUT",
     .legacy = "HOROVOD_GLOO_TIMEOUT_SECONDS",
     .fallback = "30s",
     .help = "Limit for connecting, handshakes, agreement after a loss, and shutdown.",
     .test = "ApiRejoin.ARankThatGaveUpComesAgainWhileAnotherWaits"}};
inline constexpr SecondsKnob kFreezeTimeout{
    {.name = "HORO_FREEZE_TIMEOUT",
     .fallback = "10s",
     .help = "A rank that others wait for and whose progress thread does not answer for so long is evicted.",
     .test = "Freeze.ARankStoppedForLessThanTheLimitIsNotLost"}};
inline constexpr ChoiceKnob kTransport{
    {.name = "HORO_TRANSPORT",
     .fallback = "auto",
     .help = "How ranks of one host reach each other: shared memory where possible, or sockets always.",
     .choices = "auto|shm|tcp",
     .test = "ApiGroup.RanksFindThemselvesAndTheirTransport"}};
inline constexpr BoolKnob kReadPeers{
    {.name = "HORO_READ_PEERS",
     .fallback = "1",
     .help = "Whether ranks of one host that only move tensors of medium size read them straight out of each other's "
             "memory, if the system permits it to all of them (process_vm_readv); 0 where it ends processes that try.",
     .test = "GroupKnobs.ReadPeersIsWhetherRanksReadEachOthersMemory"}};
inline constexpr BoolKnob kKeeper{
    {.name = "HORO_KEEPER",
     .fallback = "1",
     .help = "Whether a rank that others reach by sockets alone has a small process that holds its memory while it "
             "dies, so that they hear of it at once.",
     .test = "GroupKnobs.KeeperIsThereForPeersOnOtherHosts"}};
inline constexpr IntegerKnob kStreams{{.name = "HORO_STREAMS",
                                       .fallback = "2",
                                       .help = "Connections per pair of ranks that do not share memory.",
                                       .minimum = 1,
                                       .maximum = 16,
                                       .test = "GroupKnobs.StreamsIsHowManyConnectionsAPairHas"}};
inline constexpr BoolKnob kChecksum{{.name = "HORO_CHECKSUM",
                                     .fallback = "1",
                                     .help = "Whether bytes between hosts carry a checksum (CRC-32C).",
                                     .test = "WireKnobs.ChecksumNoticesDamage"}};
inline constexpr BoolKnob kEncrypt{
    {.name = "HORO_ENCRYPT",
     .fallback = "0",
     .help = "Whether bytes between hosts are encrypted (AES-256-GCM); the same on all ranks.",
     .test = "WireKnobs.EncryptHidesTheData"}};
inline constexpr TextKnob kAlgorithm{
    {.name = "HORO_ALGORITHM",
     .help = "Forces algorithms between hosts: a name for every operation it can do, or kind=name,... "
             "(horo check --algorithms lists them).",
     .test = "Hierarchy.IsForcedAndForbiddenByName"}};
inline constexpr ChoiceKnob kHierarchicalAllreduce{
    {.name = "HORO_HIERARCHICAL_ALLREDUCE",
     .legacy = "HOROVOD_HIERARCHICAL_ALLREDUCE",
     .fallback = "auto",
     .help = "Whether allreduce passes in two levels, hosts and what is between them, in groups that have both; auto: "
             "yes, or what autotune finds.",
     .choices = "auto|0|1",
     .test = "Autotune.HierarchyIsForcedAndForbiddenUnderBothNames"}};
inline constexpr ChoiceKnob kHierarchicalAllgather{{.name = "HORO_HIERARCHICAL_ALLGATHER",
                                                    .legacy = "HOROVOD_HIERARCHICAL_ALLGATHER",
                                                    .fallback = "auto",
                                                    .help = "The same for allgather.",
                                                    .choices = "auto|0|1",
                                                    .test = "Autotune.HierarchyIsForcedAndForbiddenUnderBothNames"}};
inline constexpr BoolKnob kDeterministic{
    {.name = "HORO_DETERMINISTIC",
     .fallback = "1",
     .help = "Whether the order of a float sum depends on the members alone, never on sizes (0 allows the ring).",
     .test = "GroupKnobs.DeterministicForbidsOrdersThatDependOnTheSize"}};
inline constexpr TextKnob kInterface{{.name = "HORO_INTERFACE",
                                      .legacy = "HOROVOD_GLOO_IFACE",
                                      .help = "Network interface or address that other hosts reach this one at.",
                                      .test = "GroupKnobs.InterfaceIsWhereOthersReachARank"}};
inline constexpr ChoiceKnob kLogLevel{{.name = "HORO_LOG_LEVEL",
                                       .legacy = "HOROVOD_LOG_LEVEL",
                                       .fallback = "warning",
                                       .help = "Least level of messages that are shown.",
                                       .choices = "trace|debug|info|warning|warn|error|fatal|off",
                                       .test = "GroupKnobs.LogLevelIsTheLeastThatIsShown"}};
inline constexpr BoolKnob kLogHideTime{{.name = "HORO_LOG_HIDE_TIME",
                                        .legacy = "HOROVOD_LOG_HIDE_TIME",
                                        .fallback = "0",
                                        .help = "Whether messages go without the time in front.",
                                        .test = "GroupKnobs.LogHideTimeLeavesTheTimeOut"}};
inline constexpr TextKnob kThreadAffinity{
    {.name = "HORO_THREAD_AFFINITY",
     .legacy = "HOROVOD_THREAD_AFFINITY",
     .help = "Core that horo's own threads stay on: one for all ranks of a host, or one for each of them (0,2,4). The "
             "threads of the program are left alone.",
     .test = "GroupKnobs.ThreadAffinityKeepsTheThreadsOfEachRankOnItsCore"}};

inline constexpr ChoiceKnob kDevicePath{
    {.name = "HORO_DEVICE_PATH",
     .fallback = "auto",
     .help = "How ranks operate on the memory of devices: by NCCL (each rank has a GPU of its own), straight out of "
             "each other's (on one host), or through the memory of the host; auto: the first of these that works.",
     .choices = "auto|nccl|direct|staged",
     .test = "DeviceGroup.TheWayCanBeForcedByName"}};
inline constexpr ChoiceKnob kDeviceHold{
    {.name = "HORO_DEVICE_HOLD",
     .fallback = "auto",
     .help = "Whether all steps of an operation straight out of each other's device memory are put into the device's "
             "queue at once, which is held between them, so that threads need not wait for results; auto: not on a GPU "
             "that serves ranks in turns, where each hold costs a turn.",
     .choices = "auto|always|never",
     .test = "DeviceHold.CanBeTurnedOff"}};
inline constexpr BoolKnob kShareDevices{
    {.name = "HORO_SHARE_GPUS",
     .fallback = "0",
     .help = "Set by horo run --share-gpus: several ranks on one GPU are meant so, and nobody warns of it.",
     .test = "FabricGroup.RanksOnOneDeviceAreWarnedUnlessTheyMeanIt"}};

inline constexpr const Knob* kKnobs[] = {&kStaging,
                                         &kTimeout,
                                         &kFreezeTimeout,
                                         &kTransport,
                                         &kReadPeers,
                                         &kKeeper,
                                         &kStreams,
                                         &kChecksum,
                                         &kEncrypt,
                                         &kAlgorithm,
                                         &kHierarchicalAllreduce,
                                         &kHierarchicalAllgather,
                                         &kDeterministic,
                                         &kInterface,
                                         &kLogLevel,
                                         &kLogHideTime,
                                         &kThreadAffinity,
                                         &kDevicePath,
                                         &kDeviceHold,
                                         &kShareDevices,
                                         &device::kDevicePlugin,
                                         &device::kKernelCache};

}  // namespace horo::group
