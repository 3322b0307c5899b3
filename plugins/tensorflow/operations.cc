#include "plugins/tensorflow/operations.h"

#include <initializer_list>
#include <string>

#include "plugins/tensorflow/kernels.h"
#include "plugins/tensorflow/status.h"

#include "horo/base/text.h"

namespace horo::tensorflow {

namespace {

// All types: specifications have no way to write "float8_e5m2". Kernels and the front end know which there are.
constexpr const char* kTypes = "T: list(type) >= 1";

/// A shape of TensorFlow's that frees itself.
class Shape {
 public:
  explicit Shape(TF_ShapeHandle* handle) : handle_(handle, kernel_api()->delete_shape_handle) {}
  Shape() : Shape(kernel_api()->new_shape_handle()) {}
  TF_ShapeHandle* get() const { return handle_.get(); }

 private:
  std::unique_ptr<TF_ShapeHandle, void (*)(TF_ShapeHandle*)> handle_;
};

/// For each of the tensors, whose outputs come first, as the inputs do; behind these are `others` inputs.
template <class Infer>
void for_each_tensor(TF_ShapeInferenceContext* context, TF_Status* status, int others, Infer infer) {
  const Api& api = *kernel_api();
  const int64_t tensors = api.shape_inference_context_num_inputs(context) - others;
  for (int i = 0; i < tensors && api.get_code(status) == 0; ++i) {
    const Shape input;
    api.shape_inference_context_get_input(context, i, input.get(), status);
    if (api.get_code(status) == 0) infer(i, input.get());
  }
}

void keep_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  for_each_tensor(context, status, 1, [&](int i, TF_ShapeHandle* input) {
    kernel_api()->shape_inference_context_set_output(context, i, input, status);
  });
}

/// The first extent is known only when the ranks have met. A scalar has none, and is an error here already.
void change_rows(TF_ShapeInferenceContext* context, TF_Status* status, int others) {
  const Api& api = *kernel_api();
  for_each_tensor(context, status, others, [&](int i, TF_ShapeHandle* input) {
    const Shape checked, row, output;
    api.shape_inference_context_with_rank_at_least(context, input, 1, checked.get(), status);
    if (api.get_code(status) != 0) return;
    if (api.shape_inference_context_rank_known(context, checked.get()) == 0) {
      // What was not set is unknown.
      api.shape_inference_context_set_output(context, i, checked.get(), status);
      return;
    }
    const int64_t rank = api.shape_inference_context_rank(context, checked.get());
    api.shape_inference_context_subshape(context, checked.get(), 1, rank, row.get(), status);
    if (api.get_code(status) != 0) return;
    const Shape unknown(api.shape_inference_context_vector_from_size(context, static_cast<size_t>(-1)));
    api.shape_inference_context_concatenate_shapes(context, unknown.get(), row.get(), output.get(), status);
    if (api.get_code(status) == 0) api.shape_inference_context_set_output(context, i, output.get(), status);
  });
}

void change_rows_of_all(TF_ShapeInferenceContext* context, TF_Status* status) { change_rows(context, status, 1); }
void change_rows_of_alltoall(TF_ShapeInferenceContext* context, TF_Status* status) { change_rows(context, status, 2); }

void make_scalar(TF_ShapeInferenceContext* context, TF_Status* status) {
  const Shape scalar(kernel_api()->shape_inference_context_scalar(context));
  kernel_api()->shape_inference_context_set_output(context, 0, scalar.get(), status);
}

struct Operation {
  const char* name;
  KernelFunctions kernel;
  InferShapes shapes;
  bool stateful;
  std::initializer_list<const char*> inputs, outputs, attributes;
};

Status register_one(const Api& api, const Operation& operation) {
  TF_OpDefinitionBuilder* builder = api.new_op_definition_builder(operation.name);
  for (const char* one : operation.attributes) api.op_definition_builder_add_attr(builder, one);
  api.op_definition_builder_add_attr(builder, "process_set_id: int = 0");
  for (const char* one : operation.inputs) api.op_definition_builder_add_input(builder, one);
  for (const char* one : operation.outputs) api.op_definition_builder_add_output(builder, one);
  // tf.function runs stateful operations one after the other, in the order of the program. Collectives are none: they
  // overlap, and ranks that have traced them in different orders meet all the same.
  // (TensorFlow does not look at the flag: the call itself makes it stateful.)
  if (operation.stateful) api.op_definition_builder_set_is_stateful(builder, true);
  api.op_definition_builder_set_shape_inference_function(builder, operation.shapes);
  Outcome outcome(api);
  api.register_op_definition(builder, outcome.get());
  const KernelFunctions& kernel = operation.kernel;
  if (outcome.ok()) {
    TF_KernelBuilder* made =
        kernel.compute_async != nullptr && api.new_async_kernel_builder != nullptr
            ? api.new_async_kernel_builder(operation.name, "CPU", kernel.create, kernel.compute_async, kernel.destroy)
            : api.new_kernel_builder(operation.name, "CPU", kernel.create, kernel.compute, kernel.destroy);
    api.register_kernel_builder(operation.name, made, outcome.get());
  }
  if (outcome.ok()) return {};
  return {Code::kIncompatible,
          text("TensorFlow refuses the operation ", operation.name, ": ", api.message(outcome.get()))};
}

}  // namespace

