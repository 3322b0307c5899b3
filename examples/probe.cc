// How long an allreduce takes, and how many bytes per second that is, in ordinary memory and in the library's.
#include <chrono>
#include <exception>

#include "examples/arguments.h"
#include "examples/local_ranks.h"

#include "horo/api/horo.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// "64K" is 65536; 0 when it is no size.
uint64_t parse_size(const std::string& word) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || value > (uint64_t{1} << 40)) return 0;
  const std::string_view unit(end, static_cast<size_t>(word.data() + word.size() - end));
  if (unit.empty()) return value;
  return unit == "K" ? value << 10 : unit == "M" ? value << 20 : unit == "G" ? value << 30 : 0;
}

std::vector<uint64_t> parse_sizes(const std::string& words, example::Arguments& arguments) {
  std::vector<uint64_t> sizes;
  for (size_t begin = 0; begin <= words.size();) {
    const size_t comma = std::min(words.find(',', begin), words.size());
    const std::string word = words.substr(begin, comma - begin);
    sizes.push_back(parse_size(word));
    if (sizes.back() == 0 || sizes.back() % sizeof(float) != 0) {
      arguments.complain("--sizes has '" + word + "', not a number of bytes such as 4, 64K or 16M, in fours");
    }
    begin = comma + 1;
  }
  return sizes;
}

/// Median seconds of an in-place allreduce, over all ranks the longest. Every rank makes the same number of calls: rank
/// 0 says how many.
double median_seconds(horo::Group& world, float* memory, size_t count, double budget) {
  auto once = [&] {
    const auto start = Clock::now();
    world.allreduce(memory, count, HORO_MAX);  // The maximum: the numbers stay what they are.
    return seconds_since(start);
  };
  once();
  double repeats = std::clamp(budget / once(), 5.0, 20000.0);
  world.broadcast(&repeats, 1, 0);
  std::vector<double> samples(static_cast<size_t>(repeats));
  for (double& sample : samples) sample = once();
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2), samples.end());
  double median = samples[samples.size() / 2];
  world.allreduce(&median, 1, HORO_MAX);
  return median;
}

std::string size_text(uint64_t bytes) {
  for (const auto& [unit, shift] : {std::pair{"G", 30}, {"M", 20}, {"K", 10}}) {
    if (bytes >> shift != 0 && bytes % (uint64_t{1} << shift) == 0) return std::to_string(bytes >> shift) + unit;
  }
  return std::to_string(bytes);
}

void be_a_rank(const std::vector<uint64_t>& sizes, double budget) {
  horo::Engine engine;
  horo::Group world = engine.world();
  const bool first = world.rank() == 0;
  if (first) {
    std::printf("allreduce of f32 in place, %d ranks over %s, medians\n\n", world.size(), world.transport().c_str());
    std::printf("%8s %14s %10s %18s %10s\n", "bytes", "ordinary us", "GB/s", "library's us", "GB/s");
  }
  for (const uint64_t bytes : sizes) {
    const size_t count = bytes / sizeof(float);
    std::vector<float> ordinary(count, 1.0F);
    auto shared = engine.allocate<float>(count);
    std::fill_n(shared.get(), count, 1.0F);
    const double plain = median_seconds(world, ordinary.data(), count, budget);
    const double zero_copy = median_seconds(world, shared.get(), count, budget);
    if (ordinary[count - 1] != 1.0F || shared[count - 1] != 1.0F) throw std::runtime_error("the result is wrong");
    if (!first) continue;
    const auto gigabytes = static_cast<double>(bytes) / 1e9;
    std::printf("%8s %14.2f %10.2f %18.2f %10.2f\n", size_text(bytes).c_str(), plain * 1e6, gigabytes / plain,
                zero_copy * 1e6, gigabytes / zero_copy);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  example::Arguments arguments(argc, argv,
                               "Measures allreduce on the ranks of this machine. `horo bench` does it thoroughly.");
  const long ranks = arguments.number("--ranks", 2, 1, 256, "how many ranks to start");
  const std::string words = arguments.text("--sizes", "4,1K,64K,1M,16M,64M", "bytes of the message, with K, M or G");
  const long milliseconds = arguments.number("--ms", 300, 1, 60000, "about how long each figure takes");
  const std::vector<uint64_t> sizes = parse_sizes(words, arguments);
  arguments.finish();
  if (!example::is_rank()) return example::exit_code(example::run_ranks(static_cast<int>(ranks), argv));
  be_a_rank(sizes, static_cast<double>(milliseconds) / 1000);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "probe: %s\n", error.what());
  return 1;
}
