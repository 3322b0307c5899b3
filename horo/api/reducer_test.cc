// Reducers over real groups: ranks are threads, memory is shared or not.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "horo/api/reducer_testing.h"

namespace horo::api {
namespace {

/// Over shared memory, and over sockets.
class ApiReducer : public testing::TestWithParam<const char*> {
 protected:
  void run(int ranks, const std::function<void(Engine&)>& body) {
    run_ranks(ranks, body, {std::string("HORO_TRANSPORT=") + GetParam()});
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, ApiReducer, testing::Values("auto", "tcp"),
                         [](const auto& one) { return std::string(one.param == std::string("tcp") ? "Tcp" : "Shm"); });

std::vector<size_t> range(size_t count) {
  std::vector<size_t> all(count);
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

/// Five parameters, of which some fill a bucket alone.
Model small_model() { return {{{100, 30}, {7}, {}, {300}, {64, 64}}, {4096}, {2048, 8192}}; }

TEST_P(ApiReducer, AveragesAreTheSameBitsOnAllRanksInAnyOrderOfGradientsAndAfterARebuild) {
  for (int ranks : {1, 2, 3, 4}) {
    std::vector<std::vector<std::vector<float>>> results(static_cast<size_t>(ranks));
    run(ranks, [&](Engine& engine) {
      Model model = small_model();
      Group group = engine.group(range_of(engine.size()));
      Reducer reducer = model.make(group);
      Gradients gradients(model);
      std::mt19937 random(static_cast<unsigned>(engine.rank()));
      std::vector<size_t> order = range(model.shapes.size());
      for (uint64_t iteration = 0; iteration < 4; ++iteration) {
        std::shuffle(order.begin(), order.end(), random);
        gradients.fill(engine.rank(), iteration);
        for (horo_outcome outcome : iterate(reducer, gradients, order)) EXPECT_EQ(outcome, HORO_REDUCED);
        gradients.expect_averages(ranks, iteration);
        EXPECT_EQ(reducer.ready_order(), order);
      }
      EXPECT_EQ(reducer.statistics().rebuilt, 1);
      results[static_cast<size_t>(engine.rank())] = gradients.values;
    });
    for (const auto& one : results) EXPECT_EQ(one, results[0]) << ranks << " ranks";
  }
}

TEST_P(ApiReducer, BucketsAreRebuiltOnceInTheOrderOfRankZero) {
  run(3, [](Engine& engine) {
    Model model = small_model();
    Group group = engine.group(range_of(engine.size()));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    const std::vector<std::vector<size_t>> orders{{2, 0, 4, 1, 3}, {4, 3, 2, 1, 0}, {0, 1, 2, 3, 4}};
    const auto& order = orders[static_cast<size_t>(engine.rank())];
    const auto kept = reducer.memory(0);
    EXPECT_FALSE(reducer.prepare_forward());
    EXPECT_EQ(reducer.slot(4).bucket, 0u) << "the last parameters first";
    iterate(reducer, gradients, order);
    EXPECT_TRUE(reducer.prepare_forward());
    std::vector<std::vector<size_t>> buckets;
    for (size_t b = 0; b < reducer.buckets(); ++b) {
      const horo_bucket bucket = reducer.bucket(b);
      buckets.emplace_back(bucket.parameters, bucket.parameters + bucket.parameter_count);
    }
    EXPECT_EQ(buckets, (std::vector<std::vector<size_t>>{{2, 0}, {4}, {1, 3}}));
    EXPECT_FALSE(reducer.prepare_forward());
    static_cast<char*>(kept.get())[0] = 1;  // Still there.
    gradients.fill(engine.rank(), 5);
    iterate(reducer, gradients, order);
    gradients.expect_averages(3, 5);
  });
}

TEST_P(ApiReducer, GradientsThatAreViewsOfBucketsStayWhereTheyAre) {
  run(2, [](Engine& engine) {
    Model model = small_model();
    model.options.views = 1;
    Group group = engine.group(range_of(engine.size()));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    const auto order = range(model.shapes.size());
    for (uint64_t iteration = 0; iteration < 3; ++iteration) {
      reducer.prepare_forward();
      reducer.prepare_backward();
      gradients.fill(engine.rank(), iteration);
      for (size_t parameter : order) {
        const auto slot = reducer.slot(parameter);
        auto* view = static_cast<char*>(reducer.bucket(slot.bucket).memory) + slot.offset;
        const auto& from = gradients.values[parameter];
        // Every other one is given where it was computed.
        if (parameter % 2 == 0) std::memcpy(view, from.data(), from.size() * sizeof(float));
        reducer.ready(parameter, parameter % 2 == 0 ? static_cast<const void*>(view) : from.data());
      }
      for (horo_outcome outcome : reducer.finish()) EXPECT_EQ(outcome, HORO_REDUCED);
      Gradients results(model);
      for (size_t parameter : order) {
        const auto slot = reducer.slot(parameter);
        std::memcpy(results.values[parameter].data(),
                    static_cast<const char*>(reducer.bucket(slot.bucket).memory) + slot.offset,
                    results.values[parameter].size() * sizeof(float));
      }
      results.expect_averages(2, iteration);
    }
  });
}

TEST_P(ApiReducer, BackwardPassesThatOnlyAddUpAreNotReduced) {
  run(2, [](Engine& engine) {
    Model model = small_model();
    Group group = engine.group(range_of(engine.size()));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    const auto order = range(model.shapes.size());
    const auto before = [&] {
      gradients.fill(engine.rank(), 1);
      return gradients.values;
    }();
    for (int pass = 0; pass < 2; ++pass) {
      reducer.prepare_forward();
      reducer.prepare_backward(false);
      for (size_t parameter : order) EXPECT_EQ(reducer.ready(parameter, gradients.values[parameter].data()), 0u);
    }
    EXPECT_EQ(gradients.values, before);
    iterate(reducer, gradients, order);
    gradients.expect_averages(2, 1);
    EXPECT_EQ(reducer.statistics().iterations, 1u);
  });
}

TEST_P(ApiReducer, WhatSomeRanksDoNotUseIsReducedAndWhatNobodyUsesIsUntouched) {
  run(3, [](Engine& engine) {
    Model model = small_model();
    model.options.find_unused = 1;
    Group group = engine.group(range_of(engine.size()));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    const int rank = engine.rank();
    for (uint64_t iteration = 0; iteration < 3; ++iteration) {
      gradients.fill(rank, iteration);
      const auto before = gradients.values;
      // Nobody uses 4; rank r does not use r; rank 1 has no gradient for what it does not use.
      reducer.prepare_forward();
      const auto mine = static_cast<size_t>(rank);
      reducer.prepare_backward({mine, 4}, {});
      for (size_t parameter : {3, 2, 1, 0}) {
        if (parameter != mine) reducer.ready(parameter, gradients.values[parameter].data());
      }
      std::vector<void*> outputs;
      for (auto& values : gradients.values) outputs.push_back(values.data());
      if (rank == 1) outputs[1] = nullptr;
      const auto outcomes = reducer.finish_at(outputs.data());
      for (size_t p = 0; p < 4; ++p) {
        EXPECT_EQ(outcomes[p], rank == 1 && p == 1 ? HORO_WITHOUT_PLACE : HORO_REDUCED);
        const auto slot = reducer.slot(p);
        const auto* found = outcomes[p] == HORO_REDUCED
                                ? gradients.values[p].data()
                                : reinterpret_cast<const float*>(
                                      static_cast<const char*>(reducer.bucket(slot.bucket).memory) + slot.offset);
        for (size_t e = 0; e < gradients.values[p].size(); ++e) {
          const auto gives = [&](int one) { return static_cast<size_t>(one) != p; };
          ASSERT_NEAR(found[e], Gradients::average(3, iteration, p, e, gives), 1e-4);
        }
      }
      EXPECT_EQ(outcomes[4], HORO_UNTOUCHED);
      EXPECT_EQ(gradients.values[4], before[4]);
      EXPECT_EQ(reducer.statistics().unused_bytes, 64u * 64 * 4);
    }
  });
}

TEST_P(ApiReducer, GradientsOfEarlierPassesCountAlsoWhereThisOneDoesNotUseTheParameter) {
  run(2, [](Engine& engine) {
    Model model = small_model();
    model.options.find_unused = 1;
    Group group = engine.group(range_of(engine.size()));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    gradients.fill(engine.rank(), 2);
    reducer.prepare_forward();
    reducer.prepare_backward(false);
    reducer.ready(0, gradients.values[0].data());
    reducer.prepare_forward();
    reducer.prepare_backward({0}, {gradients.values[0].data()});
    for (size_t parameter : {4, 3, 2, 1}) reducer.ready(parameter, gradients.values[parameter].data());
    for (horo_outcome outcome : reducer.finish()) EXPECT_EQ(outcome, HORO_REDUCED);
    gradients.expect_averages(2, 2);
  });
}

TEST_P(ApiReducer, BucketsThatNobodyUsesCanBeSkippedIfAllRanksAgree) {
  run(2, [](Engine& engine) {
    Model model = small_model();
    model.options.find_unused = model.options.skip_unused = 1;
    Group group = engine.group(range_of(engine.size()));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    ASSERT_EQ(reducer.buckets(), 2u);
    ASSERT_EQ(reducer.slot(4).bucket, 0u);
    const auto pass = [&](bool unused) {
      gradients.fill(engine.rank(), 3);
      reducer.prepare_forward();
      reducer.prepare_backward(unused ? std::vector<size_t>{1, 2, 3, 4} : std::vector<size_t>{}, {});
      for (size_t parameter : unused ? std::vector<size_t>{0} : range(5)) {
        reducer.ready(parameter, gradients.values[parameter].data());
      }
      return reducer.finish();
    };
    const auto first = reducer.statistics();
    EXPECT_EQ(pass(true)[4], HORO_UNTOUCHED);
    gradients.expect_average(0, 2, 3);
    EXPECT_EQ(reducer.statistics().buckets_skipped, first.buckets_skipped + 1);
    const std::string error = error_of([&] { pass(engine.rank() == 0); });
    EXPECT_FALSE(error.empty());
    for (horo_outcome outcome : pass(false)) EXPECT_EQ(outcome, HORO_REDUCED);
    gradients.expect_averages(2, 3);
  });
}

TEST_P(ApiReducer, AStaticGraphMayUseParametersSeveralTimes) {
  run(2, [](Engine& engine) {
    Model model = small_model();
    model.options.static_graph = 1;
    Group group = engine.group(range_of(engine.size()));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    for (uint64_t iteration = 0; iteration < 4; ++iteration) {
      // Parameter 2 is used by nobody, 3 by rank 0 only, 1 three times.
      const int rank = engine.rank();
      const bool rebuilt = reducer.prepare_forward();
      EXPECT_EQ(rebuilt, iteration == 2) << "the first iteration says nothing about the order";
      reducer.prepare_backward();
      gradients.fill(rank, iteration);
      const auto before = gradients.values;
      for (size_t parameter : {4, 1, 0, 1, 3, 1}) {
        if (parameter == 3 && rank == 1) continue;
        reducer.ready(parameter, gradients.values[parameter].data());
      }
      EXPECT_EQ(reducer.all_launched(), iteration > 0);
      const auto outcomes = reducer.finish();
      EXPECT_EQ(outcomes, (std::vector<horo_outcome>{HORO_REDUCED, HORO_REDUCED, HORO_UNTOUCHED,
                                                     rank == 0 ? HORO_REDUCED : HORO_WITHOUT_PLACE, HORO_REDUCED}));
      for (size_t p : {0, 1, 4}) gradients.expect_average(p, 2, iteration);
      EXPECT_EQ(gradients.values[2], before[2]);
      if (rank == 0) {
        EXPECT_EQ(gradients.values[3][5], Gradients::value(0, iteration, 3, 5) / 2);
      }
    }
    reducer.prepare_forward();
    reducer.prepare_backward();
    for (size_t parameter : {4, 1, 0, 1, 1}) reducer.ready(parameter, gradients.values[parameter].data());
    const std::string error = error_of([&] { reducer.ready(1, gradients.values[1].data()); });
    EXPECT_NE(error.find("'p1' got more gradients"), std::string::npos) << error;
    EXPECT_NE(error_of([&] { reducer.finish(); }).find("rank 0: parameter 'p1' got more"), std::string::npos);
  });
}

TEST_P(ApiReducer, ARankWithoutDataHelpsTheOthersAndTheDivisorIsTheCallers) {
  run(3, [](Engine& engine) {
    Model model = small_model();
    Group group = engine.group(range_of(engine.size()));
    Reducer reducer = model.make(group);
    Gradients gradients(model);
    for (uint64_t iteration = 0; iteration < 3; ++iteration) {
      gradients.fill(engine.rank(), iteration);
      reducer.set_divisor(iteration == 1 ? 2 : 0);
      reducer.prepare_forward();
      reducer.prepare_backward();
      if (engine.rank() == 0) {
        EXPECT_EQ(reducer.ready_all(), unsigned{HORO_READY_ALL_LAUNCHED});
        for (horo_outcome outcome : reducer.finish()) EXPECT_EQ(outcome, HORO_WITHOUT_PLACE);
        continue;
      }
      for (size_t parameter : range(5)) reducer.ready(parameter, gradients.values[parameter].data());
      reducer.finish();
      const float both = Gradients::value(1, iteration, 3, 17) + Gradients::value(2, iteration, 3, 17);
      EXPECT_NEAR(gradients.values[3][17], both / (iteration == 1 ? 2.0F : 3.0F), 1e-4);
    }
  });
}

/// Buckets that take several operations each, and between them one that the caller reduces with operations of its own.
TEST_P(ApiReducer, SparseBucketsAreTheCallersAndKeepTheirPlaceAmongTheOthers) {
  for (horo_hook_kind kind : {HORO_HOOK_ALLREDUCE, HORO_HOOK_FP16, HORO_HOOK_INT8, HORO_HOOK_POWERSGD}) {
    run(3, [kind](Engine& engine) {
      Model model = small_model();
      model.first_limits = {1};
      model.sparse = {1, 3};
      Group group = engine.group(range_of(engine.size()));
      Reducer reducer = model.make(group);
      horo_hook_options hook = HORO_HOOK_OPTIONS_INIT;
      hook.kind = kind;
      hook.start_iteration = 1;
      reducer.set_hook(hook);
      Gradients gradients(model);
      std::mt19937 random(static_cast<unsigned>(engine.rank()));
      std::vector<size_t> order = range(5);
      for (uint64_t iteration = 0; iteration < 4; ++iteration) {
        std::shuffle(order.begin(), order.end(), random);
        gradients.fill(engine.rank(), iteration);
        const auto before = gradients.values;
        reducer.prepare_forward();
        reducer.prepare_backward();
        std::vector<int> sums;
        for (size_t parameter : order) {
          unsigned events = reducer.ready(parameter, gradients.values[parameter].data());
          while ((events & HORO_READY_TAKE) != 0) {
            const size_t bucket = *reducer.take();
            EXPECT_EQ(reducer.bucket(bucket).sparse, 1);
            int sum = static_cast<int>(bucket) + engine.rank();
            group.allreduce(&sum, 1);
            EXPECT_EQ(sum, 3 * static_cast<int>(bucket) + 3) << "no other operation came between";
            events = reducer.launched(bucket);
          }
        }
        const auto outcomes = reducer.finish();
        EXPECT_EQ(outcomes[1], HORO_BY_CALLER);
        EXPECT_EQ(outcomes[3], HORO_BY_CALLER);
        EXPECT_EQ(gradients.values[1], before[1]);
        EXPECT_EQ(outcomes[0], HORO_REDUCED);
        if (kind == HORO_HOOK_ALLREDUCE || iteration == 0) {
          if (kind == HORO_HOOK_ALLREDUCE || kind == HORO_HOOK_POWERSGD) gradients.expect_average(0, 3, iteration);
        }
      }
    });
  }
}

TEST_P(ApiReducer, HooksThatShortenGiveTheSameBitsOnAllRanksAndCountTheirBytes) {
  for (horo_hook_kind kind : {HORO_HOOK_FP16, HORO_HOOK_BF16, HORO_HOOK_INT8, HORO_HOOK_POWERSGD}) {
    std::vector<std::vector<std::vector<float>>> results(4);
    run(4, [&](Engine& engine) {
      Model model = small_model();
      Group group = engine.group(range_of(engine.size()));
      Reducer reducer = model.make(group);
      horo_hook_options hook = HORO_HOOK_OPTIONS_INIT;
      hook.kind = kind;
      hook.rank = 2;
      hook.start_iteration = 0;
      reducer.set_hook(hook);
      Gradients gradients(model);
      for (uint64_t iteration = 0; iteration < 4; ++iteration) {
        gradients.fill(engine.rank(), iteration);
        iterate(reducer, gradients, range(5));
        if (kind == HORO_HOOK_FP16) gradients.expect_averages(4, iteration);  // Small numbers: exact.
      }
      const auto statistics = reducer.statistics();
      const double share = static_cast<double>(statistics.sent_bytes) / static_cast<double>(statistics.gradient_bytes);
      EXPECT_LE(share, kind == HORO_HOOK_INT8 ? 0.26 : kind == HORO_HOOK_POWERSGD ? 0.15 : 0.5);
      results[static_cast<size_t>(engine.rank())] = gradients.values;
    });
    for (const auto& one : results) EXPECT_EQ(one, results[0]) << kind;
  }
}

TEST_P(ApiReducer, StatisticsCountAndTimesAreInOrder) {
  run(2, [](Engine& engine) {
    Model model = small_model();
    Group group = engine.group(range_of(engine.size()));
    Reducer reducer = model.make(group);
    reducer.set_sample_rate(7);
    Gradients gradients(model);
    for (int iteration = 0; iteration < 15; ++iteration) iterate(reducer, gradients, range(5));
    const auto statistics = reducer.statistics();
    const uint64_t bytes = 4 * (3000 + 7 + 1 + 300 + 4096);
    EXPECT_EQ(statistics.iterations, 15u);
    EXPECT_EQ(statistics.failures, 0u);
    EXPECT_EQ(statistics.gradient_bytes, 15 * bytes);
    EXPECT_EQ(statistics.sent_bytes, 15 * bytes);
    EXPECT_EQ(statistics.samples, 11u) << "the first ten, and the 14th";
    const auto& last = statistics.last;
    EXPECT_GT(last.forward_start, 0);
    EXPECT_LE(last.forward_start, last.backward_start);
    EXPECT_LE(last.backward_start, last.communication_start);
    EXPECT_LE(last.communication_start, last.backward_end);
    EXPECT_LE(last.communication_start, last.communication_end);
    EXPECT_GT(statistics.mean_backward, 0);
    EXPECT_GT(statistics.mean_communication, 0);
    EXPECT_GE(statistics.mean_overlap, 0);
  });
}

}  // namespace
}  // namespace horo::api
