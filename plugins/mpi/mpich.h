// MPICH and all who share its binary interface (Intel MPI, MVAPICH, Cray MPICH): handles are numbers.
#pragma once

#include <cstdint>
#include <string_view>

#include "plugins/mpi/functions.h"

namespace horo::mpi {

struct Mpich {
  using Comm = int;
  using Datatype = int;
  using Op = int;
  using Group = int;
  using Errhandler = int;

  static constexpr std::string_view kVersionWords[] = {"MPICH", "Intel", "MVAPICH", "CRAY"};
  static constexpr const char* kFiles[] = {"libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12", "libmpi.so"};

  // NOLINTBEGIN(performance-no-int-to-ptr): as in its mpi.h.
  static void* in_place() { return reinterpret_cast<void*>(~uintptr_t{0}); }
  static void* status_ignore() { return reinterpret_cast<void*>(uintptr_t{1}); }
  // NOLINTEND(performance-no-int-to-ptr)

  /// There are no symbols for these: they are fixed in the common binary interface.
  static Status bind(const DynamicLibrary&, Functions<Mpich>& functions, Constants<Mpich>& constants) {
    functions.comm_f2c = [](int handle) { return handle; };
    constants.world = 0x44000000;
    constants.self = 0x44000001;
    constants.errors_return = 0x54000001;
    constants.byte = 0x4c00010d;
    constants.integer = 0x4c000405;
    auto& types = constants.types;
    types[HORO_U8] = 0x4c00013b;
    types[HORO_I8] = 0x4c000137;
    types[HORO_U16] = 0x4c00023c;
    types[HORO_I16] = 0x4c000238;
    types[HORO_U32] = 0x4c00043d;
    types[HORO_I32] = 0x4c000439;
    types[HORO_U64] = 0x4c00083e;
    types[HORO_I64] = 0x4c00083a;
    types[HORO_F32] = 0x4c00040a;
    types[HORO_F64] = 0x4c00080b;
    types[HORO_C64] = 0x4c000840;
    types[HORO_C128] = 0x4c001041;
    constants.max = 0x58000001;
    constants.min = 0x58000002;
    constants.sum = 0x58000003;
    constants.product = 0x58000004;
    constants.bit_and = 0x58000006;
    constants.bit_or = 0x58000008;
    constants.bit_xor = 0x5800000a;
    return {};
  }
};

}  // namespace horo::mpi
