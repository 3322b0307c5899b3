/* horo: what a runtime does, to look at: timelines and metrics. Part of the C interface of libhoro. */
#ifndef HORO_API_OBSERVE_H_
#define HORO_API_OBSERVE_H_

#include "horo/api/horo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes what the tensors of this rank go through to a file, as a Chrome trace that can be read at any time
 * (docs/timeline.md); from now on, and until the timeline is stopped or the runtime ends. `path` is rank 0's file; rank
 * 3 turns "t.json" into "t.rank3.json". Another timeline of this rank is finished first. */
horo_status* horo_runtime_start_timeline(horo_runtime* runtime, const char* path, int mark_cycles);
/* The file is complete when this returns. Nothing happens when none is written. */
horo_status* horo_runtime_stop_timeline(horo_runtime* runtime);

/* How long things took: buckets[k] counts what took at most 2^k microseconds and more than buckets[k-1] does, the last
 * one the rest. */
#define HORO_BUCKETS 28
typedef struct horo_times {
  uint64_t count;
  double sum; /* seconds */
  uint64_t buckets[HORO_BUCKETS];
} horo_times;

/* What this rank has done with one kind of operation in one process set since it started (docs/metrics.md). */
typedef struct horo_operation_metrics {
  size_t struct_size;
  uint64_t handed_in; /* tensors */
  uint64_t tensors;   /* done with success */
  uint64_t errors;    /* tensors that failed */
  uint64_t bytes;     /* of the tensors done with success */
  uint64_t batches;   /* operations run; each runs one tensor or more */
  horo_times latency; /* from the hand-in to the result */
  horo_times wait;    /* from the hand-in until all ranks had handed it in */
} horo_operation_metrics;

/* Of a process set as a whole. */
typedef struct horo_set_metrics {
  size_t struct_size;
  uint64_t announced_by_number; /* tensors and groups that the cache knew */
  uint64_t announced_in_full;
  uint64_t messages_sent; /* of the negotiation */
  uint64_t messages_received;
  uint64_t stalls; /* reports about tensors that some ranks have not handed in */
} horo_set_metrics;

/* Zeros for what never was. `kind` is one of those that a horo_tensor can have. Both can be read after the shutdown. */
horo_status* horo_runtime_operation_metrics(const horo_runtime* runtime, int set, horo_kind kind,
                                            horo_operation_metrics* metrics);
horo_status* horo_runtime_set_metrics(const horo_runtime* runtime, int set, horo_set_metrics* metrics);
/* All of it, in the format of Prometheus. Writes up to `capacity` bytes, with a zero at the end; returns how many there
 * are without it. */
size_t horo_runtime_metrics_text(const horo_runtime* runtime, char* text, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif /* HORO_API_OBSERVE_H_ */
