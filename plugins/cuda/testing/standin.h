// What the stand-ins of the driver and of NCCL share. They exist for tests on machines without a GPU: memory is the
// host's, a stream is a count of what NCCL has not done yet, and nothing they show says anything about a GPU.
#pragma once

#include <atomic>

#define HORO_STANDIN __attribute__((visibility("default")))

namespace horo::cuda::standin {

struct Stream {
  std::atomic<int> pending{0};
};

}  // namespace horo::cuda::standin
