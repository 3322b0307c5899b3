// The smallest job: joins, waits for everybody, says how it got there, leaves. With an argument it stays until it
// fails.
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "horo/api/horo.hpp"

int main(int argc, char**) try {
  horo::Engine engine;
  horo::Group world = engine.world();
  double sum = 1;
  world.allreduce(&sum, 1);
  world.barrier();
  std::printf("rank %d of %d, local %d of %d, over %s, sum %g, pid %d\n", engine.rank(), engine.size(),
              engine.local_rank(), engine.local_size(), world.transport().c_str(), sum, static_cast<int>(getpid()));
  std::fflush(stdout);
  while (argc > 1) world.barrier();
  return sum == engine.size() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 3;
}
