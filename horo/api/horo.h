/* horo: collectives that are fast and survive. The C interface of libhoro.
 *
 * Handles are opaque. Option structs begin with their own size (set it with the HORO_*_INIT macros), so that a program
 * keeps working with a newer library. Functions that can fail return a horo_status*: NULL is success, anything else
 * tells what happened and is freed by the caller with horo_status_free(). Functions that return a value answer a null
 * handle with -1 (0 ranks, NULL or "" where that is the type) and leave their words to horo_last_error(). Everything is
 * thread-safe unless it says otherwise. In a forked child every call fails with HORO_FORKED.
 *
 *   horo_engine* engine;
 *   horo_engine_options options = HORO_ENGINE_OPTIONS_INIT;         // rank, size, store, key: from HORO_* variables
 *   horo_status* status = horo_engine_start(&options, &engine);
 *   status = horo_allreduce(horo_engine_world(engine), values, values, 1000, HORO_F32, HORO_AVERAGE);
 *   horo_engine_destroy(engine);
 */
#ifndef HORO_API_HORO_H_
#define HORO_API_HORO_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HORO_VERSION_MAJOR 0
#define HORO_VERSION_MINOR 1
#define HORO_VERSION_PATCH 0
#define HORO_VERSION_TEXT "0.1.0"

/* ---- Outcomes ---------------------------------------------------------------------------------------------------- */

/* What the caller can do about it; docs/errors.md explains each. */
typedef enum horo_code {
  HORO_OK = 0,
  HORO_INVALID_ARGUMENT = 1, /* fix the call */
  HORO_MISMATCH = 2,         /* the ranks disagree; fix the program; the group stays usable */
  HORO_TIMEOUT = 3,
  HORO_PEER_LOST = 4, /* go on with the survivors */
  HORO_EVICTED = 5,   /* the others went on without this rank */
  HORO_UNAUTHENTICATED = 6,
  HORO_INCOMPATIBLE = 7,
  HORO_UNAVAILABLE = 8, /* memory, descriptors, a feature of this system */
  HORO_STOPPED = 9,
  HORO_CORRUPT = 10,
  HORO_FORKED = 11,
  HORO_NOT_FOUND = 12,
  HORO_INTERRUPTED = 13,
  HORO_INTERNAL = 14,
  HORO_CODE_WIDTH = 0x7FFFFFFF
} horo_code;

typedef struct horo_status horo_status;

/* All of these take NULL, which is success. */
horo_code horo_status_code(const horo_status* status);
/* "peer-lost: operation 7 (allreduce) failed: rank 2 is gone (rank 2: killed); ..." Lives as long as the status. */
const char* horo_status_message(const horo_status* status);
/* Writes up to `capacity` lost ranks; returns how many there are. */
size_t horo_status_lost(const horo_status* status, int* ranks, size_t capacity);
/* Number of the operation in its group; 0 when the status belongs to none. */
uint64_t horo_status_operation(const horo_status* status);
/* 0 when a failed in-place call may have overwritten the caller's memory. */
int horo_status_contents_intact(const horo_status* status);
void horo_status_free(horo_status* status);

/* What was wrong with this thread's last call that returns no status and got a null handle: "invalid-argument:
 * horo_engine_rank: the engine is null". Empty when there was none; lives until the next such call. */
const char* horo_last_error(void);

/* "horo 0.1.0"; "peer-lost". */
const char* horo_version(void);
const char* horo_code_name(horo_code code);

/* ---- Elements ---------------------------------------------------------------------------------------------------- */

typedef enum horo_dtype {
  HORO_U8 = 0,
  HORO_I8 = 1,
  HORO_U16 = 2,
  HORO_I16 = 3,
  HORO_U32 = 4,
  HORO_I32 = 5,
  HORO_U64 = 6,
  HORO_I64 = 7,
  HORO_F16 = 8,
  HORO_BF16 = 9,
  HORO_F32 = 10,
  HORO_F64 = 11,
  HORO_BOOL = 12,
  HORO_C64 = 13,
  HORO_C128 = 14,
  HORO_F8E4M3 = 15,             /* moved, never reduced */
  HORO_F8E5M2 = 16,             /* moved, never reduced */
  HORO_BYTE = 17,               /* moved, never reduced */
  HORO_DTYPE_WIDTH = 0x7FFFFFFF /* Never used: makes any other number an error of the call, not undefined in C++. */
} horo_dtype;

