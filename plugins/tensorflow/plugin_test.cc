// The kernels against a TensorFlow of this file: what asynchronous ones do with callbacks that die, what they do where
// there are none, and what becomes of failures.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/tensorflow/call.h"
#include "plugins/tensorflow/kernels.h"
#include "plugins/tensorflow/operations.h"

#include "horo/api/horo.hpp"

struct TF_Status {
  int code = 0;
  std::string words;
};
struct TF_Tensor {
  TF_DataType type;
  std::vector<int64_t> shape;
  std::shared_ptr<std::vector<float>> values;
};
struct TF_OpKernelConstruction {};
struct TF_OpKernelContext {
  std::vector<TF_Tensor> inputs;
  std::map<int, TF_Tensor> outputs;
  TF_Status failure;
  int64_t iteration = 0;
};
struct TF_OpDefinitionBuilder {
  std::string name;
  bool stateful = false;
};
struct TF_KernelBuilder {
  std::string name;
  bool asynchronous;
};

namespace horo::tensorflow {
namespace {

/// What was registered.
struct Registry {
  std::map<std::string, bool> stateful, asynchronous;
};
Registry& registry() {
  static Registry only;
  return only;
}

template <class Value>
TF_Tensor* hand_out(Value&& value) {
  return new TF_Tensor(std::forward<Value>(value));
}

void fake_values(Api& api) {
  api.new_status = [] { return new TF_Status; };
  api.delete_status = [](TF_Status* status) { delete status; };
  api.set_status = [](TF_Status* status, TF_Code code, const char* words) { *status = {code, words}; };
  api.get_code = [](const TF_Status* status) { return status->code; };
  api.message = [](const TF_Status* status) { return status->words.c_str(); };
  api.tensor_data = [](const TF_Tensor* tensor) -> void* { return tensor->values->data(); };
  api.num_dims = [](const TF_Tensor* tensor) { return static_cast<int>(tensor->shape.size()); };
  api.dim = [](const TF_Tensor* tensor, int i) { return tensor->shape[static_cast<size_t>(i)]; };
  api.tensor_type = [](const TF_Tensor* tensor) { return tensor->type; };
  api.delete_tensor = [](TF_Tensor* tensor) { delete tensor; };
}

void fake_execution(Api& api) {
  api.op_kernel_context_failure = [](TF_OpKernelContext* context, TF_Status* status) { context->failure = *status; };
  api.num_inputs = [](TF_OpKernelContext* context) { return static_cast<int>(context->inputs.size()); };
  api.get_input = [](TF_OpKernelContext* context, int i, TF_Tensor** tensor, TF_Status*) {
    *tensor = hand_out(context->inputs[static_cast<size_t>(i)]);
  };
  api.allocate_output = [](TF_OpKernelContext* context, int i, TF_DataType type, const int64_t* dims, int count,
                           size_t bytes, TF_Status*) {
    context->outputs[i] = {type, {dims, dims + count}, std::make_shared<std::vector<float>>(bytes / 4 + 1)};
    return hand_out(context->outputs[i]);
  };
  api.forward_input_or_allocate_output = [](TF_OpKernelContext* context, const int* candidates, int, int output,
                                            const int64_t*, int, int* forwarded, TF_Status*) {
    *forwarded = candidates[0];
    context->outputs[output] = context->inputs[static_cast<size_t>(candidates[0])];
    return hand_out(context->outputs[output]);
  };
}

void fake_registration(Api& api) {
  api.new_op_definition_builder = [](const char* name) { return new TF_OpDefinitionBuilder{name}; };
  const auto ignore = [](TF_OpDefinitionBuilder*, const char*) {};
  api.op_definition_builder_add_attr = api.op_definition_builder_add_input = ignore;
  api.op_definition_builder_add_output = ignore;
  // As TensorFlow's, which does not look at the flag.
  api.op_definition_builder_set_is_stateful = [](TF_OpDefinitionBuilder* builder, bool) { builder->stateful = true; };
  api.op_definition_builder_set_shape_inference_function = [](TF_OpDefinitionBuilder*, InferShapes) {};
  api.register_op_definition = [](TF_OpDefinitionBuilder* builder, TF_Status* status) {
    registry().stateful[builder->name] = builder->stateful;
    if (builder->name == "HoroJoin" && registry().stateful.contains("refuse")) *status = {3, "no"};
    delete builder;
  };
  api.new_kernel_builder = [](const char* op, const char*, Create, Compute, Delete) {
    return new TF_KernelBuilder{op, false};
  };
  api.new_async_kernel_builder = [](const char* op, const char*, Create, ComputeAsync, Delete) {
    return new TF_KernelBuilder{op, true};
  };
  api.register_kernel_builder = [](const char* name, TF_KernelBuilder* builder, TF_Status*) {
    registry().asynchronous[name] = builder->asynchronous;
    delete builder;
  };
}

Api fake() {
  Api api{};
  fake_values(api);
  fake_execution(api);
  fake_registration(api);
  api.run_async_op_kernel_done_callback = [](TF_AsyncOpKernelDoneCallback* done) {
    // As TensorFlow 2.22 does: it runs once, and is gone.
    const std::unique_ptr<std::function<void()>> owned(reinterpret_cast<std::function<void()>*>(done));
    (*owned)();
  };
  return api;
}

TF_OpKernelContext context_of(float value, const std::vector<int32_t>& token = {}) {
  const auto one = std::make_shared<std::vector<float>>(1, value);
  const auto numbers = std::make_shared<std::vector<float>>(token.size() + 1);
  if (!token.empty()) std::memcpy(numbers->data(), token.data(), token.size() * sizeof(int32_t));
  return {{{1, {1}, one}, {3, {static_cast<int64_t>(token.size())}, numbers}}, {}, {}, 0};
}

/// A runtime of one rank that kernels find.
class Kernels : public testing::Test {
 protected:
  Kernels() : runtime_(options()) { horo_runtime_publish(runtime_.get()); }

