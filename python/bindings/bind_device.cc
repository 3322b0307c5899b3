// Memory of devices that ranks share, and casts.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "bind_group.h"

#include "horo/api/devices.h"

namespace nb = nanobind;

namespace horo::python {

namespace {

/// As long as Python holds it.
class DeviceMemory {
 public:
  explicit DeviceMemory(horo_memory* memory) : memory_(memory) {}
  DeviceMemory(DeviceMemory&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  ~DeviceMemory() { horo_memory_destroy(memory_); }
  DeviceMemory(const DeviceMemory&) = delete;
  uintptr_t address() const { return reinterpret_cast<uintptr_t>(horo_memory_address(memory_)); }

 private:
  horo_memory* memory_;
};

DeviceMemory allocate_for_group(const OrderedGroup& group, int device, size_t bytes) {
  horo_memory* made = nullptr;
  check(horo_group_allocate_on(group.group.get(), device, bytes, &made));
  return DeviceMemory(made);
}

DeviceMemory allocate_for_job(const Job& job, int device, size_t bytes) {
  horo_memory* made = nullptr;
  check(horo_runtime_allocate_on(job.runtime.get(), device, bytes, &made));
  return DeviceMemory(made);
}

using Array = std::tuple<uintptr_t, uintptr_t, uint64_t, uintptr_t>;

void cast(const OrderedGroup& group, int to, int from, const std::vector<Array>& arrays, int device, uintptr_t stream,
          bool add, float factor) {
  horo_cast terms = HORO_CAST_INIT;
  terms.to = static_cast<horo_dtype>(to);
  terms.from = static_cast<horo_dtype>(from);
  terms.add = add ? 1 : 0;
  terms.factor = factor;
  terms.device = device;
  terms.stream = reinterpret_cast<void*>(stream);
  std::vector<horo_cast_array> all;
  for (const auto& [target, source, count, largest] : arrays) {
    all.push_back({reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), count,
                   reinterpret_cast<float*>(largest)});
  }
  const nb::gil_scoped_release release;
  check(horo_group_cast(group.group.get(), &terms, all.data(), all.size()));
}

}  // namespace

void bind_device(nb::module_& module) {
  nb::class_<DeviceMemory>(module, "DeviceMemory", "Memory of a device that the other ranks of this host can map.")
      .def_prop_ro("address", &DeviceMemory::address);
  module.def("allocate_on", &allocate_for_group, nb::arg("place"), nb::arg("device"), nb::arg("bytes"))
      .def("allocate_on", &allocate_for_job, nb::arg("place"), nb::arg("device"), nb::arg("bytes"),
           "Of the engine that a group or runtime belongs to; stays valid after its end.");
  module.def("cast", &cast, nb::arg("group"), nb::arg("to"), nb::arg("source"), nb::arg("arrays"),
             nb::arg("device") = -1, nb::arg("stream") = 0, nb::arg("add") = false, nb::arg("factor") = 1.0F,
             "Elements of another type: `arrays` are (address of the result, of what is cast, count, address of the "
             "largest value or 0), dtypes are numbers.");
}

}  // namespace horo::python
