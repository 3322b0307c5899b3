// A cable between two hosts of one machine that loses, delays, reorders, repeats, cuts short and falsifies packets.
//
// The hosts are network namespaces. Between them sits a thread that passes Ethernet frames on, one by one. A falsified
// packet gets a right checksum: TCP believes it, as it believes memory that went bad in a switch. Needs root and the ip
// program.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"
#include "horo/base/thread.h"
#include "horo/net/fd.h"

namespace horo::test {

/// Chances from 0 to 1, of each packet that carries bytes of a TCP connection.
struct Faults {
  double lost = 0;
  double late = 0;      ///< By up to `most_late`; others overtake it.
  double repeated = 0;  ///< Once more, later.
  double cut = 0;       ///< Some of its bytes are left out at the end.
  std::chrono::milliseconds most_late{5};
};

class FaultyCable {
 public:
  /// 10.78.0.1 and 10.78.0.2, under names of this process's own; gone at the end of its life.
  FaultyCable();
  ~FaultyCable();
  FaultyCable(const FaultyCable&) = delete;
  FaultyCable& operator=(const FaultyCable&) = delete;

  /// False where namespaces cannot be made.
  bool made() const { return made_; }
  /// Moves the calling process to a host.
  bool enter(int host) const;
  /// Packets pass from now on. Starts a thread: not before processes are forked.
  Status start(uint64_t seed);

  void set(const Faults& faults);
  /// Flips one bit of the next packet that has `least` bytes or more of something new; once.
  void flip_next(uint32_t least);

  uint64_t passed() const { return passed_; }
  uint64_t hurt() const { return hurt_; }
  uint64_t flipped() const { return flipped_; }

 private:
  struct Late {
    int to;
    std::vector<uint8_t> frame;
  };
  struct Segment;

  void loop(const std::stop_token& stop);
  void take(int from);
  void treat(int to, std::vector<uint8_t> frame);
  void flip(const Segment& segment);
  void put(int to, const std::vector<uint8_t>& frame);
  void put_late();
  bool chance(double of);

  std::string names_[3];  ///< Two hosts and what is between them.
  bool made_ = false;
  net::UniqueFd ends_[2];
  std::mt19937_64 random_;
  std::mutex mutex_;
  Faults faults_;  ///< Under the mutex.
  std::atomic<uint32_t> flip_least_{0};
  std::atomic<uint64_t> passed_{0}, hurt_{0}, flipped_{0};
  std::multimap<Time, Late> late_;
  std::map<std::array<uint8_t, 12>, uint32_t> expected_;  ///< Of each connection and direction: the next byte's number.
  Thread thread_;
};

}  // namespace horo::test
