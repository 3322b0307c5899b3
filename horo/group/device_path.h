// What a user may force about operations on the memory of devices.
#pragma once

#include <cstdint>

namespace horo::group {

/// What a user may force by name (HORO_DEVICE_PATH). Equal on all members.
enum class DevicePath : uint8_t { kAuto, kFabric, kDirect, kStaged };
/// Whether queues are held between the steps of direct operations (HORO_DEVICE_HOLD).
enum class DeviceHold : uint8_t { kAuto, kAlways, kNever };

}  // namespace horo::group
