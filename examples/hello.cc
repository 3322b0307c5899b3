// Every rank says who it is; together they add up their numbers.
#include <exception>

#include "examples/arguments.h"
#include "examples/local_ranks.h"

#include "horo/api/horo.hpp"

namespace {

void be_a_rank() {
  horo::Engine engine;  // Rank, size, store and key come from HORO_* variables. Waits until all ranks are here.
  horo::Group world = engine.world();

  double sum = engine.rank() + 1;
  world.allreduce(&sum, 1);
  std::printf("rank %d of %d (%d of %d on this host, process %d, %s): 1 + ... + %d = %g\n", engine.rank(),
              engine.size(), engine.local_rank(), engine.local_size(), static_cast<int>(getpid()),
              world.transport().c_str(), engine.size(), sum);
  const double expected = engine.size() * (engine.size() + 1) / 2.0;
  if (sum != expected) throw std::runtime_error("the sum should be " + std::to_string(expected));
}

}  // namespace

int main(int argc, char** argv) try {
  example::Arguments arguments(argc, argv, "Every rank says who it is; together they add up their numbers.");
  const long ranks = arguments.number("--ranks", 4, 1, 256, "how many ranks to start");
  arguments.finish();
  if (!example::is_rank()) return example::exit_code(example::run_ranks(static_cast<int>(ranks), argv));
  be_a_rank();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "hello: %s\n", error.what());
  return 1;
}
