// The functions of MPI that are used, declared here and found in its library at run time. The two families of libraries
// differ in the types of handles (Abi) and in their constants, and in nothing else.
#pragma once

#include <array>

#include "horo/api/fabric.h"
#include "horo/base/dynlib.h"

namespace horo::mpi {

constexpr int kThreadSingle = 0;
constexpr int kThreadMultiple = 3;
constexpr size_t kMostText = 8192;  ///< Of any text that MPI returns.
constexpr size_t kDtypes = HORO_BYTE + 1;

/// Of a user-defined reduction: in, inout, how many, and which type.
template <class Abi>
using Reduction = void(void* in, void* inout, int* count, typename Abi::Datatype* type);

template <class Abi>
struct Functions {
  using Comm = typename Abi::Comm;
  using Type = typename Abi::Datatype;
  using Op = typename Abi::Op;
  using Group = typename Abi::Group;
  using Copy = int(Comm, int, void*, void*, void*, int*);
  using Delete = int(Comm, int, void*, void*);

  int (*init_thread)(int*, char***, int, int*);
  int (*initialized)(int*);
  int (*finalized)(int*);
  int (*finalize)();
  int (*query_thread)(int*);
  int (*error_string)(int, char*, int*);
  int (*comm_rank)(Comm, int*);
  int (*comm_size)(Comm, int*);
  int (*comm_dup)(Comm, Comm*);
  int (*comm_free)(Comm*);
  int (*comm_group)(Comm, Group*);
  int (*group_incl)(Group, int, const int*, Group*);
  int (*group_free)(Group*);
  int (*comm_create_group)(Comm, Group, int, Comm*);
  int (*comm_set_errhandler)(Comm, typename Abi::Errhandler);
  int (*comm_create_keyval)(Copy*, Delete*, int*, void*);
  int (*comm_set_attr)(Comm, int, void*);
  int (*op_create)(Reduction<Abi>*, int, Op*);
  int (*barrier)(Comm);
  int (*bcast)(void*, int, Type, int, Comm);
  int (*allreduce)(const void*, void*, int, Type, Op, Comm);
  int (*reduce)(const void*, void*, int, Type, Op, int, Comm);
  int (*reduce_scatter)(const void*, void*, const int*, Type, Op, Comm);
  int (*allgatherv)(const void*, int, Type, void*, const int*, const int*, Type, Comm);
  int (*gatherv)(const void*, int, Type, void*, const int*, const int*, Type, int, Comm);
  int (*scatterv)(const void*, const int*, const int*, Type, void*, int, Type, int, Comm);
  int (*alltoallv)(const void*, const int*, const int*, Type, void*, const int*, const int*, Type, Comm);
  int (*send)(const void*, int, Type, int, int, Comm);
  int (*recv)(void*, int, Type, int, int, Comm, void*);
  Comm (*comm_f2c)(int);  ///< Set by the Abi: MPICH has no such function.

  Status bind(const DynamicLibrary& library) {
    const Symbol table[] = {
        symbol("MPI_Init_thread", &init_thread),
        symbol("MPI_Initialized", &initialized),
        symbol("MPI_Finalized", &finalized),
        symbol("MPI_Finalize", &finalize),
        symbol("MPI_Query_thread", &query_thread),
        symbol("MPI_Error_string", &error_string),
        symbol("MPI_Comm_rank", &comm_rank),
        symbol("MPI_Comm_size", &comm_size),
        symbol("MPI_Comm_dup", &comm_dup),
        symbol("MPI_Comm_free", &comm_free),
        symbol("MPI_Comm_group", &comm_group),
        symbol("MPI_Group_incl", &group_incl),
        symbol("MPI_Group_free", &group_free),
        symbol("MPI_Comm_create_group", &comm_create_group),
        symbol("MPI_Comm_set_errhandler", &comm_set_errhandler),
        symbol("MPI_Comm_create_keyval", &comm_create_keyval),
        symbol("MPI_Comm_set_attr", &comm_set_attr),
        symbol("MPI_Op_create", &op_create),
        symbol("MPI_Barrier", &barrier),
        symbol("MPI_Bcast", &bcast),
        symbol("MPI_Allreduce", &allreduce),
        symbol("MPI_Reduce", &reduce),
        symbol("MPI_Reduce_scatter", &reduce_scatter),
        symbol("MPI_Allgatherv", &allgatherv),
        symbol("MPI_Gatherv", &gatherv),
        symbol("MPI_Scatterv", &scatterv),
        symbol("MPI_Alltoallv", &alltoallv),
        symbol("MPI_Send", &send),
        symbol("MPI_Recv", &recv),
    };
    return library.bind(table);
  }
};

template <class Abi>
struct Constants {
  typename Abi::Comm world{}, self{};
  typename Abi::Errhandler errors_return{};
  typename Abi::Datatype byte{}, integer{};
  /// By horo_dtype; those that MPI does not know stay empty.
  std::array<typename Abi::Datatype, kDtypes> types{};
  typename Abi::Op sum{}, product{}, min{}, max{}, bit_and{}, bit_or{}, bit_xor{};
};

}  // namespace horo::mpi
