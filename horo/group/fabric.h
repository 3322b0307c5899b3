// Collectives that are not ours: what a plugin brings that has a fabric of its own (MPI).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/collective/operation.h"

namespace horo::group {

/// The members of one group on the fabric.
class FabricGroup {
 public:
  virtual ~FabricGroup() = default;
  /// Without scaling. Input and output overlap only where they are equal, and that only for allreduce, reduce and
  /// broadcast. Cannot be interrupted: a lost member is the fabric's matter.
  virtual Status run(const collective::Operation& operation, const std::byte* in, std::byte* out) = 0;
};

class Fabric {
 public:
  virtual ~Fabric() = default;
  /// "mpi"
  virtual std::string_view transport_name() const = 0;
  /// Called by all of `ranks` with the same `id`; waits for them.
  virtual Result<std::unique_ptr<FabricGroup>> group(const std::vector<int>& ranks, uint64_t id) = 0;
};

}  // namespace horo::group
