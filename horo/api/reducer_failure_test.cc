// What goes wrong in a reducer: an error on every rank that names the parameter, no hang, and the next iteration works.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "horo/api/reducer_testing.h"

namespace horo::api {
namespace {

/// Over shared memory, and over sockets.
class ApiReducerFailure : public testing::TestWithParam<const char*> {
 protected:
  void run(int ranks, const std::function<void(Engine&)>& body) {
    run_ranks(ranks, body, {std::string("HORO_TRANSPORT=") + GetParam()});
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, ApiReducerFailure, testing::Values("auto", "tcp"),
                         [](const auto& one) { return std::string(one.param == std::string("tcp") ? "Tcp" : "Shm"); });

Model small_model() { return {{{2000}, {7}, {300}}, {4096}, {}}; }

const std::vector<size_t> kAll{2, 1, 0};

void expect_words(const std::string& words, const std::string& part) {
  EXPECT_NE(words.find(part), std::string::npos) << "'" << words << "' lacks '" << part << "'";
}

/// After a failure: the next iteration is as good as any.
void expect_that_it_works(Engine& engine, Reducer& reducer, const Model& model) {
  Gradients gradients(model);
  gradients.fill(engine.rank(), 9);
  iterate(reducer, gradients, kAll);
  gradients.expect_averages(engine.size(), 9);
}

TEST_P(ApiReducerFailure, ModelsThatDifferAreNamedOnAllRanksWithBothValues) {
  run(3, [](Engine& engine) {
    Group group = engine.group(range_of(3));
    const bool odd = engine.rank() == 2;
    const auto error_with = [&](const std::function<void(Model&)>& change) {
      Model model = small_model();
      if (odd) change(model);
      return error_of([&] { model.make(group); });
    };
    expect_words(error_with([](Model& model) {
                   model.shapes[1] = {7, 1};
                 }),
                 "the models of the ranks differ: rank 2 has parameter 1 as 'p1', f32[7, 1]; rank 0 has parameter 1 as "
                 "'p1', f32[7]");
    expect_words(error_with([](Model& model) {
                   model.names = {"", "", "other"};
                 }),
                 "rank 2 has parameter 2 as 'other', f32[300]; rank 0 has parameter 2 as 'p2', f32[300]");
    expect_words(error_with([](Model& model) { model.dtypes = {HORO_F64}; }), "'p0', f64[2000]; rank 0 has");
    expect_words(error_with([](Model& model) { model.shapes.pop_back(); }),
                 "rank 0 has parameter 2 as 'p2', f32[300]; rank 2 has 2 parameters only");
    expect_words(error_with([](Model& model) { model.options.find_unused = 1; }), "find unused yes");
    Model model = small_model();
    Reducer reducer = model.make(group);
    expect_that_it_works(engine, reducer, model);
  });
}

TEST_P(ApiReducerFailure, AParameterThatOneRankMissesIsNamedOnAllRanks) {
  run(3, [](Engine& engine) {
    Model model = small_model();
    Group group = engine.group(range_of(3));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    for (size_t missing : {0, 1, 2}) {
      reducer.prepare_forward();
      reducer.prepare_backward();
      for (size_t parameter : kAll) {
        if (engine.rank() != 1 || parameter != missing) reducer.ready(parameter, gradients.values[parameter].data());
      }
      const std::string error = error_of([&] { reducer.finish(); });
      expect_words(error, "rank 1: parameter 'p" + std::to_string(missing) + "' got no gradient in this iteration");
      expect_that_it_works(engine, reducer, model);
    }
    EXPECT_EQ(reducer.statistics().failures, 3u);
  });
}

TEST_P(ApiReducerFailure, ABackwardPassThatWasNeverFinishedIsFoundAtTheNextForwardPass) {
  run(2, [](Engine& engine) {
    Model model = small_model();
    Group group = engine.group(range_of(2));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    reducer.prepare_backward();
    std::string error;
    if (engine.rank() == 0) {
      for (size_t parameter : kAll) reducer.ready(parameter, gradients.values[parameter].data());
      error = error_of([&] { reducer.finish(); });
    } else {
      reducer.ready(2, gradients.values[2].data());
      error = error_of([&] { reducer.prepare_forward(); });
    }
    expect_words(error, "rank 1: parameters 'p0', 'p1' got no gradient");
    expect_that_it_works(engine, reducer, model);
  });
}

TEST_P(ApiReducerFailure, AnIterationThatHasGivenAllItHadMayBeLeft) {
  run(2, [](Engine& engine) {
    Model model = small_model();
    Group group = engine.group(range_of(2));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    gradients.fill(engine.rank(), 4);
    reducer.prepare_forward();
    reducer.prepare_backward();
    for (size_t parameter : kAll) reducer.ready(parameter, gradients.values[parameter].data());
    if (engine.rank() == 0) {
      reducer.finish();
      gradients.expect_averages(2, 4);
    }
    expect_that_it_works(engine, reducer, model);
  });
}

TEST_P(ApiReducerFailure, ARankThatLeftTheFirstIterationsRebuildsItsBucketsWithTheOthers) {
  run(2, [](Engine& engine) {
    Model model = small_model();
    model.rebuilt_limits = {1};
    Group group = engine.group(range_of(2));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    reducer.prepare_forward();
    reducer.prepare_backward();
    for (size_t parameter : kAll) reducer.ready(parameter, gradients.values[parameter].data());
    if (engine.rank() == 0) reducer.finish();
    EXPECT_TRUE(reducer.prepare_forward());
    EXPECT_EQ(reducer.buckets(), 3u);
    expect_that_it_works(engine, reducer, model);
  });
}

TEST_P(ApiReducerFailure, AGradientThatComesTwiceEndsTheIterationOnAllRanks) {
  run(2, [](Engine& engine) {
    Model model = small_model();
    Group group = engine.group(range_of(2));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    reducer.prepare_backward();
    reducer.ready(1, gradients.values[1].data());
    if (engine.rank() == 1) {
      expect_words(error_of([&] { reducer.ready(1, gradients.values[1].data()); }), "'p1' got its gradient twice");
    } else {
      for (size_t parameter : {0, 2}) reducer.ready(parameter, gradients.values[parameter].data());
    }
    expect_words(error_of([&] { reducer.finish(); }), "rank 1: parameter 'p1' got its gradient twice");
    expect_that_it_works(engine, reducer, model);
    expect_words(error_of([&] { reducer.ready(1, gradients.values[1].data()); }),
                 "'p1' got a gradient after the gradients of this iteration were reduced");
    expect_words(error_of([&] { reducer.finish(); }), "no iteration is under way");
    expect_that_it_works(engine, reducer, model);
  });
}

TEST_P(ApiReducerFailure, AReasonOfTheCallersEndsTheIterationOnAllRanks) {
  run(3, [](Engine& engine) {
    Model model = small_model();
    Group group = engine.group(range_of(3));
    Reducer reducer = model.make(group);
    horo_hook_options hook = HORO_HOOK_OPTIONS_INIT;
    hook.kind = HORO_HOOK_CALLER;
    reducer.set_hook(hook);
    Gradients gradients(model);
    for (int attempt = 0; attempt < 3; ++attempt) {
      // Fails before, while and after buckets are reduced.
      reducer.prepare_forward();
      reducer.prepare_backward();
      gradients.fill(engine.rank(), 2);
      for (size_t parameter : kAll) reducer.ready(parameter, gradients.values[parameter].data());
      std::string error;
      horo_code code = HORO_INVALID_ARGUMENT;
      while (error.empty()) {
        const auto bucket = reducer.take();
        if (!bucket) break;
        if (engine.rank() == 2 && (attempt == 0 || (attempt == 1 && *bucket == 1))) {
          error = "mine";
          break;
        }
        const horo_bucket at = reducer.bucket(*bucket);
        try {
          group.allreduce(static_cast<float*>(at.memory), at.bytes / 4);
        } catch (const horo::Error& failed) {
          error = failed.what();
          code = failed.code();
        }
        reducer.launched(*bucket);
        reducer.deliver(*bucket, nullptr);
      }
      if (engine.rank() == 2) reducer.fail("the hook broke");
      if (engine.rank() != 2 && !error.empty()) {
        EXPECT_EQ(code, HORO_MISMATCH) << error;
        reducer.fail(error, code);
      }
      const std::string words = error_of([&] { reducer.finish(); });
      expect_words(words, "rank 2: the hook broke");
    }
    hook.kind = HORO_HOOK_ALLREDUCE;
    reducer.set_hook(hook);
    expect_that_it_works(engine, reducer, model);
  });
}

TEST_P(ApiReducerFailure, ABucketOfTheCallersThatWasNotDeliveredIsNamed) {
  run(2, [](Engine& engine) {
    Model model = small_model();
    Group group = engine.group(range_of(2));
    Reducer reducer = model.make(group);
    horo_hook_options hook = HORO_HOOK_OPTIONS_INIT;
    hook.kind = HORO_HOOK_CALLER;
    reducer.set_hook(hook);
    Gradients gradients(model);
    reducer.prepare_backward();
    for (size_t parameter : kAll) reducer.ready(parameter, gradients.values[parameter].data());
    expect_words(error_of([&] { reducer.launched(0); }), "bucket 0 is not with the caller");
    while (const auto bucket = reducer.take()) {
      reducer.launched(*bucket);
      if (*bucket == 0) reducer.deliver(*bucket, nullptr);
    }
    expect_words(error_of([&] { reducer.finish(); }), "the hook has delivered no result");
  });
}

TEST_P(ApiReducerFailure, FinishWithATimeoutGoesOnAndCanBeCalledAgain) {
  std::atomic<bool> go{false};
  run(2, [&](Engine& engine) {
    Model model = small_model();
    Group group = engine.group(range_of(2));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    gradients.fill(engine.rank(), 1);
    reducer.prepare_backward();
    if (engine.rank() == 1) go.wait(false);
    for (size_t parameter : kAll) reducer.ready(parameter, gradients.values[parameter].data());
    if (engine.rank() == 0) {
      try {
        reducer.finish(0.01);
        ADD_FAILURE() << "rank 1 has given nothing yet";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), HORO_TIMEOUT);
      }
      go.store(true);
      go.notify_all();
    }
    reducer.finish();
    gradients.expect_averages(2, 1);
  });
}

TEST_P(ApiReducerFailure, APeerThatIsLostFailsTheIterationOfTheOthers) {
  run(3, [](Engine& engine) {
    Model model = small_model();
    Group group = engine.group(range_of(3));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    reducer.prepare_forward();
    reducer.prepare_backward();
    if (engine.rank() == 2) {
      reducer.ready(2, gradients.values[2].data());
      engine.shutdown();
      return;
    }
    for (size_t parameter : kAll) reducer.ready(parameter, gradients.values[parameter].data());
    EXPECT_NE(error_of([&] { reducer.finish(); }), "");
    EXPECT_NE(error_of([&] { iterate(reducer, gradients, kAll); }), "") << "the group is over";
    EXPECT_GE(reducer.statistics().failures, 1u);
  });
}

TEST_P(ApiReducerFailure, AReducerMayBeDestroyedWithGradientsUnderWay) {
  run(2, [](Engine& engine) {
    for (bool with_reader : {false, true}) {
      Model model = small_model();
      Group group = engine.group(range_of(2));
      auto reducer = std::make_unique<Reducer>(model.make(group));
      const auto memory = reducer->memory(0);
      Gradients gradients(model);
      engine.world().barrier();  // Rank 1 has a reducer, too.
      reducer->prepare_backward();
      if (engine.rank() == 0) {
        for (size_t parameter : kAll) reducer->ready(parameter, gradients.values[parameter].data());
        reducer.reset();  // Rank 1 may never give anything.
      } else {
        for (size_t parameter : kAll) reducer->ready(parameter, gradients.values[parameter].data());
        error_of([&] { reducer->finish(); });  // It may have been in time.
        EXPECT_NE(error_of([&] { iterate(*reducer, gradients, kAll); }), "");
      }
      if (with_reader) static_cast<char*>(memory.get())[0] = 1;
    }
  });
}

TEST(ApiReducerArguments, WhatMakesNoSenseIsRefused) {
  run_ranks(1, [](Engine& engine) {
    Group world = engine.world();
    Model model = small_model();
    model.shapes = {{-3}};
    expect_words(error_of([&] { model.make(world); }), "'p0'");
    model.shapes = {};
    expect_words(error_of([&] { model.make(world); }), "needs one parameter at least");
    model = small_model();
    model.dtypes = {HORO_BYTE};
    expect_words(error_of([&] { model.make(world); }), "'p0' is byte, of which there is no average");
    model.dtypes = {static_cast<horo_dtype>(266)};
    expect_words(error_of([&] { model.make(world); }), "there is no element type 266");
    model = small_model();
    Reducer reducer = model.make(world);
    float value = 0;
    expect_words(error_of([&] { reducer.ready(3, &value); }), "there is no parameter 3; the model has 3");
    expect_words(error_of([&] { reducer.prepare_backward({3}, {}); }), "there is no parameter 3");
    expect_words(error_of([&] { reducer.bucket(7); }), "there is no bucket 7");
    expect_words(error_of([&] { reducer.slot(7); }), "there is no parameter 7");
    expect_words(error_of([&] { reducer.deliver(0, nullptr); }), "bucket 0 is not the caller's");
    expect_words(error_of([&] { reducer.fail("why"); }), "no iteration is under way");
    expect_words(error_of([&] { reducer.fail("why", HORO_OK); }), "0 is no code of a failure");
    expect_words(error_of([&] { reducer.set_divisor(-1); }), "divided by -1");
    expect_words(error_of([&] { reducer.set_sample_rate(0); }), "1 at least");
    horo_hook_options hook = HORO_HOOK_OPTIONS_INIT;
    hook.kind = static_cast<horo_hook_kind>(6);
    expect_words(error_of([&] { reducer.set_hook(hook); }), "no hook of kind 6");
    hook = HORO_HOOK_OPTIONS_INIT;
    hook.rank = 0;
    expect_words(error_of([&] { reducer.set_hook(hook); }), "must be 1 at least, got 0");
    Gradients gradients(model);
    reducer.prepare_backward();
    reducer.ready(0, gradients.values[0].data());
    hook.rank = 1;
    expect_words(error_of([&] { reducer.set_hook(hook); }), "cannot change while gradients are under way");
    for (size_t parameter : {1, 2}) reducer.ready(parameter, gradients.values[parameter].data());
    reducer.finish();
    expect_words(error_of([&] { reducer.set_static_graph(); }), "before the first iteration only");
  });
}

}  // namespace
}  // namespace horo::api
