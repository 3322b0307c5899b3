/* The gradients of a model, reduced in buckets while the backward pass still runs. Part of the C interface of libhoro;
 * docs/ddp.md tells how it works.
 *
 * A reducer knows a model's parameters by their numbers, 0 to count - 1, the same on all ranks. It packs gradients into
 * buckets in memory that the ranks of a host share, and hands a bucket to its group as soon as the bucket is full and
 * all before it were handed in, so that all ranks run the same operations in the same order, whatever the order in
 * which their gradients come.
 *
 *   horo_reducer_create(group, &options, &reducer);
 *   for each step:
 *     horo_reducer_prepare_forward(reducer, &rebuilt);                 // rebuilt: ask for buckets and slots again
 *     ... forward ...
 *     horo_reducer_prepare_backward(reducer, 1, NULL, NULL, 0);        // 0 instead of 1: gradients only add up here
 *     ... backward, and for each gradient that is complete:
 *       horo_reducer_ready(reducer, parameter, gradient, &events);     // never waits for other ranks
 *     horo_reducer_finish(reducer, -1, NULL, outcomes);                // waits; the gradients are averages now
 *
 * Calls on one reducer may come from several threads, but the steps of one iteration are in this order. The group is
 * used by nobody else while an iteration is under way, except by hooks of the caller (horo_reducer_take).
 *
 * Memory. Gradients are dense, lie as their parameter's strides say, and can be read by the host. A gradient given to
 * horo_reducer_ready() of less than 1 MiB is read before that call returns (with a static graph: until the end of the
 * iteration, in the first one), and written by horo_reducer_finish() unless `outputs` says otherwise. Larger ones may
 * be reduced where they lie, and must stay valid and untouched until horo_reducer_finish(): without views, find_unused,
 * sparse gradients and hooks. A group has them in operations of their own then.
 *
 * Failure. When an iteration fails (a member is lost, a hook failed, a parameter got no gradient) horo_reducer_finish()
 * fails on every member with the same words, gradients of this rank are what they were, averages, or lost (views),
 * and the reducer is ready for the next iteration, which works if the group lives. */
#ifndef HORO_API_DDP_H_
#define HORO_API_DDP_H_

#include "horo/api/horo.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct horo_reducer horo_reducer;

typedef struct horo_parameter {
  size_t struct_size;
  const char* name; /* for messages; equal on all ranks */
  horo_dtype dtype;
  const int64_t* shape;
  size_t dimensions;      /* 0: one element */
  const int64_t* strides; /* NULL: one row after the other. Only compared with the other ranks' */
  int device;             /* any number: parameters with different ones are never in one bucket */
  int sparse; /* 1: its gradient is sparse: a bucket of its own, which the caller reduces (horo_reducer_take) */
} horo_parameter;

#define HORO_PARAMETER_INIT \
  { sizeof(horo_parameter), NULL, HORO_F32, NULL, 0, NULL, 0, 0 }

/* How buckets are closed: parameters of one dtype and device are put into one bucket until it holds as many bytes as
 * its limit or more; then the next of that dtype and device takes the next limit, and the last limit is for all that
 * follow. Until the buckets are rebuilt they go by the parameters' numbers, highest first; rebuilt, in the order in
 * which rank 0's gradients came in the first iteration (the second, with a static graph). */
typedef struct horo_reducer_options {
  size_t struct_size;
  const horo_parameter* parameters;
  size_t parameter_count;
  const uint64_t* first_limits; /* bytes; none: one bucket for each dtype and device */
  size_t first_limit_count;
  const uint64_t* rebuilt_limits; /* none: buckets are never rebuilt */
  size_t rebuilt_limit_count;
  int find_unused;       /* 1: parameters may get no gradient; horo_reducer_prepare_backward() names them. No rebuild */
  int static_graph;      /* 1: every iteration uses the same parameters, equally often */
  int views;             /* 1: gradients become views of the buckets: nothing is copied out */
  int skip_unused;       /* 1: buckets of which no parameter is used are not reduced; equal on all ranks */
  int small_bucket_last; /* 1: rebuilt buckets take their limits from the end of the order */
} horo_reducer_options;

