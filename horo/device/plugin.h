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

#define HORO_DEVICE_VERSION 1
#define HORO_DEVICE_HANDLE_BYTES 64

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
} horo_device_plugin;

#define HORO_DEVICE_ENTRY "horo_device_plugin_table"

#ifdef __cplusplus
}
#endif
#endif
