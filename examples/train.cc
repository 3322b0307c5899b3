// Data-parallel training: every rank holds the whole network and computes the gradient of its share of each batch; the
// gradients are averaged while the backward pass still goes on. Before and after the training rank 0 trains alone for a
// while, so that the speed-up can be told.
#include <chrono>
#include <exception>
#include <limits>

#include "examples/arguments.h"
#include "examples/local_ranks.h"
#include "examples/network.h"
#include "examples/progress.h"

#include "horo/api/horo.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using example::Network;
using example::Samples;
using example::Score;

constexpr float kRate = 0.05F;
constexpr int kClasses = 16;
constexpr size_t kWidth = 128;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Plan {
  size_t batch;  ///< Samples per step, of all ranks together.
  size_t hidden;
  long steps;  ///< 0: as many as fit into `seconds`.
  double seconds;
  bool exact;  ///< All the steps, however long it takes.
  /// Seconds after which the training stops early.
  double limit() const { return exact ? std::numeric_limits<double>::infinity() : seconds; }
  std::vector<size_t> widths() const { return {kWidth, hidden, hidden / 2, kClasses}; }
};

/// Where the batch of a step begins; the set is gone through again and again.
size_t batch_begin(const Samples& set, size_t batch, long step) {
  return static_cast<size_t>(step) % (set.count() / batch) * batch;
}

struct Work {
  double samples = 0, seconds = 0;
  double speed() const { return samples / seconds; }
};

/// One rank trains a network of its own. At least 10 steps.
void train_alone(const Samples& set, const Plan& plan, double seconds, Work& work) {
  std::vector<float> gradient(Network::parameter_count(plan.widths()));
  Network network(plan.widths(), gradient.data());
  const auto start = Clock::now();
  long step = 0;
  for (; step < 10 || seconds_since(start) < seconds; ++step) {
    const size_t begin = batch_begin(set, plan.batch, step);
    network.forward(set.row(begin), &set.labels[begin], plan.batch);
    network.backward([](float*, size_t) {});
    network.step(kRate);
  }
  work.samples += static_cast<double>(step) * static_cast<double>(plan.batch);
  work.seconds += seconds_since(start);
}

struct Outcome {
  long steps = 0;
  Score first, last;   ///< Over all ranks: of the first steps, of the last steps.
  double seconds = 0;  ///< Of the training.
  double waited = 0;   ///< Of these, for gradients of other ranks.
};

/// All ranks together. `gradient` is the library's memory: averaging it needs no copy.
Outcome train(horo::Group& world, Network& network, const Samples& set, const Plan& plan, example::Progress& progress) {
  const size_t rows = plan.batch / static_cast<size_t>(world.size());
  const long report_every = std::max(1L, plan.steps / 40);
  Outcome outcome;
  std::vector<horo::Request> averages;
  Score recent;
  const auto start = Clock::now();
  for (long step = 0; step < plan.steps; ++step) {
    const size_t begin = batch_begin(set, plan.batch, step) + rows * static_cast<size_t>(world.rank());
    const Score score = network.forward(set.row(begin), &set.labels[begin], rows);
    averages.clear();
    network.backward([&](float* gradient, size_t count) {
      averages.push_back(world.allreduce_async(gradient, count, HORO_AVERAGE));
    });
    const auto computed = Clock::now();
    for (horo::Request& average : averages) average.wait();
    outcome.waited += seconds_since(computed);
    network.step(kRate);

    outcome.steps = step + 1;
    recent.loss += score.loss / static_cast<double>(report_every);
    recent.accuracy += score.accuracy / static_cast<double>(report_every);
    if ((step + 1) % report_every != 0) continue;
    const double elapsed = seconds_since(start);
    double all[] = {recent.loss, recent.accuracy, elapsed > plan.limit() ? 1.0 : 0.0};
    world.allreduce(all, 3, HORO_AVERAGE);
    outcome.last = {all[0], all[1]};
    if (outcome.steps == report_every) outcome.first = outcome.last;
    recent = {};
    const double done =
        std::max(static_cast<double>(outcome.steps) / static_cast<double>(plan.steps), elapsed / plan.limit());
    progress.show(std::min(done, 1.0), outcome.last.loss, outcome.last.accuracy,
                  static_cast<double>(outcome.steps) * static_cast<double>(plan.batch) / elapsed);
    if (all[2] > 0)
      break;  // The machine was busier than expected. All ranks see the same number, and stop at one step.
  }
  outcome.seconds = seconds_since(start);
  progress.end();
  return outcome;
}

/// Every rank looks at its share of samples that nobody trained with.
Score evaluate(horo::Group& world, Network& network, const Samples& held_out) {
  const size_t share = held_out.count() / static_cast<size_t>(world.size());
  const size_t begin = share * static_cast<size_t>(world.rank());
  const Score score = network.forward(held_out.row(begin), &held_out.labels[begin], share);
  double both[] = {score.loss, score.accuracy};
  world.allreduce(both, 2, HORO_AVERAGE);
  return {both[0], both[1]};
}