#define HORO_REDUCER_OPTIONS_INIT \
  { sizeof(horo_reducer_options), NULL, 0, NULL, 0, NULL, 0, 0, 0, 0, 0, 0 }

/* Called by all members of `group`; waits for them. Compares the parameters of all ranks (number, names, dtypes,
 * shapes, strides) and the options: HORO_MISMATCH on every rank names the first that differs, and both values. The
 * group must outlive the reducer. */
horo_status* horo_reducer_create(horo_group* group, const horo_reducer_options* options, horo_reducer** reducer);
/* With operations under way the group is given up: the other members' next call fails. Memory of buckets that was asked
 * for (horo_reducer_memory) stays valid. */
void horo_reducer_destroy(horo_reducer* reducer);

/* ---- Buckets: constant until horo_reducer_prepare_forward() says that they were rebuilt ----------------------------
 */

typedef struct horo_bucket {
  size_t struct_size;
  void* memory; /* its elements one after the other, without gaps; NULL for a sparse one */
  uint64_t bytes;
  horo_dtype dtype;
  const size_t* parameters; /* in the order in which they lie there */
  size_t parameter_count;
  int sparse;
} horo_bucket;

#define HORO_BUCKET_INIT \
  { sizeof(horo_bucket), NULL, 0, HORO_BYTE, NULL, 0, 0 }

/* -1 for a null reducer. */
int64_t horo_reducer_bucket_count(const horo_reducer* reducer);
/* `parameters` lives until the next rebuild. */
horo_status* horo_reducer_bucket(const horo_reducer* reducer, size_t bucket, horo_bucket* out);
/* In which bucket a parameter lies, and how many bytes from its beginning. */
horo_status* horo_reducer_slot(const horo_reducer* reducer, size_t parameter, size_t* bucket, uint64_t* offset);
/* Keeps a bucket's memory valid until horo_memory_destroy(), also beyond a rebuild and the end of the reducer. Not for
 * sparse buckets. */
horo_status* horo_reducer_memory(const horo_reducer* reducer, size_t bucket, horo_memory** memory);

/* ---- One iteration -------------------------------------------------------------------------------------------------
 */

/* Rebuilds the buckets when that is due, once, with all ranks; *rebuilt is 1 then, else 0. Must not be called while an
 * iteration is under way: one that was not finished fails here, on all ranks. */
horo_status* horo_reducer_prepare_forward(horo_reducer* reducer, int* rebuilt);

/* After the forward pass. `synchronize` = 0: the next backward pass only adds up gradients; what it uses still counts
 * as used. `unused` (with find_unused): parameters that the backward pass will not reach, `gradients` what they hold
 * from passes before (NULL for each that has none; NULL: none has any), which is reduced like others, and must stay
 * valid. An iteration that was prepared but got no gradient yet is prepared anew. */
horo_status* horo_reducer_prepare_backward(horo_reducer* reducer, int synchronize, const size_t* unused,
                                           const void* const* gradients, size_t count);

/* What a call has brought about, as bits. */
typedef enum horo_ready_event {
  HORO_READY_TAKE = 1,         /* a bucket waits for the caller: horo_reducer_take() */
  HORO_READY_ALL_LAUNCHED = 2, /* nothing is missing any more: horo_reducer_finish() can be called */
  HORO_READY_TAKEN = 4,        /* horo_reducer_ready(): the gradient was copied to its bucket, or lies there */
  HORO_READY_EVENT_WIDTH = 0x7FFFFFFF
} horo_ready_event;

/* The gradient of one parameter is complete. NULL: it has none (zeros). Where it lies in the bucket already (views)
 * nothing is copied. Nothing happens outside of iterations that synchronize, but after one: HORO_INVALID_ARGUMENT. A
 * parameter that is ready twice is an error too; both name it. With a static graph a call counts as one of several:
 * in the first iteration nothing is sent before horo_reducer_finish(), later a gradient is complete at the last of as
 * many calls as there were in the first. `events` may be NULL. */
