// What processes can do with memory that all have mapped, and nothing else. horo is compared with it (`--peers bare`)
// to see what safety costs.
#include <sys/mman.h>

#include <cstdio>
#include <string>

#include "bench/peers/bare/bare_rank.h"
#include "bench/peers/launch.h"

#include "horo/base/text.h"

namespace horo::bench {

namespace {

int launch(const Launch& asked) {
  void* memory =
      mmap(nullptr, sizeof(BareMemory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  std::string why;
  if (memory == MAP_FAILED) why = "cannot map shared memory";
  if (asked.tcp || asked.ranks < 2 || asked.ranks > BareMemory::kRanks) {
    why = text("bare is for 2 to ", BareMemory::kRanks, " ranks that share memory");
  }
  return fork_ranks(asked, [&](int rank) {
    if (!why.empty()) return refuse(rank, asked.folder, why);
    BareRank participant(rank, asked.ranks, *static_cast<BareMemory*>(memory));
    return serve(participant, asked.folder);
  });
}

}  // namespace

}  // namespace horo::bench

int main(int argc, char** argv) {
  if (argc < 4 || std::string(argv[1]) != "launch") {
    std::fprintf(stderr, "usage: %s launch FOLDER RANKS\n", argv[0]);
    return 2;
  }
  return horo::bench::launch(horo::bench::read_launch({argv + 2, argv + argc}));
}
