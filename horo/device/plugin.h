/* What a shared object that knows a kind of device offers to horo, in C: neither side sees the other's C++.
 *
 * A plugin exports const horo_device_plugin* horo_device_plugin_table(void), which returns a table that stays valid.
 * Functions that return an int return 0, or a code of horo.h, and then last_error() of the same thread has words. All
 * are thread-safe; one queue is used by one thread at a time. The driver's current context of the calling thread is
 * left as it was. */
#ifndef HORO_DEVICE_PLUGIN_H
#define HORO_DEVICE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HORO_DEVICE_VERSION 4
#define HORO_DEVICE_HANDLE_BYTES 64
#define HORO_DEVICE_FABRIC_ID_BYTES 128
/* Returned where something is still under way. */
#define HORO_DEVICE_PENDING (-1)

typedef struct horo_device_copy {
  void* to;
  const void* from;
  uint64_t bytes;
} horo_device_copy;

/* to[i] = scaled(from[0][i] op from[1][i] op ...), in the order of the list and with the bits of the host's kernels.
 * dtype and op are those of horo.h. Each input is multiplied by `before` and rounded first. `to` may be an input. */
typedef struct horo_device_reduction {
  int dtype;
  int op;
  uint64_t count;
  const void* const* from;
  size_t sources;
  void* to;
  void* also; /* the result once more, or NULL */
  double before;
  double factor;
  int64_t divisor;
} horo_device_reduction;

/* An array whose elements become another type: f32 or f64 from and to f16 and bf16, rounded to nearest with the bits of
 * the host's kernels; f32 from and to i8. `largest` is for i8, on the device: the absolute value that 127 stands for.
 * It is found where i8 is made, for all arrays together that name the same place, and used where i8 is read. What is
 * not finite there makes all of the array 0 as i8, and NaN as f32. */
typedef struct horo_device_cast {
  void* to;
  const void* from;
  uint64_t count;
  float* largest;
} horo_device_cast;

typedef struct horo_device_cast_terms {
  int to; /* dtypes of horo.h */
  int from;
  int add;      /* from i8 alone: 1 to add to what is there */
  float factor; /* the same: multiplies what is there in the end */
} horo_device_cast_terms;

/* Which device it is, under whatever number a process sees it: two processes have equal ones if they use one device. */
typedef struct horo_device_identity {
  unsigned char uuid[16];
  char address[16]; /* "0000:3b:00.0", for people */
  int in_turns;     /* 1: it serves one process at a time, and changing to the next one takes long */
} horo_device_identity;

/* An operation between devices. The kinds have the numbers that they have on the wire; dtype and op are those of
 * horo.h. Counts are elements, as in the table of collective::Operation. Nothing is scaled; an average is a division.
 */
enum {
  HORO_DEVICE_ALLREDUCE = 1,
  HORO_DEVICE_REDUCE = 2,
  HORO_DEVICE_REDUCESCATTER = 3,
  HORO_DEVICE_ALLGATHER = 4,
  HORO_DEVICE_GATHER = 5,
  HORO_DEVICE_SCATTER = 6,
  HORO_DEVICE_BROADCAST = 7,
  HORO_DEVICE_ALLTOALL = 8,
  HORO_DEVICE_SENDRECV = 9
};
typedef struct horo_device_collective {
  int kind;
  int dtype;
  int op;
  int root;
  int target;
  uint64_t count;
  const uint64_t* counts;
  const uint64_t* receive_counts;
  const void* in;
  void* out; /* may be `in` for allreduce, reduce and broadcast; must not overlap it otherwise */
} horo_device_collective;

