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
