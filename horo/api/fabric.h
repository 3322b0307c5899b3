/* What a plugin brings whose fabric has ranks of its own, such as MPI: they find each other through it, take the job's
 * key through it, and, if the user wants, move their data through it. The plugin is the shared object libhoro_mpi.so
 * beside libhoro; it is opened when it is needed. Programs need the last three functions at most. */
#ifndef HORO_API_FABRIC_H_
#define HORO_API_FABRIC_H_

#include <stddef.h>
#include <stdint.h>

#include "horo/api/horo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The plugin's. */
typedef struct horo_communicator horo_communicator;

/* Words for a code that is not HORO_OK, ended by a zero. */
typedef struct horo_reason {
  char words[1024];
} horo_reason;

typedef struct horo_fabric_request {
  size_t struct_size;
  const char* library; /* the file to open. NULL: what the process has loaded, else what `flavor` suggests */
  const char* flavor;  /* "openmpi", "mpich"; "": not known */
  int threads;         /* 0: do not ask the fabric for calls from several threads at once */
} horo_fabric_request;

/* One per process; lives until its end. All functions may wait for the other members without limit. */
typedef struct horo_fabric {
  size_t struct_size;
  const char* name; /* "Open MPI v4.1.4" */
  int any_thread;   /* whether several threads may call at once */
  /* A communicator of its own with the members of the program's communicator `handle` (the Fortran one; NULL: all
   * processes), of those only `ranks` (count 0: all), in that order. Called by all of them. */
  horo_code (*open)(const int* handle, const int* ranks, size_t count, horo_communicator** opened, horo_reason* reason);
  /* One with some of its members, who all call this with the same tag; other tags at the same time are fine. */
  horo_code (*part)(horo_communicator* of, const int* members, size_t count, int tag, horo_communicator** opened,
                    horo_reason* reason);
  void (*close)(horo_communicator* communicator);
  int (*rank)(const horo_communicator* communicator);
  int (*size)(const horo_communicator* communicator);
  horo_code (*broadcast)(horo_communicator* communicator, void* bytes, size_t count, int root, horo_reason* reason);
  horo_code (*smallest)(horo_communicator* communicator, int mine, int* smallest, horo_reason* reason);
  /* As horo_group_run, without scaling; input and output overlap only where they are equal, and that only for
   * allreduce, reduce and broadcast. An average is a sum here. */
  horo_code (*run)(horo_communicator* communicator, const horo_operation* operation, const void* input, void* output,
                   horo_reason* reason);
  /* `call` is called when the program ends the fabric, before it is gone. */
  void (*at_end)(void (*call)(void*), void* context);
  void (*forget)(void* context);
} horo_fabric;

/* What a plugin exports under this name. */
typedef horo_code (*horo_fabric_open_function)(const horo_fabric_request* request, const horo_fabric** fabric,
                                               horo_reason* reason);
#define HORO_FABRIC_OPEN "horo_fabric_open"
/* It may also export this one, without arguments: in words, which fabric it would open where no launcher says. Nothing
 * is started. */
#define HORO_FABRIC_DESCRIBE "horo_fabric_describe"

/* inout[i] = in[i] op inout[i], as horo itself would. HORO_INVALID_ARGUMENT where these elements cannot be reduced so.
 */
horo_code horo_combine(horo_dtype dtype, horo_reduce_op op, const void* in, void* inout, uint64_t count);

/* Whether the plugin for MPI is installed. Nothing is started. */
int horo_mpi_built(void);
/* Whether the ranks met through MPI; and whether it may be called by several threads at once. */
int horo_runtime_mpi_enabled(const horo_runtime* runtime);
int horo_runtime_mpi_threads(const horo_runtime* runtime);

#ifdef __cplusplus
}
#endif

#endif /* HORO_API_FABRIC_H_ */