typedef struct horo_device_plugin {
  size_t struct_size;
  int version; /* HORO_DEVICE_VERSION */
  const char* name;
  const char* (*last_error)(void);
  /* Lines for people about what was found and what is missing. 0 when operations can run. */
  int (*describe)(char* text, size_t capacity);
  /* Where compiled kernels are kept; "" for nowhere. Before the first use. */
  void (*set_cache)(const char* folder);
  int (*count)(int* devices);

  /* Memory of a device, which other processes can map when it was exported; and memory of the host that the device
   * reads and writes fast. */
  int (*allocate)(int device, uint64_t bytes, void** memory);
  void (*free)(int device, void* memory);
  int (*export_memory)(int device, void* memory, unsigned char handle[HORO_DEVICE_HANDLE_BYTES]);
  int (*import_memory)(int device, const unsigned char handle[HORO_DEVICE_HANDLE_BYTES], void** memory);
  void (*close_memory)(int device, void* memory);
  int (*allocate_host)(int device, uint64_t bytes, void** memory);
  void (*free_host)(int device, void* memory);

  /* Work in order: what is put into a queue runs after all that was put there before. */
  int (*open_queue)(int device, void** queue);
  void (*close_queue)(void* queue);
  int (*queue_wait)(void* queue, void* event);
  /* Pieces within devices' memory, in one launch; and one piece between host and device. */
  int (*queue_copy)(void* queue, const horo_device_copy* pieces, size_t count);
  int (*queue_transfer)(void* queue, void* to, const void* from, uint64_t bytes);
  int (*queue_reduce)(void* queue, const horo_device_reduction* reduction);
  /* Until all of it has run. A thread that may spin looks for a while before it sleeps. */
  int (*queue_finish)(void* queue, int may_spin);

  /* What was put into a stream of the application until now. Refused while the stream is captured. */
  int (*record)(int device, void* stream, void** event);
  void (*forget)(void* event);

  int (*identify)(int device, horo_device_identity* identity);

  /* The fabric: a library of the maker's that operates between devices, one of a process each. The functions may be
   * NULL, all of them; fabric_version opens the library and says what is missing. Nothing here waits: what returns
   * HORO_DEVICE_PENDING goes on by itself, and nothing else is asked of that communicator until poll_communicator
   * returns 0 (or a code: then it has failed, and is good for nothing but to be aborted). */
  int (*fabric_version)(int* version);
  /* Whether it has this reduction: the same for all who have the same version. */
  int (*fabric_reduces)(int dtype, int op);
  int (*fabric_id)(unsigned char id[HORO_DEVICE_FABRIC_ID_BYTES]);
  int (*open_communicator)(int device, const unsigned char id[HORO_DEVICE_FABRIC_ID_BYTES], int members, int member,
                           void** communicator);
  int (*poll_communicator)(void* communicator);
  int (*queue_collective)(void* queue, void* communicator, const horo_device_collective* collective);
  /* After a failure `abort` must be given; what runs on the device then ends. Gives up waiting after a moment. */
  void (*close_communicator)(void* communicator, int abort);

  /* Like queue_finish, in two parts: all that is in the queue now; and 0 when it has run, or HORO_DEVICE_PENDING. */
  int (*queue_mark)(void* queue);
  int (*queue_poll)(void* queue);
  /* Or until it has run, as in queue_finish. */
  int (*queue_await)(void* queue, int may_spin);

  /* In a stream of the application: hundreds of arrays in one launch, and two more where largest values are found. */
  int (*cast)(int device, void* stream, const horo_device_cast_terms* terms, const horo_device_cast* arrays,
              size_t count);
  /* Until all of the process's work on the device has run. */
  int (*synchronize)(int device);
  /* Of record(): 0 when what was put into the stream has run, or HORO_DEVICE_PENDING. */
  int (*event_poll)(void* event);

  /* What is in the queue now, as an event like those of record(). And: what is put into a stream of the application
   * later waits for an event. */
  int (*queue_record)(void* queue, void** event);
  int (*stream_wait)(int device, void* stream, void* event);

  /* Words in memory of allocate_host, by which a queue and the host tell each other how far they are without the
   * driver. The functions below are NULL, all of them, where a device has no such thing. */

  /* The word becomes `value` when all that is in the queue has run. */
  int (*queue_signal)(void* queue, uint32_t* word, uint32_t value);
  /* What comes later waits until the word is `value`, or has gone beyond: (int32_t)(word - value) >= 0. */
  int (*queue_hold)(void* queue, const uint32_t* word, uint32_t value);
  /* Copies and reductions that come later do nothing if the word is not 0 by the end of the hold before them. NULL:
   * they always run. */
  int (*queue_guard)(void* queue, const uint32_t* word);
  /* Whether this process may hold queues of the device: one group at a time. 1: until release_holds(). */
  int (*may_hold)(int device);
  void (*release_holds)(int device);
} horo_device_plugin;

#define HORO_DEVICE_ENTRY "horo_device_plugin_table"

#ifdef __cplusplus
}
#endif
#endif