typedef enum horo_reduce_op {
  HORO_SUM = 0,
  HORO_AVERAGE = 1, /* integers truncate toward zero */
  HORO_MIN = 2,     /* NaN wins */
  HORO_MAX = 3,     /* NaN wins */
  HORO_PRODUCT = 4,
  HORO_AND = 5,
  HORO_OR = 6,
  HORO_XOR = 7,
  HORO_ADASUM = 8, /* of a named tensor's allreduce, floats only */
  HORO_REDUCE_OP_WIDTH = 0x7FFFFFFF
} horo_reduce_op;

size_t horo_dtype_size(horo_dtype dtype);

/* ---- Engine: this process's place in a job ------------------------------------------------------------------------
 */

typedef struct horo_engine horo_engine;
typedef struct horo_group horo_group;
typedef struct horo_request horo_request;

/* level: 0 trace, 1 debug, 2 info, 3 warning, 4 error. `line` has no newline and lives during the call. */
typedef void (*horo_log_sink)(void* context, int level, const char* line);

typedef struct horo_engine_options {
  size_t struct_size;
  int rank;                    /* -1: HORO_RANK */
  int size;                    /* -1: HORO_SIZE */
  const char* store;           /* host:port where the ranks meet. NULL: HORO_STORE */
  const char* key_file;        /* NULL: HORO_KEY_FILE or HORO_KEY_FD; without a key everything stays on loopback */
  const char* job;             /* NULL: HORO_JOB_ID */
  const char* const* settings; /* "HORO_X=value" strings that go before the environment, ended by NULL; may be NULL */
  horo_log_sink log_sink;      /* NULL: standard error */
  void* log_context;
  const void* key; /* the job's key itself, 32 bytes, which goes before any file. NULL: `key_file` */
  size_t key_bytes;
  const int* communicator; /* Fortran handle of the MPI communicator whose members are the job. NULL: all processes */
  const int* ranks;        /* those of the processes that are the job, in the order of their new ranks. NULL: all */
  size_t rank_count;
  const char* generation; /* of a job that grows: see door.h. NULL: the first, or that of the predecessor */
} horo_engine_options;

#define HORO_ENGINE_OPTIONS_INIT \
  { sizeof(horo_engine_options), -1, -1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, 0, NULL }

/* Where the ranks of a job meet, for programs that tell each other its address in their own way. `address` may end in
 * ":0"; without a key (NULL, 0) it must be on loopback. Serves until it is destroyed, which may be once a rank has
 * started. */
typedef struct horo_store horo_store;
horo_status* horo_store_serve(const char* address, const char* job, const void* key, size_t key_bytes,
                              horo_store** store);
const char* horo_store_address(const horo_store* store); /* host:port; lives as long as the store */
void horo_store_destroy(horo_store* store);

/* Joins the job and waits until all ranks have (at most HORO_TIMEOUT). With nothing set: a job of one rank. */
horo_status* horo_engine_start(const horo_engine_options* options, horo_engine** engine);
/* Says goodbye; everything under way ends with HORO_STOPPED. */
void horo_engine_shutdown(horo_engine* engine);
/* Shuts down and frees the engine, its world and its buffers. Groups and requests must be destroyed before. */
void horo_engine_destroy(horo_engine* engine);

int horo_engine_rank(const horo_engine* engine);
int horo_engine_size(const horo_engine* engine);
/* This rank's place among the ranks of its host, and how many there are. */
int horo_engine_local_rank(const horo_engine* engine);
int horo_engine_local_size(const horo_engine* engine);
/* Counts the changes of membership (UINT64_MAX for a null engine); and who is left. Writes up to `capacity` ranks,
 * returns how many there are. */
uint64_t horo_engine_epoch(const horo_engine* engine);
size_t horo_engine_members(const horo_engine* engine, int* ranks, size_t capacity);

/* Memory that peers on this host see: operations on it need no copy in, and an allreduce of what lies in such memory on
 * all ranks is written there by all. Between calls nobody else touches it. An operation in place on it that fails may
 * lose what was in it. Aligned to a page. */
