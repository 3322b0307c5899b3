// Steps as a training has them: many small tensors and a few large ones, handed in one after the other and then waited
// for. Every result is checked. Prints what a step took in the first and in the last fifth.
//
//   traffic STEPS [SMALL [LARGE]]: so many tensors of 4 KiB (64) and of 1 MiB (2)
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "horo/api/horo.hpp"

namespace {

using Clock = std::chrono::steady_clock;

struct Tensor {
  std::string name;
  std::vector<float> values;
};

std::vector<Tensor> tensors(int small, int large) {
  std::vector<Tensor> all;
  for (int i = 0; i < small; ++i) all.push_back({"small " + std::to_string(i), std::vector<float>(1 << 10)});
  for (int i = 0; i < large; ++i) all.push_back({"large " + std::to_string(i), std::vector<float>(1 << 18)});
  return all;
}

bool step(horo::Runtime& runtime, std::vector<Tensor>& all, int number) {
  const auto own = static_cast<float>(runtime.rank() + number % 5);
  std::vector<horo::Handle> handles;
  for (Tensor& tensor : all) {
    tensor.values.assign(tensor.values.size(), own);
    handles.push_back(runtime.allreduce_async(tensor.name.c_str(), tensor.values.data(), tensor.values.size()));
  }
  for (horo::Handle& handle : handles) handle.wait();
  const int size = runtime.size();
  const auto expected = static_cast<float>(size * (size - 1) / 2 + size * (number % 5));
  for (const Tensor& tensor : all) {
    for (float value : tensor.values) {
      if (value == expected) continue;
      std::fprintf(stderr, "step %d: %s has %g instead of %g\n", number, tensor.name.c_str(), value, expected);
      return false;
    }
  }
  return true;
}

double micros(Clock::duration time, int steps) {
  return std::chrono::duration<double, std::micro>(time).count() / std::max(steps, 1);
}

}  // namespace

int main(int argc, char** argv) try {
  const auto number = [&](int at, int fallback) { return argc > at ? std::atoi(argv[at]) : fallback; };
  const int steps = number(1, 100), fifth = steps / 5;
  std::vector<Tensor> all = tensors(number(2, 64), number(3, 2));
  horo::Runtime runtime;
  Clock::time_point begin = Clock::now(), first = begin, last = begin;
  for (int i = 0; i < steps; ++i) {
    if (i == fifth) first = Clock::now();
    if (i == steps - fifth) last = Clock::now();
    if (!step(runtime, all, i)) return 1;
  }
  const Clock::time_point end = Clock::now();
  if (runtime.rank() == 0) {
    std::printf("us per step: %.0f in the first fifth, %.0f in the last\n", micros(first - begin, fifth),
                micros(end - last, fifth));
  }
  runtime.barrier();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 3;
}
