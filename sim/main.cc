// horo-sim: runs seeds and reports the first violation; a seed replays exactly.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string_view>

#include "sim/simulation.h"

#include "horo/base/text.h"

namespace {

using horo::sim::World;

constexpr const char* kUsage =
    "usage: horo-sim [--seeds FIRST..LAST] [--ranks N] [--partitions | --isolation] [--bug NAME] [--verbose]\n"
    "Simulates jobs of N ranks (default: 2 to 8, by seed) that lose members, one job per seed.\n";

struct Request {
  uint64_t first = 1;
  uint64_t last = 1000;
  int ranks = 0;
  World::Options options;
};

template <class Number>
bool parse(std::string_view word, Number& number) {
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

bool parse_seeds(std::string_view word, Request& request) {
  size_t dots = word.find("..");
  if (dots == std::string_view::npos) return parse(word, request.first) && parse(word, request.last);
  return parse(word.substr(0, dots), request.first) && parse(word.substr(dots + 2), request.last);
}

std::optional<Request> parse_arguments(int count, char** words) {
  Request request;
  for (int i = 1; i < count; ++i) {
    std::string_view flag = words[i];
    if (flag == "--verbose") {
      request.options.verbose = true;
      continue;
    }
    if (flag == "--partitions" || flag == "--isolation") {
      request.options.partitions = true;
      request.options.isolation |= flag == "--isolation";
      continue;
    }
    if (i + 1 >= count) return std::nullopt;
    std::string_view value = words[++i];
    if (flag == "--seeds") {
      if (!parse_seeds(value, request)) return std::nullopt;
    } else if (flag == "--ranks") {
      if (!parse(value, request.ranks) || request.ranks < 2 || request.ranks > 15) return std::nullopt;
    } else if (flag == "--bug") {
      auto bug = horo::sim::bug_named(value);
      if (!bug) return std::nullopt;
      request.options.bug = *bug;
    } else {
      return std::nullopt;
    }
  }
  return request;
}

}  // namespace

int main(int count, char** words) {
  auto request = parse_arguments(count, words);
  if (!request) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  World::Counts total;
  auto began = std::chrono::steady_clock::now();
  for (uint64_t seed = request->first; seed <= request->last; ++seed) {
    World::Options options = request->options;
    options.seed = seed;
    options.ranks = request->ranks > 0 ? request->ranks : static_cast<int>(2 + seed % 7);
    horo::sim::Outcome outcome = simulate(options);
    if (outcome.violation) {
      std::printf("seed %llu, %d ranks (%s): %s\n", static_cast<unsigned long long>(seed), options.ranks,
                  outcome.scenario.c_str(), outcome.violation->c_str());
      return 1;
    }
    total += outcome.counts;
  }
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  auto runs = static_cast<double>(request->last - request->first + 1);
  std::puts(horo::text(runs, " seeds in ", took.count(), " s (", runs / took.count(), " per s): ", total.struck,
                       " faults, ", total.rounds, " rounds, ", total.replaced, " decisions replaced, ", total.served,
                       " results re-served, ", total.fenced, " ranks fenced, ", total.operations,
                       " operations of ranks, ", total.events, " events; no violation")
                .c_str());
  if (request->options.partitions) {
    std::puts(horo::text("  ", total.blocked, " links held back, ", total.worlds, " smaller worlds, ", total.stopped,
                         " ranks without a quorum; somebody goes on at the end of ", total.gone_on, " runs; ",
                         total.overlooked, " worlds beside one that had ended")
                  .c_str());
  }
  return 0;
}
