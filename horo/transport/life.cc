#include "horo/transport/life.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "horo/transport/futex.h"

namespace horo::transport {

void Life::end() {
  bits_.fetch_or(kOwnerDied, std::memory_order_seq_cst);
  wake_all(bits_);
}

LifeHolder::LifeHolder(Life& life) : life_(life) {
  auto thread = static_cast<uint32_t>(syscall(SYS_gettid));
  life_.bits_.store(thread | Life::kWaiters, std::memory_order_seq_cst);
  entry_.next = &head_.list;
  head_.list.next = &entry_;
  // The kernel finds the futex of an entry at a fixed distance from it, which may lie in another mapping.
  head_.futex_offset = reinterpret_cast<char*>(&life_.bits_) - reinterpret_cast<char*>(&entry_);
  head_.pending = nullptr;
  supported_ = syscall(SYS_set_robust_list, &head_, sizeof head_) == 0;
}

LifeHolder::~LifeHolder() {
  head_.list.next = &head_.list;
  syscall(SYS_set_robust_list, nullptr, sizeof head_);
  life_.end();
}

}  // namespace horo::transport