  static horo_runtime_options options() {
    static horo_engine_options engine = HORO_ENGINE_OPTIONS_INIT;
    engine.rank = 0;
    engine.size = 1;
    horo_runtime_options all = HORO_RUNTIME_OPTIONS_INIT;
    all.engine = &engine;
    return all;
  }
  Collective collective() { return {.api = &api_, .kind = HORO_ALLREDUCE, .name = "x", .prescale = 2}; }

  /// Runs the kernel with a callback that lives on the stack, or is the kernel's; waits until it has run.
  void run_async(Collective& kernel, TF_OpKernelContext& context, bool lives) {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    const std::function<void()> notify = [&] {
      const std::lock_guard lock(mutex);
      done = true;
      changed.notify_one();
    };
    const ComputeAsync compute = kernel_of(HORO_ALLREDUCE).compute_async;
    if (lives) {
      compute(&kernel, &context, reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(new std::function<void()>(notify)));
    } else {
      auto dying = std::make_unique<std::function<void()>>(notify);
      compute(&kernel, &context, reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(dying.get()));
    }
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return done; }));
  }

  Api api_ = fake();
  Runtime runtime_;
};

TEST_F(Kernels, RunTheCallbackThatLivesOnce) {
  api_.done_callback_lives = true;
  Collective kernel = collective();
  TF_OpKernelContext context = context_of(3);
  run_async(kernel, context, true);
  EXPECT_EQ(context.outputs[0].values->front(), 6);
  EXPECT_EQ(context.failure.code, 0);
}

TEST_F(Kernels, CopyTheCallbackThatDies) {
  api_.done_callback_lives = false;
  Collective kernel = collective();
  for (int i = 0; i < 100; ++i) {
    TF_OpKernelContext context = context_of(static_cast<float>(i));
    run_async(kernel, context, false);
    EXPECT_EQ(context.outputs[0].values->front(), 2.0F * static_cast<float>(i));
  }
}