horo_status* horo_reducer_ready(horo_reducer* reducer, size_t parameter, const void* gradient, unsigned* events);
/* All parameters that are not ready yet are, without a gradient: for a rank that has no more data and helps the others.
 */
horo_status* horo_reducer_ready_all(horo_reducer* reducer, unsigned* events);

/* The backward pass has ended: in the first iteration of a static graph all gradients are taken now. Part of
 * horo_reducer_finish(); a call of its own where buckets are the caller's. */
horo_status* horo_reducer_end_backward(horo_reducer* reducer, unsigned* events);

/* Buckets that the caller reduces: sparse ones, and all with the hook HORO_HOOK_CALLER. They come in order and one at a
 * time: none follows, and no bucket behind it is handed in, before horo_reducer_launched(). *bucket is -1 where none
 * waits. What the caller does in between may use the group, in the same order on all ranks, and need not wait. */
horo_status* horo_reducer_take(horo_reducer* reducer, int64_t* bucket);
horo_status* horo_reducer_launched(horo_reducer* reducer, size_t bucket, unsigned* events);
/* Before horo_reducer_finish(): the reduced elements of a bucket that was taken, which are copied; NULL: they are where
 * the bucket's memory is, or the bucket is sparse. */
horo_status* horo_reducer_deliver(horo_reducer* reducer, size_t bucket, const void* result);

/* 1 when horo_reducer_finish() would not miss anything; 0; -1 for a null reducer. */
int horo_reducer_all_launched(const horo_reducer* reducer);
/* 1 when a gradient came since the iteration was prepared, and it was not finished yet; 0; -1 for a null reducer. */
int horo_reducer_under_way(const horo_reducer* reducer);

/* The caller cannot go on with this iteration (a hook of its own failed): it ends with these words on all ranks, in
 * horo_reducer_finish(), which is to be called next. The same holds after horo_reducer_ready() failed in an iteration.
 * `code`: HORO_INVALID_ARGUMENT, or whatever all ranks are to get; HORO_MISMATCH where an operation of the caller's
 * only failed because another rank had failed before, whose words are preferred then. */
horo_status* horo_reducer_fail(horo_reducer* reducer, horo_code code, const char* why);

/* What horo_reducer_finish() made of a parameter. */
typedef enum horo_outcome {
  HORO_REDUCED = 0,   /* its gradient is the average now, where it was, or in the bucket (views) */
  HORO_UNTOUCHED = 1, /* no rank used it: its gradient is as before */
  HORO_WITHOUT_PLACE =
      2, /* reduced, but it has no gradient here: the average lies in the bucket, until the next iteration */
  HORO_BY_CALLER = 3, /* in a sparse bucket */
  HORO_OUTCOME_WIDTH = 0x7FFFFFFF
} horo_outcome;

/* Waits for all buckets and copies the results out, bucket by bucket. Fails on all ranks when a parameter is missing on
 * one. `timeout` in seconds, negative: for ever. HORO_TIMEOUT and HORO_INTERRUPTED (a signal handler ran on this
 * thread) leave everything as it is: call it again. Any other end, which has another code, ends the iteration.
 * `outputs`: one address for each parameter where its gradient is now, NULL for those that have none. NULL: where they
 * were given to horo_reducer_ready(). Not looked at with views. `outcomes`: NULL, or one for each parameter. */
horo_status* horo_reducer_finish(horo_reducer* reducer, double timeout, void* const* outputs, horo_outcome* outcomes);

/* ---- Settings: the same on all ranks, between two iterations --------------------------------------------------------
 */

typedef enum horo_hook_kind {
  HORO_HOOK_ALLREDUCE = 0, /* the average */
  HORO_HOOK_FP16 = 1,      /* the average, of f16 on the way: half the bytes of f32 */
  HORO_HOOK_BF16 = 2,      /* of bf16 */
  HORO_HOOK_INT8 = 3,      /* of i8 and one f32 for each tensor: a quarter of f32's bytes */
  HORO_HOOK_POWERSGD = 4,  /* matrices as products of two thin ones */
  HORO_HOOK_CALLER = 5,    /* every bucket is handed to the caller, its gradients as they are, not divided */
  HORO_HOOK_KIND_WIDTH = 0x7FFFFFFF
} horo_hook_kind;

