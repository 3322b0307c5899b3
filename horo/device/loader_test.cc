#include "horo/device/loader.h"

#include <gtest/gtest.h>

#include "horo/device/knobs.h"

namespace horo::device {
namespace {

constexpr const Knob* kKnobs[] = {&kDevicePlugin, &kKernelCache};

Config config_of(const Environment::Variables& variables) {
  return *Config::read({KnobTable(kKnobs)}, Environment(variables));
}

std::string& cache_told() {
  static std::string folder;
  return folder;
}

int given_memory(int, uint64_t bytes, void** memory) {
  *memory = ::operator new(bytes);
  return 0;
}

/// Memory of the host, and nothing else.
const horo_device_plugin& table() {
  static const horo_device_plugin made = [] {
    horo_device_plugin all{};
    all.struct_size = sizeof all;
    all.version = HORO_DEVICE_VERSION;
    all.name = "test";
    all.last_error = [] { return "it was refused"; };
    all.set_cache = [](const char* folder) { cache_told() = folder; };
    all.describe = [](char*, size_t) { return static_cast<int>(Code::kUnavailable); };
    all.allocate = given_memory;
    all.free = [](int, void* memory) { ::operator delete(memory); };
    all.export_memory = [](int, void*, unsigned char*) { return 0; };
    return all;
  }();
  return made;
}

TEST(DeviceLoader, TakesTheFileThatTheUserNames) {
  EXPECT_EQ(candidates(config_of({{"HORO_DEVICE_PLUGIN", "/some/where/plugin.so"}})),
            std::vector<std::string>{"/some/where/plugin.so"});
  EXPECT_GT(candidates(config_of({})).size(), 1u);
  auto source = std::make_shared<Source>(config_of({{"HORO_DEVICE_PLUGIN", "/some/where/plugin.so"}}));
  const Status status = source->get().status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("/some/where/plugin.so"), std::string::npos) << status;
}

TEST(DeviceLoader, TellsThePluginWhereKernelsAreKept) {
  for (const auto& [value, told] : {std::pair("/tmp/kernels", "/tmp/kernels"), std::pair("none", "")}) {
    auto source = std::make_shared<Source>(config_of({{"HORO_KERNEL_CACHE", value}}), table());
    ASSERT_TRUE(source->get().ok());
    EXPECT_EQ(cache_told(), told);
  }
}

TEST(DeviceLoader, SaysWhatThePluginSays) {
  auto source = std::make_shared<Source>(config_of({}), table());
  const Status status = (*source->get())->usable();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(), "test: it was refused");
}

TEST(DeviceLoader, LendsMemoryAgainThatCameBack) {
  auto source = std::make_shared<Source>(config_of({}), table());
  auto first = source->lend(0, 1000);
  ASSERT_TRUE(first.ok());
  std::byte* const memory = first->get();
  auto second = source->lend(0, 1000);
  EXPECT_NE(second->get(), memory);
  first->reset();
  EXPECT_EQ(source->lend(0, 600)->get(), memory);
}

TEST(Devices, KnowWhatLiesInMemoryThatTheyExported) {
  Devices devices(table());
  auto made = devices.allocate(0, 1000);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(devices.find_exported(made->base, 1000).has_value());
  EXPECT_TRUE(devices.find_exported(made->base + 900, 100).has_value());
  EXPECT_FALSE(devices.find_exported(made->base + 901, 100).has_value());
  EXPECT_FALSE(devices.find_exported(made->base - 1, 1).has_value());
  auto other = devices.allocate(0, 1000);
  EXPECT_NE(other->id, made->id);
  devices.free(made->base);
  EXPECT_FALSE(devices.find_exported(made->base, 1000).has_value());
}

}  // namespace
}  // namespace horo::device
