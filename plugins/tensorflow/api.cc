#include "plugins/tensorflow/api.h"

#include <array>
#include <charconv>
#include <cstring>
#include <string>

#include "horo/base/dynlib.h"

namespace horo::tensorflow {

bool done_callback_lives_in(const char* version) {
  int major = 0, minor = 0;
  const char* end = version + std::strlen(version);
  const auto first = std::from_chars(version, end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return false;
  if (std::from_chars(first.ptr + 1, end, minor).ec != std::errc()) return false;
  return major > 2 || (major == 2 && minor >= 22);
}

Result<Api> find_api() {
  const std::array<std::string, 2> frameworks = {"libtensorflow_framework.so.2", "libtensorflow_framework.so"};
  HORO_ASSIGN(DynamicLibrary framework, DynamicLibrary::find_loaded(frameworks));
  Api api{};
  const Symbol symbols[] = {
      symbol("TF_NewStatus", &api.new_status),
      symbol("TF_DeleteStatus", &api.delete_status),
      symbol("TF_SetStatus", &api.set_status),
      symbol("TF_GetCode", &api.get_code),
      symbol("TF_Message", &api.message),
      symbol("TF_TensorData", &api.tensor_data),
      symbol("TF_NumDims", &api.num_dims),
      symbol("TF_Dim", &api.dim),
      symbol("TF_TensorType", &api.tensor_type),
      symbol("TF_DeleteTensor", &api.delete_tensor),
      symbol("TF_NewOpDefinitionBuilder", &api.new_op_definition_builder),
      symbol("TF_OpDefinitionBuilderAddAttr", &api.op_definition_builder_add_attr),
      symbol("TF_OpDefinitionBuilderAddInput", &api.op_definition_builder_add_input),
      symbol("TF_OpDefinitionBuilderAddOutput", &api.op_definition_builder_add_output),
      symbol("TF_OpDefinitionBuilderSetIsStateful", &api.op_definition_builder_set_is_stateful),
      symbol("TF_OpDefinitionBuilderSetShapeInferenceFunction",
             &api.op_definition_builder_set_shape_inference_function),
      symbol("TF_RegisterOpDefinition", &api.register_op_definition),
      symbol("TF_ShapeInferenceContextNumInputs", &api.shape_inference_context_num_inputs),
      symbol("TF_ShapeInferenceContextGetInput", &api.shape_inference_context_get_input),
      symbol("TF_ShapeInferenceContextSetOutput", &api.shape_inference_context_set_output),
      symbol("TF_ShapeInferenceContextScalar", &api.shape_inference_context_scalar),
      symbol("TF_ShapeInferenceContextVectorFromSize", &api.shape_inference_context_vector_from_size),
      symbol("TF_ShapeInferenceContextWithRankAtLeast", &api.shape_inference_context_with_rank_at_least),
      symbol("TF_ShapeInferenceContextRankKnown", &api.shape_inference_context_rank_known),
      symbol("TF_ShapeInferenceContextRank", &api.shape_inference_context_rank),
      symbol("TF_ShapeInferenceContextSubshape", &api.shape_inference_context_subshape),
      symbol("TF_ShapeInferenceContextConcatenateShapes", &api.shape_inference_context_concatenate_shapes),
      symbol("TF_NewShapeHandle", &api.new_shape_handle),
      symbol("TF_DeleteShapeHandle", &api.delete_shape_handle),
      symbol("TF_NewKernelBuilder", &api.new_kernel_builder),
      symbol("TF_RegisterKernelBuilder", &api.register_kernel_builder),
      symbol("TF_OpKernelConstruction_GetAttrSize", &api.op_kernel_construction_get_attr_size),
      symbol("TF_OpKernelConstruction_GetAttrString", &api.op_kernel_construction_get_attr_string),
      symbol("TF_OpKernelConstruction_GetAttrInt64", &api.op_kernel_construction_get_attr_int64),
      symbol("TF_OpKernelConstruction_GetAttrBool", &api.op_kernel_construction_get_attr_bool),
      symbol("TF_OpKernelConstruction_GetName", &api.op_kernel_construction_get_name),
      symbol("TF_OpKernelConstruction_Failure", &api.op_kernel_construction_failure),
      symbol("TF_OpKernelContext_Failure", &api.op_kernel_context_failure),
      symbol("TF_NumInputs", &api.num_inputs),
      symbol("TF_GetInput", &api.get_input),
      symbol("TF_AllocateOutput", &api.allocate_output),
      symbol("TF_ForwardInputOrAllocateOutput", &api.forward_input_or_allocate_output),
      optional_symbol("TF_GetIterId", &api.get_iter_id),
      optional_symbol("TF_NewAsyncKernelBuilder", &api.new_async_kernel_builder),
      optional_symbol("TF_RunAsyncOpKernelDoneCallback", &api.run_async_op_kernel_done_callback),
  };
  HORO_TRY(framework.bind(symbols));
  // The version lies in another library of a wheel, and in the same one elsewhere.
  const std::array<std::string, 4> places = {"libtensorflow_cc.so.2", "libtensorflow.so.2", framework.name(),
                                             "_pywrap_tensorflow_internal.so"};
  for (const std::string& place : places) {
    auto library = DynamicLibrary::find_loaded(std::span(&place, 1));
    const Symbol version[] = {optional_symbol("TF_Version", &api.version)};
    if (library.ok()) HORO_TRY(library->bind(version));
    if (api.version != nullptr) break;
  }
  api.done_callback_lives = api.version != nullptr && done_callback_lives_in(api.version());
  return api;
}

}  // namespace horo::tensorflow