TEST_F(Kernels, WaitWhereThereAreNoAsynchronousOnes) {
  Collective kernel = collective();
  TF_OpKernelContext context = context_of(4);
  kernel_of(HORO_ALLREDUCE).compute(&kernel, &context);
  EXPECT_EQ(context.outputs[0].values->front(), 8);
}

TEST_F(Kernels, GatherIntoMemoryThatTensorflowAllocates) {
  Collective kernel = collective();
  kernel.kind = HORO_ALLGATHER;
  TF_OpKernelContext context = context_of(5);
  kernel_of(HORO_ALLGATHER).compute(&kernel, &context);
  ASSERT_EQ(context.failure.words, "");
  EXPECT_EQ(context.outputs[0].shape, std::vector<int64_t>{1});
  EXPECT_EQ(context.outputs[0].values->front(), 5);
  EXPECT_EQ(context.outputs[1].shape, (std::vector<int64_t>{1, 1}));
  int64_t rows = 0;
  std::memcpy(&rows, context.outputs[1].values->data(), sizeof rows);
  EXPECT_EQ(rows, 1);
}

TEST_F(Kernels, SayThatThereIsNoRuntime) {
  runtime_.shutdown();
  Collective kernel = collective();
  TF_OpKernelContext context = context_of(4);
  kernel_of(HORO_ALLREDUCE).compute(&kernel, &context);
  EXPECT_EQ(context.failure.code, 3);
  EXPECT_NE(context.failure.words.find("horo: invalid-argument: "), std::string::npos) << context.failure.words;
  EXPECT_NE(context.failure.words.find("'x'"), std::string::npos) << context.failure.words;
}

TEST_F(Kernels, SayWhatTypesThereAreNot) {
  Collective kernel = collective();
  TF_OpKernelContext context = context_of(4);
  context.inputs[0].type = 7;  // Strings.
  kernel_of(HORO_ALLREDUCE).compute(&kernel, &context);
  EXPECT_NE(context.failure.words.find("no operations on type 7"), std::string::npos) << context.failure.words;
}

TEST_F(Kernels, NameTheIterationsOfALoopAndTheNamesComeAgain) {
  api_.get_iter_id = [](TF_OpKernelContext* context) { return context->iteration; };
  Collective kernel = collective();
  for (const auto& [iteration, name] : {std::pair(0, "'x'"), {3, "'x@3'"}, {32, "'x'"}, {35, "'x@3'"}}) {
    TF_OpKernelContext context = context_of(4);
    context.iteration = iteration;
    context.inputs[0].type = 7;  // Which is refused, with the name.
    kernel_of(HORO_ALLREDUCE).compute(&kernel, &context);
    EXPECT_NE(context.failure.words.find(name), std::string::npos) << context.failure.words;
  }
}

TEST_F(Kernels, NameTheCallThatTheTokenTells) {
  api_.get_iter_id = [](TF_OpKernelContext* context) { return context->iteration; };
  Collective kernel = collective();
  for (const auto& [place, name] : {std::pair(0, "'x@2'"), {1, "'x@2'"}, {2, "'x#3@2'"}, {3, "'x@2'"}}) {
    TF_OpKernelContext context = context_of(4, {0, 1, 3});
    context.iteration = 2;
    context.inputs[0].type = 7;  // Which is refused, with the name.
    kernel.place = place;
    kernel_of(HORO_ALLREDUCE).compute(&kernel, &context);
    EXPECT_NE(context.failure.words.find(name), std::string::npos) << context.failure.words;
  }
}

