// The plugin that brings MPI, as the rest of the library sees it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horo/api/fabric.h"
#include "horo/base/config.h"
#include "horo/group/fabric.h"

namespace horo::api {

/// Closes a communicator with the functions of the fabric that made it.
struct CloseCommunicator {
  const horo_fabric* fabric = nullptr;
  void operator()(horo_communicator* communicator) const { fabric->close(communicator); }
};
using Communicator = std::unique_ptr<horo_communicator, CloseCommunicator>;

/// Whose processes are the ranks of a job.
struct FabricMembers {
  const int* communicator = nullptr;  ///< The program's own, as Fortran knows it; null: all processes.
  std::span<const int> ranks;         ///< Of those; empty: all.
};

/// One job's members on the fabric. Calls wait for all of them.
class PluginFabric : public group::Fabric {
 public:
  /// Opens the plugin, the MPI library and, if nobody has, MPI itself. kNotFound when one of the files is missing; says
  /// what to do.
  static Result<std::shared_ptr<PluginFabric>> open(const Config& config, const std::string& flavor,
                                                    const FabricMembers& members);
  /// Whether the plugin is installed: nothing is opened but the plugin.
  static bool installed();

  int rank() const { return fabric_->rank(communicator_.get()); }
  int size() const { return fabric_->size(communicator_.get()); }
  /// "Open MPI v4.1.4"
  std::string name() const { return fabric_->name; }
  bool any_thread() const { return fabric_->any_thread != 0; }

  Status broadcast(std::span<std::byte> bytes, int root);
  Result<int> smallest(int mine);
  /// `call` is called when the program ends MPI.
  void at_end(void (*call)(void*), void* context) { fabric_->at_end(call, context); }
  void forget(void* context) { fabric_->forget(context); }

  std::string_view transport_name() const override { return "mpi"; }
  Result<std::unique_ptr<group::FabricGroup>> group(const std::vector<int>& ranks, uint64_t id) override;

 private:
  PluginFabric(const horo_fabric* fabric, Communicator communicator)
      : fabric_(fabric), communicator_(std::move(communicator)) {}

  const horo_fabric* fabric_;
  Communicator communicator_;
};

}  // namespace horo::api
