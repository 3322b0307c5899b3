// For tests: parameters of a model.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "horo/ddp/buckets.h"

namespace horo::ddp {

/// One f32 parameter for each number of elements, called p0, p1, ...
inline std::vector<Parameter> model_of(const std::vector<int64_t>& counts) {
  std::vector<Parameter> parameters;
  for (int64_t count : counts) {
    Parameter parameter;
    parameter.name = "p" + std::to_string(parameters.size());
    parameter.shape = {count};
    parameters.push_back(parameter);
  }
  return parameters;
}

inline uint64_t base_seed() {
  const char* text = std::getenv("TEST_SEED");  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

}  // namespace horo::ddp