/* Buckets of a dtype that a hook cannot shorten (f16 for FP16 and BF16, all but f32 for INT8 and POWERSGD) are reduced
 * as with HORO_HOOK_ALLREDUCE. The rest is for POWERSGD only. */
typedef struct horo_hook_options {
  size_t struct_size;
  horo_hook_kind kind;
  int rank;                    /* columns of the thin matrices */
  uint64_t start_iteration;    /* so many iterations are reduced exactly first */
  double min_compression_rate; /* tensors that would not become so much shorter are reduced exactly */
  int error_feedback;          /* what was left out is added to the next iteration's gradient */
  int warm_start;              /* begins with the last iteration's result */
  uint64_t seed;
} horo_hook_options;

#define HORO_HOOK_OPTIONS_INIT \
  { sizeof(horo_hook_options), HORO_HOOK_ALLREDUCE, 1, 1000, 2.0, 1, 1, 0 }

/* What PowerSGD has kept (errors, thin matrices) is forgotten. */
horo_status* horo_reducer_set_hook(horo_reducer* reducer, const horo_hook_options* options);
/* What the sums of the built-in hooks are divided by, from the next iteration on; 0: by the number of members, which is
 * the default. */
horo_status* horo_reducer_set_divisor(horo_reducer* reducer, double divisor);
/* Times are taken in the first 10 iterations, then in every `iterations`th; 100 is the default. */
horo_status* horo_reducer_set_sample_rate(horo_reducer* reducer, uint64_t iterations);
/* Iterations have the same parameters from now on: what static_graph = 1 at the creation does. Before the first. */
horo_status* horo_reducer_set_static_graph(horo_reducer* reducer);

/* ---- Statistics ----------------------------------------------------------------------------------------------------
 */

/* Seconds on the monotonic clock. Of the last iteration in which times were taken. */
typedef struct horo_reducer_times {
  double forward_start;       /* horo_reducer_prepare_forward() */
  double backward_start;      /* horo_reducer_prepare_backward() */
  double communication_start; /* the first bucket was handed in */
  double backward_end;        /* horo_reducer_finish() was called */
  double communication_end;   /* the last bucket was reduced */
} horo_reducer_times;

typedef struct horo_reduction_statistics {
  size_t struct_size;
  uint64_t iterations;      /* that were finished with success */
  uint64_t failures;        /* that were not */
  uint64_t buckets_reduced; /* in all iterations */
  uint64_t buckets_skipped; /* by skip_unused */
  uint64_t gradient_bytes;  /* of the buckets reduced */
  uint64_t sent_bytes;   /* what was handed to operations for them: less than gradient_bytes with hooks that shorten */
  uint64_t unused_bytes; /* of the parameters that no rank used in the last iteration */
  int rebuilt;           /* 1: the buckets have been rebuilt */
  uint64_t samples;      /* iterations in which times were taken */
  horo_reducer_times last;
  /* Mean seconds over the samples. Overlap: from the first bucket's hand-in to the end of the backward pass. */
  double mean_forward, mean_backward, mean_communication, mean_overlap;
} horo_reduction_statistics;

#define HORO_REDUCTION_STATISTICS_INIT \
  { sizeof(horo_reduction_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0, 0}, 0, 0, 0, 0 }

horo_status* horo_reducer_statistics(const horo_reducer* reducer, horo_reduction_statistics* statistics);
/* The order in which the gradients of the last finished iteration became complete. Writes up to `capacity` numbers,
 * returns how many there are. */
size_t horo_reducer_ready_order(const horo_reducer* reducer, size_t* parameters, size_t capacity);

/* Copies a gradient to where it is reduced later, as the reducer does: a large one past the cache, as nothing of it
 * would be there then. The two must not overlap. */
void horo_pack(void* to, const void* from, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* HORO_API_DDP_H_ */