horo_status* horo_buffer_allocate(horo_engine* engine, size_t bytes, void** memory);
void horo_buffer_free(horo_engine* engine, void* memory);
/* Announces memory that will be used often. Shared memory and sockets need nothing; a fabric with registered memory
 * will. */
horo_status* horo_memory_register(horo_engine* engine, void* memory, size_t bytes);
horo_status* horo_memory_unregister(horo_engine* engine, void* memory);

/* What was found of devices, and what is missing, in lines for people; valid until the thread's next call. 1 in *usable
 * when operations on devices can run. `settings` as in horo_engine_options; may be NULL. */
const char* horo_devices_describe(const char* const* settings, int* usable);

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

/* All ranks. Belongs to the engine. */
horo_group* horo_engine_world(horo_engine* engine);
/* Called by all of `ranks` (rising, this one included) in the same order; waits for them. */
horo_status* horo_group_create(horo_engine* engine, const int* ranks, size_t count, horo_group** group);
/* Not for the world. */
void horo_group_destroy(horo_group* group);
/* Ends the group here and, as soon as they hear of it, on the other members: what is under way and what comes later
 * fails with HORO_STOPPED and the words of `why`. */
horo_status* horo_group_give_up(horo_group* group, const char* why);
int horo_group_rank(const horo_group* group);
int horo_group_size(const horo_group* group);
/* "shm", "tcp", "none"; and the algorithm that ran last. */
const char* horo_group_transport(const horo_group* group);
const char* horo_group_algorithm(const horo_group* group);

/* ---- Operations -------------------------------------------------------------------------------------------------- */

typedef enum horo_kind {
  HORO_BARRIER = 0,
  HORO_ALLREDUCE = 1,
  HORO_REDUCE = 2,
  HORO_REDUCESCATTER = 3,
  HORO_ALLGATHER = 4,
  HORO_GATHER = 5,
  HORO_SCATTER = 6,
  HORO_BROADCAST = 7,
  HORO_ALLTOALL = 8,
  HORO_SENDRECV = 9,
  HORO_KIND_WIDTH = 0x7FFFFFFF
} horo_kind;

/* Counts are elements. `counts` and `receive_counts` have one entry per member.
 *
 *   kind           input                   output                  count   counts
 *   allreduce      count                   count                   yes
 *   reduce         count                   count at the root       yes
 *   broadcast      count at the root       count                   yes
 *   reducescatter  sum of counts           counts[rank]                    of every member
 *   allgather      counts[rank]            sum of counts                   of every member
 *   gather         counts[rank]            sum of counts at root           of every member
 *   scatter        sum of counts at root   counts[rank]                    of every member
 *   alltoall       sum of counts           sum of receive_counts           sent to every member
 *   sendrecv       count at the root       count at target         yes
 *   barrier
 *
 * All members of a group make the same calls in the same order; that they do is checked. */
typedef struct horo_operation {
  size_t struct_size;
  horo_kind kind;
  horo_dtype dtype;
  horo_reduce_op op;
  int root;   /* rank in the group */
  int target; /* of a sendrecv */
  uint64_t count;
  const uint64_t* counts;
  const uint64_t* receive_counts;
  double prescale;  /* 1: as they are */
  double postscale; /* 1: as they are */
  double timeout;   /* seconds; 0: none. An operation that runs into it ends the group on all ranks. */
  /* Where input and output are: -1 for the host's memory, or the number of a device; and the stream of the application
   * that writes and reads them. The operation begins after what was put into the stream until now. */
  int device;
  void* stream;
} horo_operation;

#define HORO_OPERATION_INIT \
  { sizeof(horo_operation), HORO_BARRIER, HORO_BYTE, HORO_SUM, 0, 0, 0, NULL, NULL, 1.0, 1.0, 0.0, -1, NULL }

/* Runs one operation and waits for it. `input` may be `output` (in place). */
horo_status* horo_group_run(horo_group* group, const horo_operation* operation, const void* input, void* output);

/* Called once, on a thread of the library. `status` may be NULL (success) and lives during the call. May submit further
 * operations; must not wait for one, destroy its group or engine, nor shut the engine down. */
typedef void (*horo_callback)(void* context, const horo_status* status);

/* Queues one operation. Input and output must stay valid until it is done. `callback` may be NULL. */
horo_status* horo_group_submit(horo_group* group, const horo_operation* operation, const void* input, void* output,
                               horo_callback callback, void* context, horo_request** request);
