// For tests: a model of f32 parameters and its reducer.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "horo/api/ddp.hpp"
#include "horo/api/rank_threads_testing.h"

namespace horo::api {

inline std::vector<int> range_of(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// What a model's reducer is made of.
struct Model {
  std::vector<std::vector<int64_t>> shapes;
  std::vector<uint64_t> first_limits, rebuilt_limits;
  horo_reducer_options options = HORO_REDUCER_OPTIONS_INIT;
  std::vector<std::string> names = {};  ///< Else p0, p1, ...
  std::vector<horo_dtype> dtypes = {};  ///< Else f32.
  std::vector<size_t> sparse = {};

  Reducer make(const Group& group) {
    std::vector<horo_parameter> parameters;
    names.resize(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (names[i].empty()) names[i] = "p" + std::to_string(i);
      horo_parameter parameter = HORO_PARAMETER_INIT;
      parameter.name = names[i].c_str();
      parameter.shape = shapes[i].data();
      parameter.dimensions = shapes[i].size();
      if (i < dtypes.size()) parameter.dtype = dtypes[i];
      for (size_t one : sparse) parameter.sparse = one == i ? 1 : parameter.sparse;
      parameters.push_back(parameter);
    }
    options.parameters = parameters.data();
    options.parameter_count = parameters.size();
    options.first_limits = first_limits.data();
    options.first_limit_count = first_limits.size();
    options.rebuilt_limits = rebuilt_limits.data();
    options.rebuilt_limit_count = rebuilt_limits.size();
    return {group, options};
  }
  size_t count(size_t parameter) const {
    size_t product = 1;
    for (int64_t extent : shapes[parameter]) product *= static_cast<size_t>(extent);
    return product;
  }
};

/// Gradients of a model: element e of parameter p on `rank` in `iteration`, a small number that sums exactly.
class Gradients {
 public:
  explicit Gradients(const Model& model) {
    for (size_t p = 0; p < model.shapes.size(); ++p) values.emplace_back(model.count(p));
  }
  static float value(int rank, uint64_t iteration, size_t parameter, size_t element) {
    const auto mixed = (element * 7 + parameter * 31 + iteration * 13) % 64;
    return static_cast<float>(mixed) - 32.0F + static_cast<float>(rank) * 0.5F;
  }
  void fill(int rank, uint64_t iteration) {
    for (size_t p = 0; p < values.size(); ++p) {
      for (size_t e = 0; e < values[p].size(); ++e) values[p][e] = value(rank, iteration, p, e);
    }
  }
  /// The average over ranks 0..members-1 that were given by `gives`.
  template <class Gives>
  static float average(int members, uint64_t iteration, size_t parameter, size_t element, Gives gives) {
    float sum = 0;
    for (int rank = 0; rank < members; ++rank) {
      if (gives(rank)) sum += value(rank, iteration, parameter, element);
    }
    return sum / static_cast<float>(members);
  }
  void expect_averages(int members, uint64_t iteration) const {
    for (size_t p = 0; p < values.size(); ++p) expect_average(p, members, iteration);
  }
  void expect_average(size_t p, int members, uint64_t iteration) const {
    for (size_t e = 0; e < values[p].size(); ++e) {
      const float expected = average(members, iteration, p, e, [](int) { return true; });
      // 1 / members is rounded where members is no power of two.
      ASSERT_NEAR(values[p][e], expected, 4e-6F * 64) << "parameter " << p << ", element " << e;
    }
  }
  std::vector<std::vector<float>> values;
};

/// One iteration in which gradients come in `order`.
inline std::vector<horo_outcome> iterate(Reducer& reducer, Gradients& gradients, const std::vector<size_t>& order) {
  reducer.prepare_forward();
  reducer.prepare_backward();
  for (size_t parameter : order) reducer.ready(parameter, gradients.values[parameter].data());
  EXPECT_TRUE(reducer.all_launched());
  return reducer.finish();
}

inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace horo::api