TEST_F(Kernels, NameThePathOfCallsWhereTheTokenIsTheSameInAll) {
  Collective kernel = collective();
  kernel.path = "PartitionedCall_1/";
  for (const bool at_call : {false, true}) {
    const std::pair<int, const char*> names[] = {
        {0, at_call ? "'PartitionedCall_1/x'" : "'x'"}, {1, "'PartitionedCall_1/x'"}, {2, "'PartitionedCall_1/x#3'"}};
    for (const auto& [place, name] : names) {
      TF_OpKernelContext context = context_of(4, {1, kByPath + 1, kByPath + 3});
      context.inputs[0].type = 7;  // Which is refused, with the name.
      kernel.place = place;
      kernel.at_call = at_call;
      kernel_of(HORO_ALLREDUCE).compute(&kernel, &context);
      EXPECT_NE(context.failure.words.find(name), std::string::npos) << context.failure.words;
    }
  }
}

TEST(Calls, AreReadOutOfTheNamesOfNodes) {
  EXPECT_EQ(calls_in("horo_x"), "");
  EXPECT_EQ(calls_in("while/body/_1/while/horo_x"), "");
  EXPECT_EQ(calls_in("PartitionedCall_1/gradients/horo_x"), "PartitionedCall_1/");
  EXPECT_EQ(calls_in("a/StatefulPartitionedCall/cond/then/_12/PartitionedCall_3/b/horo_x"),
            "a/StatefulPartitionedCall/cond/then/PartitionedCall_3/");
}

TEST(Registration, OnlyFactsAreStatefulAndCollectivesAreAsynchronous) {
  static const Api kApi = fake();
  registry() = {};
  const Status status = register_all(kApi);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(registry().stateful.size(), 11);
  for (const auto& [name, stateful] : registry().stateful) {
    EXPECT_NE(registry().asynchronous.at(name), stateful) << name;
  }
  EXPECT_FALSE(registry().stateful.at("HoroAllreduce"));
  EXPECT_TRUE(registry().stateful.at("HoroJoin"));
}

TEST(Registration, OldVersionsGetKernelsThatWait) {
  static const Api kApi = [] {
    Api api = fake();
    api.new_async_kernel_builder = nullptr;
    return api;
  }();
  registry() = {};
  ASSERT_TRUE(register_all(kApi).ok());
  EXPECT_FALSE(registry().asynchronous.at("HoroAllreduce"));
}

TEST(Registration, WhatTensorflowRefusesIsAnError) {
  static const Api kApi = fake();
  registry() = {};
  registry().stateful["refuse"] = true;
  const Status status = register_all(kApi);
  EXPECT_EQ(status.code(), Code::kIncompatible);
  EXPECT_NE(status.message().find("HoroJoin: no"), std::string::npos) << status;
}

TEST(Version, TellsWhetherCallbacksLive) {
  EXPECT_FALSE(done_callback_lives_in("2.13.0"));
  EXPECT_FALSE(done_callback_lives_in("2.21.1"));
  EXPECT_TRUE(done_callback_lives_in("2.22.0"));
  EXPECT_TRUE(done_callback_lives_in("2.22.0-rc0"));
  EXPECT_TRUE(done_callback_lives_in("3.0.0"));
  // Unknown: a copy is right too.
  EXPECT_FALSE(done_callback_lives_in("nightly"));
  EXPECT_FALSE(done_callback_lives_in("2"));
  EXPECT_FALSE(done_callback_lives_in("2.x"));
}

TEST(Types, AreThoseOfTheLibrary) {
  EXPECT_EQ(dtype_of(1), HORO_F32);
  EXPECT_EQ(dtype_of(14), HORO_BF16);
  EXPECT_EQ(dtype_of(25), HORO_F8E4M3);
  EXPECT_EQ(dtype_of(7), -1);
}

TEST(Loading, WithoutTensorflowSaysWhatIsMissing) {
  const auto api = find_api();
  EXPECT_FALSE(api.ok());
  EXPECT_NE(api.status().message().find("libtensorflow_framework"), std::string::npos) << api.status();
}

}  // namespace
}  // namespace horo::tensorflow