int horo_request_done(const horo_request* request);
/* Waits up to `timeout` seconds (negative: for ever) and returns the outcome; HORO_TIMEOUT when it is not done yet. */
horo_status* horo_request_wait(horo_request* request, double timeout);

/* For programs that answer signals between two calls, such as Ctrl-C in Python: the same waits, but they return
 * HORO_INTERRUPTED once a signal handler has run on the calling thread, however it was installed (SA_RESTART or not).
 * The operation is not touched by it: it goes on, its memory must stay valid, and its request is waited for again, or
 * dropped. A handler that ran just before the wait began is not seen; who must not miss one waits with a timeout and
 * looks for it in between. */
horo_status* horo_request_wait_interruptible(horo_request* request, double timeout);
/* As horo_group_run, on a thread of the library. Interrupted it leaves the rest in *request; otherwise that is NULL. */
horo_status* horo_group_run_interruptible(horo_group* group, const horo_operation* operation, const void* input,
                                          void* output, horo_request** request);
/* The operation goes on if it is not done. */
void horo_request_destroy(horo_request* request);

/* The common ones without a struct; equal counts on all ranks. */
horo_status* horo_allreduce(horo_group* group, const void* input, void* output, uint64_t count, horo_dtype dtype,
                            horo_reduce_op op);
horo_status* horo_broadcast(horo_group* group, void* memory, uint64_t count, horo_dtype dtype, int root);
horo_status* horo_allgather(horo_group* group, const void* input, void* output, uint64_t count, horo_dtype dtype);
horo_status* horo_reducescatter(horo_group* group, const void* input, void* output, uint64_t count, horo_dtype dtype,
                                horo_reduce_op op);
horo_status* horo_alltoall(horo_group* group, const void* input, void* output, uint64_t count, horo_dtype dtype);
horo_status* horo_barrier(horo_group* group);

/* ---- Runtime: named tensors in any order --------------------------------------------------------------------------
 *
 * On a group all members make the same calls in the same order. Here every rank hands in named tensors whenever it has
 * them, from any thread; the ranks agree on what is ready everywhere, run small tensors together, and hand the results
 * back. A process set is a set of ranks that does so independently of others; set 0 is all ranks.
 */

typedef struct horo_runtime horo_runtime;
typedef struct horo_handle horo_handle;
typedef struct horo_memory horo_memory;

typedef struct horo_runtime_options {
  size_t struct_size;
  const horo_engine_options* engine; /* NULL: everything from the environment */
  /* Process sets that exist from the start, the same on all ranks; they get the numbers 1, 2, ... */
  const int* const* set_ranks;
  const size_t* set_sizes;
  size_t set_count;
  /* A runtime of this process that was shut down: the same job is joined once more, with its key, by all ranks. With a
   * generation: one that still runs; see door.h. */
  const horo_runtime* predecessor;
} horo_runtime_options;

#define HORO_RUNTIME_OPTIONS_INIT \
  { sizeof(horo_runtime_options), NULL, NULL, NULL, 0, NULL }

/* As horo_engine_start. `options` may be NULL. */
horo_status* horo_runtime_start(const horo_runtime_options* options, horo_runtime** runtime);
/* Instead: this process will not join that job. Ranks that wait for it there end with HORO_PEER_LOST once all others
 * have come, now or later. For jobs that a program puts together itself: the options of the engine name the store. */
horo_status* horo_runtime_decline(const horo_runtime_options* options);
/* Says goodbye; everything under way ends with HORO_STOPPED. */
void horo_runtime_shutdown(horo_runtime* runtime);
/* Shuts down. Handles, and the results that they hold, outlive it. */
void horo_runtime_destroy(horo_runtime* runtime);

int horo_runtime_rank(const horo_runtime* runtime);
int horo_runtime_size(const horo_runtime* runtime);
/* This rank's place on its host; and among the ranks with the same place on theirs, one per host. */
int horo_runtime_local_rank(const horo_runtime* runtime);
int horo_runtime_local_size(const horo_runtime* runtime);
int horo_runtime_cross_rank(const horo_runtime* runtime);
int horo_runtime_cross_size(const horo_runtime* runtime);
/* 1 when all hosts have equally many ranks. */
int horo_runtime_is_homogeneous(const horo_runtime* runtime);