Status register_all(const Api& api) {
  kernel_api() = &api;
  // Where the token comes from and what it holds, and what the place in it is, is told in horo/tensorflow/graph.py.
  const char *tensors = "tensors: T", *token = "token: int32";
  const char *name = "tensor_name: string", *grouped = "grouped: bool", *place = "place: int",
             *at_call = "at_call: bool";
  const char *reduction = "reduction: int", *before = "prescale_bits: int", *after = "postscale_bits: int";
  const Operation all[] = {
      {"HoroAllreduce",
       kernel_of(HORO_ALLREDUCE),
       &keep_shapes,
       false,
       {tensors, token},
       {"reduced: T"},
       {kTypes, name, grouped, place, at_call, reduction, before, after}},
      {"HoroBroadcast",
       kernel_of(HORO_BROADCAST),
       &keep_shapes,
       false,
       {tensors, token},
       {"received: T"},
       {kTypes, name, grouped, place, at_call, "root_rank: int"}},
      {"HoroAllgather",
       kernel_of(HORO_ALLGATHER),
       &change_rows_of_all,
       false,
       {tensors, token},
       {"gathered: T", "rows: int64"},
       {kTypes, name, grouped, place, at_call}},
      {"HoroReducescatter",
       kernel_of(HORO_REDUCESCATTER),
       &change_rows_of_all,
       false,
       {tensors, token},
       {"reduced: T"},
       {kTypes, name, grouped, place, at_call, reduction, before, after}},
      {"HoroAlltoall",
       kernel_of(HORO_ALLTOALL),
       &change_rows_of_alltoall,
       false,
       {tensors, "splits: int64", token},
       {"received: T", "rows: int64"},
       {kTypes, name, grouped, place, at_call}},
      {"HoroSize", kernel_of(Fact::kSize), &make_scalar, true, {}, {"answer: int32"}, {}},
      {"HoroRank", kernel_of(Fact::kRank), &make_scalar, true, {}, {"answer: int32"}, {}},
      {"HoroLocalSize", kernel_of(Fact::kLocalSize), &make_scalar, true, {}, {"answer: int32"}, {}},
      {"HoroLocalRank", kernel_of(Fact::kLocalRank), &make_scalar, true, {}, {"answer: int32"}, {}},
      {"HoroProcessSetIncluded", kernel_of(Fact::kIncluded), &make_scalar, true, {}, {"answer: int32"}, {}},
      {"HoroJoin", kernel_of(Fact::kJoin), &make_scalar, true, {}, {"answer: int32"}, {}},
  };
  for (const Operation& one : all) HORO_TRY(register_one(api, one));
  return {};
}

}  // namespace horo::tensorflow
