#include "plugins/mpi/mpich.h"

#include "plugins/mpi/shim.h"

namespace horo::mpi {

Result<std::unique_ptr<Mpi>> start_mpich(const DynamicLibrary& library, const Starting& starting) {
  return Shim<Mpich>::start(library, starting);
}

}  // namespace horo::mpi
