// Devices, as callers name them.
#include "horo/api/handles.h"
#include "horo/api/joining.h"
#include "horo/base/text.h"
#include "horo/device/loader.h"

using horo::Result;
using horo::Status;

Result<horo::device::Where> horo::api::where_of(group::Engine& engine, int device, void* stream) {
  device::Where where;
  if (device < 0) return where;
  HORO_ASSIGN(device::Devices * devices, engine.devices().get());
  HORO_TRY(devices->usable());
  where.device = device;
  HORO_ASSIGN(where.ready, devices->record(device, stream));
  return where;
}

const char* horo_devices_describe(const char* const* settings, int* usable) {
  thread_local std::string words;
  if (usable != nullptr) *usable = 0;
  try {
    Result<horo::Config> config = horo::api::read_config(settings);
    if (!config.ok()) return (words = config.status().to_string()).c_str();
    const auto source = std::make_shared<horo::device::Source>(*config);
    Result<horo::device::Devices*> devices = source->get();
    if (!devices.ok()) return (words = devices.status().message()).c_str();
    words = (*devices)->describe();
    if (usable != nullptr) *usable = (*devices)->usable().ok() ? 1 : 0;
  } catch (const std::exception& error) {
    words = error.what();
  }
  return words.c_str();
}