/* Counts up with every rank that is lost. */
uint64_t horo_runtime_epoch(const horo_runtime* runtime);
/* Goes on without the ranks that are lost, in place: no process restarts, nothing connects again (docs/elastic.md).
 * Called by all survivors, when their operations have failed with HORO_PEER_LOST; waits up to `timeout` seconds
 * (negative: for ever) for all of them. They are numbered anew, in the order of their ranks: rank, size and the places
 * on hosts change. Set 0 has all that are left; other process sets go on under their numbers if all their members are
 * left, and are over otherwise. Whoever is lost meanwhile is left out too. Without a loss the same ranks begin anew.
 *
 * HORO_TIMEOUT: a rank that is alive did not come. HORO_EVICTED: the others went on without this rank.
 * HORO_UNAVAILABLE: too many ranks are silent without being known to be dead, so that they may go on elsewhere. */
horo_status* horo_runtime_reform(horo_runtime* runtime, double timeout);

/* Where a result of unknown size goes: called on a thread of the library with the shape; NULL: no memory. */
typedef void* (*horo_allocate)(void* context, const int64_t* shape, size_t dimensions);

/* Everything but the memory, the splits, and the first extent of an allgather or alltoall is equal on all ranks.
 *
 *   kind           result
 *   allreduce      the shape of the input
 *   allgather      the rows of all members, one below the other
 *   broadcast      the shape of the root's tensor; other ranks need no input
 *   alltoall       the rows that the members sent to this one; splits: rows for each member, NULL for equal shares
 *   reducescatter  this member's share of the rows; the first members get the rows that are left over
 *   barrier        nothing */
typedef struct horo_tensor {
  size_t struct_size;
  const char* name; /* not in use by another tensor of the set that is under way */
  horo_kind kind;
  horo_dtype dtype;
  horo_reduce_op op;
  int root;         /* a rank of the job */
  double prescale;  /* 1: as they are */
  double postscale; /* 1: as they are */
  const int64_t* shape;
  size_t dimensions; /* 0: one element */
  const void* input;
  void* output;           /* may be the input. NULL: `allocate`, or the library's memory, which the handle owns */
  const uint64_t* splits; /* one per member of the set, or NULL */
  size_t split_count;
  horo_allocate allocate;
  void* allocate_context;
  /* Of an allreduce or broadcast: elements from one index of each dimension to the next, where that is not row by row;
   * without gaps (channels last, say). Input and output lie alike, and on all ranks. */
  const int64_t* strides; /* NULL: one row after the other */
  /* As in horo_operation. All ranks of the set give memory of the host, or all of devices; a rank uses one device in a
   * set. When the handle is done the result can be used by any stream. */
  int device;
  void* stream;
} horo_tensor;

#define HORO_TENSOR_INIT                                                                                           \
  {                                                                                                                \
    sizeof(horo_tensor), NULL, HORO_BARRIER, HORO_BYTE, HORO_SUM, 0, 1.0, 1.0, NULL, 0, NULL, NULL, NULL, 0, NULL, \
        NULL, NULL, -1, NULL                                                                                       \
  }

/* Hands in tensors; several are a group, of one kind, and become ready together. The call itself fails, and hands
 * nothing in, for what this rank can see: a name in use, a set it is not in, impossible arguments. Everything else is
 * the outcome of the handle. The memory must stay valid until then; the rest is copied. `callback` and `handle` may be
 * NULL. */
horo_status* horo_runtime_submit(horo_runtime* runtime, int set, const horo_tensor* tensors, size_t count,
                                 horo_callback callback, void* context, horo_handle** handle);
/* Hands in each tensor by itself. `handles` has room for one each: it is NULL for the first that is refused, which is
 * what the call fails with, and for those behind it; the ones before are under way. `waits`: this thread waits for them
 * next, and does all of the work then, until when nothing happens to them; 0: they go on as after horo_runtime_submit.
 */
horo_status* horo_runtime_submit_each(horo_runtime* runtime, int set, const horo_tensor* tensors, size_t count,
                                      int waits, horo_handle** handles);
/* Hands in and waits, without limit: the fastest way for small tensors, because this thread does all of it. Fails as
 * horo_runtime_submit and horo_handle_wait do. `handle` may be NULL; it is set when tensors were handed in. */
