// What a user can set about devices.
#pragma once

#include "horo/base/knob.h"

namespace horo::device {

inline constexpr TextKnob kDevicePlugin{
    {.name = "HORO_DEVICE_PLUGIN",
     .help = "The shared object for devices (libhoro_cuda.so), where it does not lie beside libhoro.",
     .test = "DeviceLoader.TakesTheFileThatTheUserNames"}};
inline constexpr TextKnob kKernelCache{
    {.name = "HORO_KERNEL_CACHE",
     .help = "Folder in which kernels for devices are kept once they are compiled; ~/.cache/horo if it is not set, "
             "nowhere if it is \"none\".",
     .test = "DeviceLoader.TellsThePluginWhereKernelsAreKept"}};

}  // namespace horo::device
