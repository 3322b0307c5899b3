// TensorFlow's C interface for operations and kernels, declared anew and looked up in the TensorFlow that the process
// has loaded: building needs no TensorFlow, and one build serves all its versions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "horo/base/status.h"

struct TF_AsyncOpKernelDoneCallback;
struct TF_KernelBuilder;
struct TF_OpDefinitionBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_ShapeHandle;
struct TF_ShapeInferenceContext;
struct TF_Status;
struct TF_Tensor;
// Enumerations there; numbers are enough here.
using TF_DataType = int;
using TF_Code = int;
struct TF_StringView {
  const char* data;
  size_t len;
};

namespace horo::tensorflow {

using Create = void* (*)(TF_OpKernelConstruction*);
using Compute = void (*)(void* kernel, TF_OpKernelContext*);
using ComputeAsync = void (*)(void* kernel, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using Delete = void (*)(void* kernel);
using InferShapes = void (*)(TF_ShapeInferenceContext*, TF_Status*);

/// Members are named after the functions, without TF_ and with underscores.
struct Api {
  TF_Status* (*new_status)();
  void (*delete_status)(TF_Status*);
  void (*set_status)(TF_Status*, TF_Code, const char* words);
  TF_Code (*get_code)(const TF_Status*);
  const char* (*message)(const TF_Status*);

  void* (*tensor_data)(const TF_Tensor*);
  int (*num_dims)(const TF_Tensor*);
  int64_t (*dim)(const TF_Tensor*, int);
  TF_DataType (*tensor_type)(const TF_Tensor*);
  void (*delete_tensor)(TF_Tensor*);

  TF_OpDefinitionBuilder* (*new_op_definition_builder)(const char* name);
  void (*op_definition_builder_add_attr)(TF_OpDefinitionBuilder*, const char* spec);
  void (*op_definition_builder_add_input)(TF_OpDefinitionBuilder*, const char* spec);
  void (*op_definition_builder_add_output)(TF_OpDefinitionBuilder*, const char* spec);
  void (*op_definition_builder_set_is_stateful)(TF_OpDefinitionBuilder*, bool);
  void (*op_definition_builder_set_shape_inference_function)(TF_OpDefinitionBuilder*, InferShapes);
  void (*register_op_definition)(TF_OpDefinitionBuilder*, TF_Status*);

  int64_t (*shape_inference_context_num_inputs)(TF_ShapeInferenceContext*);
  void (*shape_inference_context_get_input)(TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*);
  void (*shape_inference_context_set_output)(TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*);
  TF_ShapeHandle* (*shape_inference_context_scalar)(TF_ShapeInferenceContext*);
  TF_ShapeHandle* (*shape_inference_context_vector_from_size)(TF_ShapeInferenceContext*, size_t);
  void (*shape_inference_context_with_rank_at_least)(TF_ShapeInferenceContext*, TF_ShapeHandle*, int64_t,
                                                     TF_ShapeHandle* result, TF_Status*);
  int (*shape_inference_context_rank_known)(TF_ShapeInferenceContext*, TF_ShapeHandle*);
  int64_t (*shape_inference_context_rank)(TF_ShapeInferenceContext*, TF_ShapeHandle*);
  void (*shape_inference_context_subshape)(TF_ShapeInferenceContext*, TF_ShapeHandle*, int64_t start, int64_t end,
                                           TF_ShapeHandle* result, TF_Status*);
  void (*shape_inference_context_concatenate_shapes)(TF_ShapeInferenceContext*, TF_ShapeHandle*, TF_ShapeHandle*,
                                                     TF_ShapeHandle* result, TF_Status*);
  TF_ShapeHandle* (*new_shape_handle)();
  void (*delete_shape_handle)(TF_ShapeHandle*);

  TF_KernelBuilder* (*new_kernel_builder)(const char* op, const char* device, Create, Compute, Delete);
  void (*register_kernel_builder)(const char* name, TF_KernelBuilder*, TF_Status*);
  void (*op_kernel_construction_get_attr_size)(TF_OpKernelConstruction*, const char* name, int32_t* list_size,
                                               int32_t* total_size, TF_Status*);
  void (*op_kernel_construction_get_attr_string)(TF_OpKernelConstruction*, const char* name, char* value,
                                                 size_t capacity, TF_Status*);
  void (*op_kernel_construction_get_attr_int64)(TF_OpKernelConstruction*, const char* name, int64_t*, TF_Status*);
  void (*op_kernel_construction_get_attr_bool)(TF_OpKernelConstruction*, const char* name, unsigned char*, TF_Status*);
  TF_StringView (*op_kernel_construction_get_name)(TF_OpKernelConstruction*);
  void (*op_kernel_construction_failure)(TF_OpKernelConstruction*, TF_Status*);
  void (*op_kernel_context_failure)(TF_OpKernelContext*, TF_Status*);
  int (*num_inputs)(TF_OpKernelContext*);
  void (*get_input)(TF_OpKernelContext*, int, TF_Tensor**, TF_Status*);
  TF_Tensor* (*allocate_output)(TF_OpKernelContext*, int, TF_DataType, const int64_t* dims, int num_dims, size_t bytes,
                                TF_Status*);
  TF_Tensor* (*forward_input_or_allocate_output)(TF_OpKernelContext*, const int* candidates, int count, int output,
                                                 const int64_t* dims, int num_dims, int* forwarded, TF_Status*);

  int64_t (*get_iter_id)(TF_OpKernelContext*);  ///< Of the innermost loop, 0 outside; null where it does not exist.
  /// Null before 2.13: kernels wait on TensorFlow's threads there.
  TF_KernelBuilder* (*new_async_kernel_builder)(const char* op, const char* device, Create, ComputeAsync, Delete);
  void (*run_async_op_kernel_done_callback)(TF_AsyncOpKernelDoneCallback*);
  const char* (*version)();  ///< Null where that library is not loaded.

  /// Whether the callback that an asynchronous kernel is given lives until it is run. Before 2.22 it dies when
  /// compute_async returns, so that a kernel that finishes later needs a copy of it.
  bool done_callback_lives = true;
};

/// kNotFound names what is missing.
Result<Api> find_api();

/// Of a version "2.21.0", say. An unknown one counts as old: a copy of a callback that lives is right too, and costs a
/// few bytes that nobody frees.
bool done_callback_lives_in(const char* version);

}  // namespace horo::tensorflow
