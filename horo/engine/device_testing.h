// A job whose ranks have the device of host_device_testing.h, for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "horo/engine/knobs.h"
#include "horo/engine/runtime.h"
#include "horo/group/host_device_testing.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/knobs.h"
#include "horo/rendezvous/memory_store.h"

namespace horo::engine {

using group::testing::host_device;
using group::testing::HostDevice;
using Variables = Environment::Variables;

/// Starts a job whose ranks have the device of the host, and runs `body` on every rank.
inline void run(int size, const Variables& settings, const std::function<void(Runtime&)>& body) {
  auto store = std::make_shared<rendezvous::MemoryStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const Environment environment =
          Environment(Variables{{"HORO_TIMEOUT", "30s"}, {"HORO_STAGING", "8MiB"}}).with(settings);
      auto config = Config::read({rendezvous::kKnobs, group::kKnobs, kKnobs}, environment);
      ASSERT_TRUE(config.ok()) << config.status();
      group::EngineOptions options{.rank = rank, .size = size, .store = store, .config = *config};
      options.device_plugin = &host_device();
      auto runtime = Runtime::start({.engine = std::move(options)});
      ASSERT_TRUE(runtime.ok()) << runtime.status();
      body(**runtime);
      (*runtime)->shutdown();
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

inline collective::Operation operation_of(collective::Kind kind, uint64_t count) {
  collective::Operation operation;
  operation.kind = kind;
  operation.dtype = DType::kF32;
  operation.count = count;
  operation.where.device = 0;
  return operation;
}

inline std::vector<float> values(uint64_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(7 + rank));
  std::vector<float> all(count);
  // The standard distribution takes logarithms of 128 bits for each with clang on aarch64: minutes.
  for (float& one : all) one = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31F;
  return all;
}

template <class T>
const std::byte* bytes(const std::vector<T>& all) {
  return reinterpret_cast<const std::byte*>(all.data());
}
template <class T>
std::byte* bytes(std::vector<T>& all) {
  return reinterpret_cast<std::byte*>(all.data());
}

inline Call call_of(std::string name, Kind kind, std::vector<float>& data) {
  Call call;
  call.tensor.name = std::move(name);
  call.tensor.kind = kind;
  call.tensor.dtype = DType::kF32;
  call.tensor.shape = {static_cast<int64_t>(data.size())};
  call.tensor.place = Place::kDevice;
  call.input = bytes(data);
  call.output = bytes(data);
  call.where.device = 0;
  return call;
}

}  // namespace horo::engine