horo_status* horo_runtime_run(horo_runtime* runtime, int set, const horo_tensor* tensors, size_t count,
                              horo_handle** handle);
/* The same, but waits up to `timeout` seconds: HORO_TIMEOUT when it is not done yet. It goes on then, and its handle is
 * waited for. `handle` must not be NULL. */
horo_status* horo_runtime_run_for(horo_runtime* runtime, int set, const horo_tensor* tensors, size_t count,
                                  double timeout, horo_handle** handle);
/* This rank has no more data: it gives the identity of each reduction until all ranks of the set have joined. The
 * answer of the handle is the last rank that joined. */
horo_status* horo_runtime_join(horo_runtime* runtime, int set, horo_handle** handle);

/* 0 or 1; -1 in a forked child. */
int horo_handle_done(const horo_handle* handle);
/* Waits up to `timeout` seconds (negative: for ever) and returns the outcome; HORO_TIMEOUT when it is not done yet. */
horo_status* horo_handle_wait(horo_handle* handle, double timeout);
/* Of a join: the last rank. */
int64_t horo_handle_answer(const horo_handle* handle);

/* Lives as long as the handle. */
typedef struct horo_result {
  size_t struct_size;
  void* memory;
  const int64_t* shape;
  size_t dimensions;
  const uint64_t* received_splits; /* of an alltoall or allgather: rows of each member */
  size_t split_count;
} horo_result;

#define HORO_RESULT_INIT \
  { sizeof(horo_result), NULL, NULL, 0, NULL, 0 }

/* What came out of tensor `index` of a handle that has succeeded. */
horo_status* horo_handle_result(const horo_handle* handle, size_t index, horo_result* result);
/* The operation goes on if it is not done. */
void horo_handle_destroy(horo_handle* handle);

/* Memory that peers on this host see: tensors that lie in it are reduced where they are, without a copy in, whether or
 * not the other ranks' lie in such memory, and fastest if they do. A reduction in place that fails may lose what was in
 * it. Aligned to a page. It stays valid after the runtime's shutdown, until it is destroyed, which must not happen
 * while an operation uses it.
 */
horo_status* horo_runtime_allocate(horo_runtime* runtime, size_t bytes, horo_memory** memory);
void* horo_memory_address(const horo_memory* memory);
void horo_memory_destroy(horo_memory* memory);

/* Process sets come and go while others work. Called by all ranks of the job, in the same order; wait for them. */
horo_status* horo_runtime_add_set(horo_runtime* runtime, const int* ranks, size_t count, int* set);
horo_status* horo_runtime_remove_set(horo_runtime* runtime, int set);
/* Both write up to `capacity` numbers. */
size_t horo_runtime_set_numbers(const horo_runtime* runtime, int* numbers, size_t capacity);
horo_status* horo_runtime_set_ranks(const horo_runtime* runtime, int set, int* ranks, size_t capacity, size_t* count);

/* An ordered group of some ranks on the runtime's engine, beside its process sets, as horo_group_create makes them:
 * called by all of `ranks` (rising, this one included) in the same order; waits for them. Ends with
 * horo_group_destroy(). It keeps the runtime's memory alive, and fails with HORO_STOPPED after its shutdown. */
horo_status* horo_runtime_group(horo_runtime* runtime, const int* ranks, size_t count, horo_group** group);

/* ---- The runtime that a process shares ----------------------------------------------------------------------------
 *
 * Code that a framework calls, such as the kernels of an operation in a graph, has no handle to hand in with. Who
 * starts the runtime of a process (in Python: init()) publishes it for such code.
 */

/* From now on `runtime` is the process's; NULL: there is none. Its shutdown and destruction take it back. */
void horo_runtime_publish(horo_runtime* runtime);
/* The published one, or NULL: there is none, or this is a forked child. It stays valid until it is released, even when
 * its owner destroys it; what is handed in fails with HORO_STOPPED then. */
horo_runtime* horo_runtime_acquire(void);
void horo_runtime_release(horo_runtime* runtime);

/* ---- Knobs ------------------------------------------------------------------------------------------------------- */

/* Every HORO_* variable, as text for a terminal or as Markdown. Lives as long as the program. */
const char* horo_knobs_help(void);
const char* horo_knobs_markdown(void);

#ifdef __cplusplus
}
#endif

#endif /* HORO_API_HORO_H_ */
