#include "horo/api/fabric_plugin.h"

#include <dlfcn.h>

#include <array>

#include "horo/api/handles.h"
#include "horo/base/dynlib.h"
#include "horo/base/text.h"
#include "horo/kernel/reduce.h"
#include "horo/rendezvous/knobs.h"

namespace horo::api {

namespace {

constexpr const char* kFile = "libhoro_mpi.so";

/// Beside the library that this code is in.
std::string plugin_path() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&horo_combine), &info) == 0 || info.dli_fname == nullptr) return kFile;
  const std::string own(info.dli_fname);
  const size_t slash = own.rfind('/');
  return slash == std::string::npos ? kFile : own.substr(0, slash + 1) + kFile;
}

Result<DynamicLibrary> open_plugin() {
  const std::array<std::string, 1> names = {plugin_path()};
  return DynamicLibrary::open(names);
}

Status status_of(horo_code code, const horo_reason& reason) {
  return code == HORO_OK ? Status() : Status(static_cast<Code>(code), reason.words);
}

class PluginGroup : public group::FabricGroup {
 public:
  PluginGroup(const horo_fabric* fabric, Communicator communicator)
      : fabric_(fabric), communicator_(std::move(communicator)) {}

  Status run(const collective::Operation& operation, const std::byte* in, std::byte* out) override {
    horo_operation call = HORO_OPERATION_INIT;
    call.kind = static_cast<horo_kind>(operation.kind);
    call.dtype = static_cast<horo_dtype>(operation.dtype);
    call.op = static_cast<horo_reduce_op>(operation.op);
    call.root = operation.root;
    call.target = operation.target;
    call.count = operation.count;
    call.counts = operation.counts.empty() ? nullptr : operation.counts.data();
    call.receive_counts = operation.receive_counts.empty() ? nullptr : operation.receive_counts.data();
    horo_reason reason;
    return status_of(fabric_->run(communicator_.get(), &call, in, out, &reason), reason);
  }

 private:
  const horo_fabric* fabric_;
  const Communicator communicator_;
};

}  // namespace

bool PluginFabric::installed() { return open_plugin().ok(); }

Result<std::shared_ptr<PluginFabric>> PluginFabric::open(const Config& config, const std::string& flavor,
                                                         const FabricMembers& members) {
  auto plugin = open_plugin();
  if (!plugin.ok()) return plugin.status().prefixed("this installation of horo has no MPI plugin");
  horo_fabric_open_function open_fabric = nullptr;
  const std::array table = {symbol(HORO_FABRIC_OPEN, &open_fabric)};
  HORO_TRY(plugin->bind(table));
  const std::string library = config.get(rendezvous::kMpiLibrary);
  const horo_fabric_request request{sizeof request, library.empty() ? nullptr : library.c_str(), flavor.c_str(),
                                    config.get(rendezvous::kMpiThreadsDisable) ? 0 : 1};
  const horo_fabric* fabric = nullptr;
  horo_reason reason;
  HORO_TRY(status_of(open_fabric(&request, &fabric, &reason), reason));
  horo_communicator* made = nullptr;
  HORO_TRY(status_of(fabric->open(members.communicator, members.ranks.data(), members.ranks.size(), &made, &reason),
                     reason));
  return std::shared_ptr<PluginFabric>(new PluginFabric(fabric, Communicator(made, {fabric})));
}

Status PluginFabric::broadcast(std::span<std::byte> bytes, int root) {
  horo_reason reason;
  return status_of(fabric_->broadcast(communicator_.get(), bytes.data(), bytes.size(), root, &reason), reason);
}

Result<int> PluginFabric::smallest(int mine) {
  horo_reason reason;
  int found = 0;
  HORO_TRY(status_of(fabric_->smallest(communicator_.get(), mine, &found, &reason), reason));
  return found;
}

Result<std::unique_ptr<group::FabricGroup>> PluginFabric::group(const std::vector<int>& ranks, uint64_t id) {
  // Any tag up to this one is allowed everywhere.
  constexpr uint64_t kMostTag = 32767;
  horo_reason reason;
  horo_communicator* made = nullptr;
  HORO_TRY(status_of(
      fabric_->part(communicator_.get(), ranks.data(), ranks.size(), static_cast<int>(id % kMostTag), &made, &reason),
      reason));
  return std::unique_ptr<group::FabricGroup>(std::make_unique<PluginGroup>(fabric_, Communicator(made, {fabric_})));
}

}  // namespace horo::api

horo_code horo_combine(horo_dtype dtype, horo_reduce_op op, const void* in, void* inout, uint64_t count) {
  const auto element = static_cast<horo::DType>(dtype);
  const auto wanted = static_cast<horo::ReduceOp>(op == HORO_AVERAGE ? HORO_SUM : op);
  if (dtype < HORO_U8 || dtype > HORO_BYTE || op < HORO_SUM || op > HORO_XOR || !horo::can_reduce(element, wanted)) {
    return HORO_INVALID_ARGUMENT;
  }
  if (count > 0 && (in == nullptr || inout == nullptr)) return HORO_INVALID_ARGUMENT;
  const horo::kernel::DefaultFloatMode float_mode;
  auto* out = static_cast<std::byte*>(inout);
  horo::kernel::combine(element, wanted)(out, static_cast<const std::byte*>(in), out, count);
  return HORO_OK;
}

int horo_mpi_built(void) { return horo::api::PluginFabric::installed() ? 1 : 0; }

int horo_runtime_mpi_enabled(const horo_runtime* runtime) {
  if (horo::api::is_absent(runtime, "horo_runtime_mpi_enabled", "runtime")) return -1;
  return runtime->fabric != nullptr ? 1 : 0;
}

int horo_runtime_mpi_threads(const horo_runtime* runtime) {
  if (horo::api::is_absent(runtime, "horo_runtime_mpi_threads", "runtime")) return -1;
  return runtime->fabric != nullptr && runtime->fabric->any_thread() ? 1 : 0;
}
