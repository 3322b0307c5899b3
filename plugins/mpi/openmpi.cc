#include "plugins/mpi/openmpi.h"

#include "plugins/mpi/shim.h"

namespace horo::mpi {

Result<std::unique_ptr<Mpi>> start_open_mpi(const DynamicLibrary& library, const Starting& starting) {
  return Shim<OpenMpi>::start(library, starting);
}

}  // namespace horo::mpi
