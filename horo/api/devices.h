/* Memory of devices that ranks of a host share, and casts: what front ends need beside operations (docs/gpu.md). */
#ifndef HORO_API_DEVICES_H_
#define HORO_API_DEVICES_H_

#include "horo/api/horo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of a device that the other ranks of this host can map: operations on it that go the direct way need no copies
 * in and out. Otherwise as horo_runtime_allocate. What is destroyed is used again for what is allocated later; the
 * device gets all of it back when the engine has ended and the last of its memory is destroyed. */
horo_status* horo_group_allocate_on(horo_group* group, int device, size_t bytes, horo_memory** memory);
horo_status* horo_runtime_allocate_on(horo_runtime* runtime, int device, size_t bytes, horo_memory** memory);

/* For results that are used on the device next: what is put into `stream` later comes after the operation, and the
 * thread waits only until all of it is in queues of the device (or it is over). That is when the other ranks have come,
 * where they share a GPU or have one each and NCCL; elsewhere these are horo_request_wait_interruptible and
 * horo_handle_wait, and so they are for memory of the host.
 * An operation that fails later ends its group, or its process set: the next call of it says so. What comes after it in
 * the stream goes on then; an output that was the input has its contents still, or they are lost, as
 * horo_request_wait and horo_handle_wait say. */
horo_status* horo_request_wait_in_stream(horo_request* request, void* stream, double timeout);
horo_status* horo_handle_wait_in_stream(horo_handle* handle, void* stream, double timeout);

/* An array whose elements become another type: f32 or f64 from and to f16 and bf16, rounded to nearest; f32 from and to
 * i8. `largest` is for i8 alone, and lies where the arrays do: the absolute value that 127 stands for. It is found
 * where i8 is made, for all arrays together that name the same place, and used where i8 is read. What is not finite
 * there makes all of the array 0 as i8, and NaN as f32. */
typedef struct horo_cast_array {
  void* to;
  const void* from;
  uint64_t count;
  float* largest;
} horo_cast_array;

typedef struct horo_cast {
  size_t struct_size;
  horo_dtype to;
  horo_dtype from;
  int add;      /* from i8: 1 to add to what is there */
  float factor; /* from i8: multiplies the result */
  /* As of an operation. On a device it is in the stream when the call returns. */
  int device;
  void* stream;
} horo_cast;

#define HORO_CAST_INIT \
  { sizeof(horo_cast), HORO_F16, HORO_F32, 0, 1.0f, -1, NULL }

/* Hundreds of arrays at once. The group says whose devices they are, and nobody else takes part. */
horo_status* horo_group_cast(horo_group* group, const horo_cast* cast, const horo_cast_array* arrays, size_t count);

#ifdef __cplusplus
}
#endif

#endif /* HORO_API_DEVICES_H_ */
