// Open MPI as its library has it: handles are pointers to objects of the library.
#pragma once

#include <cstdint>
#include <string_view>

#include "plugins/mpi/functions.h"

namespace horo::mpi {

struct OpenMpi {
  using Comm = void*;
  using Datatype = void*;
  using Op = void*;
  using Group = void*;
  using Errhandler = void*;

  static constexpr std::string_view kVersionWords[] = {"Open MPI"};
  static constexpr const char* kFiles[] = {"libmpi.so.40", "libmpi.so.80", "libmpi.so"};

  // As in its mpi.h. NOLINTNEXTLINE(performance-no-int-to-ptr)
  static void* in_place() { return reinterpret_cast<void*>(uintptr_t{1}); }
  static void* status_ignore() { return nullptr; }

  static Status bind(const DynamicLibrary& library, Functions<OpenMpi>& functions, Constants<OpenMpi>& constants) {
    const auto object = [](const char* name, void** into) { return Symbol{name, static_cast<void*>(into), true}; };
    auto& types = constants.types;
    const Symbol table[] = {
        symbol("MPI_Comm_f2c", &functions.comm_f2c),
        object("ompi_mpi_comm_world", &constants.world),
        object("ompi_mpi_comm_self", &constants.self),
        object("ompi_mpi_errors_return", &constants.errors_return),
        object("ompi_mpi_byte", &constants.byte),
        object("ompi_mpi_int", &constants.integer),
        object("ompi_mpi_uint8_t", &types[HORO_U8]),
        object("ompi_mpi_int8_t", &types[HORO_I8]),
        object("ompi_mpi_uint16_t", &types[HORO_U16]),
        object("ompi_mpi_int16_t", &types[HORO_I16]),
        object("ompi_mpi_uint32_t", &types[HORO_U32]),
        object("ompi_mpi_int32_t", &types[HORO_I32]),
        object("ompi_mpi_uint64_t", &types[HORO_U64]),
        object("ompi_mpi_int64_t", &types[HORO_I64]),
        object("ompi_mpi_float", &types[HORO_F32]),
        object("ompi_mpi_double", &types[HORO_F64]),
        object("ompi_mpi_c_float_complex", &types[HORO_C64]),
        object("ompi_mpi_c_double_complex", &types[HORO_C128]),
        object("ompi_mpi_op_sum", &constants.sum),
        object("ompi_mpi_op_prod", &constants.product),
        object("ompi_mpi_op_min", &constants.min),
        object("ompi_mpi_op_max", &constants.max),
        object("ompi_mpi_op_band", &constants.bit_and),
        object("ompi_mpi_op_bor", &constants.bit_or),
        object("ompi_mpi_op_bxor", &constants.bit_xor),
    };
    return library.bind(table);
  }
};

}  // namespace horo::mpi
