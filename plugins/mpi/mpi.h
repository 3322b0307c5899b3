// MPI, whichever library it is.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "horo/api/fabric.h"
#include "horo/base/dynlib.h"
#include "horo/base/status.h"

/// A communicator of ours: a duplicate, or a part of one. Errors come back as values.
struct horo_communicator {
  virtual ~horo_communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual horo::Status broadcast(std::span<std::byte> bytes, int root) = 0;
  virtual horo::Result<int> smallest(int mine) = 0;
  virtual horo::Result<std::unique_ptr<horo_communicator>> part(std::span<const int> members, int tag) = 0;
  virtual horo::Status run(const horo_operation& operation, const std::byte* in, std::byte* out) = 0;
};

namespace horo::mpi {

class Mpi {
 public:
  virtual ~Mpi() = default;
  /// "Open MPI v4.1.4"
  virtual const std::string& name() const = 0;
  virtual bool any_thread() const = 0;
  virtual Result<std::unique_ptr<horo_communicator>> open(const int* handle, std::span<const int> ranks) = 0;
};

/// Starts MPI if nobody has, and ends it with the process then. `on_end` is called before it is gone, whoever ends it.
struct Starting {
  bool threads = true;
  void (*on_end)() = nullptr;
};
Result<std::unique_ptr<Mpi>> start_open_mpi(const DynamicLibrary& library, const Starting& starting);
Result<std::unique_ptr<Mpi>> start_mpich(const DynamicLibrary& library, const Starting& starting);

/// The library that this process has loaded, or else the one that `file` or `flavor` names, and what it is.
struct Library {
  DynamicLibrary library;
  bool is_open_mpi = false;
};
Result<Library> find_library(const char* file, const std::string& flavor);
/// "Open MPI v4.1.4", as the library calls itself.
std::string library_version(const DynamicLibrary& library);

}  // namespace horo::mpi