/// FNV-1a over the bits. Throws when a rank holds other parameters than rank 0.
uint64_t agree_on_parameters(horo::Group& world, const std::vector<float>& parameters) {
  uint64_t hash = 14695981039346656037U;
  const auto* bytes = reinterpret_cast<const unsigned char*>(parameters.data());
  for (size_t i = 0; i < parameters.size() * sizeof(float); ++i) hash = (hash ^ bytes[i]) * 1099511628211U;
  std::vector<uint64_t> all(static_cast<size_t>(world.size()));
  world.allgather(&hash, all.data(), 1);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all[0])
      throw std::runtime_error("rank " + std::to_string(rank) + " holds other parameters than rank 0");
  }
  return hash;
}

void tell(const Plan& plan, int ranks, size_t parameters, double alone, const Outcome& outcome, const Score& held_out,
          uint64_t hash) {
  const double speed = static_cast<double>(outcome.steps) * static_cast<double>(plan.batch) / outcome.seconds;
  std::printf("learned      loss %.2f -> %.2f, accuracy %.1f %% -> %.1f %%; %.1f %% of samples never seen before\n",
              outcome.first.loss, outcome.last.loss, 100 * outcome.first.accuracy, 100 * outcome.last.accuracy,
              100 * held_out.accuracy);
  std::printf("averaged     %zu gradients of %zu numbers per step; ranks waited %.1f %% of the time for each other\n",
              plan.widths().size() - 1, parameters, 100 * outcome.waited / outcome.seconds);
  std::printf("agreed       all %d ranks hold the same parameters, bit for bit (%016llx)\n", ranks,
              static_cast<unsigned long long>(hash));
  std::printf("speed        1 rank %.0f samples/s, %d ranks %.0f samples/s: speed-up %.2f\n", alone, ranks, speed,
              speed / alone);
}

void be_a_rank(Plan plan) {
  horo::Engine engine;
  horo::Group world = engine.world();
  const auto ranks = static_cast<size_t>(world.size());
  const bool first = world.rank() == 0;
  plan.batch = (plan.batch + ranks - 1) / ranks * ranks;
  const auto [set, held_out] = example::make_problem(kWidth, kClasses, 128 * plan.batch, 16 * plan.batch);
  const size_t parameters = Network::parameter_count(plan.widths());
  if (first) {
    std::printf("train: a network of %zu parameters, batches of %zu samples, %zu ranks over %s\n", parameters,
                plan.batch, ranks, world.transport().c_str());
    if (const double load = example::machine_load(); load > 0.5 * example::usable_cores()) {
      std::printf("note: other programs keep this machine busy (load %.1f on %d cores); the speed-up will suffer\n",
                  load, example::usable_cores());
    }
    std::fflush(stdout);
  }

  // Rank 0 finds out how fast it is alone, before the training and after it, as machines change their speed. The others
  // wait asleep. It then says how long the training will be.
  Work alone;
  if (first) {
    train_alone(set, plan, plan.seconds / 8, alone);
    const int busy = std::min(world.size(), example::usable_cores());
    const double fitting = alone.speed() * busy * plan.seconds * 0.7 / static_cast<double>(plan.batch);
    if (plan.steps == 0) plan.steps = std::max(40L, static_cast<long>(fitting));
  }
  world.broadcast(&plan.steps, 1, 0);

  auto gradient = engine.allocate<float>(parameters);  // Memory of the library: averaging needs no copy.
  Network network(plan.widths(), gradient.get());
  world.broadcast(network.parameters().data(), parameters, 0);  // All begin with the same.
  example::Progress progress(first);
  const Outcome outcome = train(world, network, set, plan, progress);
  const Score tested = evaluate(world, network, held_out);
  const uint64_t hash = agree_on_parameters(world, network.parameters());
  if (first) train_alone(set, plan, plan.seconds / 8, alone);
  world.barrier();
  if (first) tell(plan, world.size(), parameters, alone.speed(), outcome, tested, hash);
  if (outcome.last.loss >= outcome.first.loss) throw std::runtime_error("the loss did not fall");
}

}  // namespace

int main(int argc, char** argv) try {
  example::Arguments arguments(argc, argv,
                               "Trains a small network on several ranks, and tells how much faster they are.");
  const long ranks =
      arguments.number("--ranks", std::max(2, example::usable_cores()), 1, 256, "how many ranks to start");
  const long seconds = arguments.number("--seconds", 12, 1, 3600, "about how long it takes");
  const long steps =
      arguments.number("--steps", 0, 0, 10'000'000, "train for so many steps instead; 0: as time allows");
  const long batch = arguments.number("--batch", 256, 8, 65536, "samples per step, of all ranks together");
  const long hidden = arguments.number("--hidden", 512, 16, 8192, "width of the first hidden layer, a multiple of 16");
  if (hidden % 16 != 0) arguments.complain("--hidden is " + std::to_string(hidden) + ", not a multiple of 16");
  arguments.finish();
  if (!example::is_rank()) return example::exit_code(example::run_ranks(static_cast<int>(ranks), argv));
  be_a_rank({static_cast<size_t>(batch), static_cast<size_t>(hidden), steps, static_cast<double>(seconds), steps > 0});
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train: %s\n", error.what());
  return 1;
}
