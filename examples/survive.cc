// A rank dies in the middle of a sum; the others notice, make a group of those who are left, and go on.
#include <signal.h>

#include <exception>
#include <optional>

#include "examples/arguments.h"
#include "examples/local_ranks.h"

#include "horo/api/horo.hpp"

namespace {

constexpr int kVictim = 1;
constexpr int kRounds = 10;
constexpr int kRoundOfDeath = 5;

/// Adds up one value per rank, as a training loop would average gradients. Goes on with whoever is left.
class Survivor {
 public:
  explicit Survivor(horo::Engine& engine) : engine_(engine), ranks_(engine.members()), group_(engine.world()) {}

  const std::vector<int>& ranks() const { return ranks_; }

  double sum(double mine) {
    while (true) {
      try {
        if (!group_) group_ = engine_.group(ranks_);
        double value = mine;
        group_->allreduce(&value, 1);
        return value;
      } catch (const horo::Error& error) {
        // Every survivor comes here for the very same operation. All of them leave out who is lost and try again; if
        // somebody dies meanwhile, then once more.
        if (error.code() != HORO_PEER_LOST) throw;
        std::printf("rank %d: %s\n", engine_.rank(), error.what());
        for (const int lost : error.lost()) std::erase(ranks_, lost);
        group_.reset();
        std::printf("rank %d: goes on as one of %zu\n", engine_.rank(), ranks_.size());
      }
    }
  }

 private:
  horo::Engine& engine_;
  std::vector<int> ranks_;
  std::optional<horo::Group> group_;
};

void be_a_rank() {
  horo::Engine engine;
  Survivor survivor(engine);
  for (int round = 0; round < kRounds; ++round) {
    if (round == kRoundOfDeath && engine.rank() == kVictim && engine.size() > 1) {
      std::printf("rank %d: dies now\n", kVictim);
      std::fflush(stdout);
      raise(SIGKILL);
    }
    const double sum = survivor.sum(engine.rank() + 1);
    double expected = 0;
    for (const int rank : survivor.ranks()) expected += rank + 1;
    if (sum != expected)
      throw std::runtime_error("the sum is " + std::to_string(sum) + ", not " + std::to_string(expected));
    if (engine.rank() == 0) std::printf("round %d: %zu ranks, the sum is %g\n", round, survivor.ranks().size(), sum);
    std::fflush(stdout);
  }
}

/// The victim must have died and nobody else.
int judge(const std::vector<int>& codes) {
  int held = 0;
  for (size_t rank = 0; rank < codes.size(); ++rank) {
    const int expected = rank == kVictim ? -SIGKILL : 0;
    if (codes[rank] == expected)
      ++held;
    else
      std::fprintf(stderr, "survive: rank %zu ended with %d, not %d\n", rank, codes[rank], expected);
  }
  const bool all = held == static_cast<int>(codes.size());
  if (all) std::printf("all %d survivors finished their work\n", held - 1);
  return all ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  example::Arguments arguments(argc, argv, "One rank kills itself; the others go on without it.");
  const long ranks = arguments.number("--ranks", 3, 2, 256, "how many ranks to start");
  arguments.finish();
  if (!example::is_rank()) return judge(example::run_ranks(static_cast<int>(ranks), argv, example::OnLoss::kGoOn));
  be_a_rank();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "survive: %s\n", error.what());
  return 1;
}
