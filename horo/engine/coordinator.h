// The root's part: what is ready becomes batches, what does not agree becomes errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/engine/cache.h"
#include "horo/engine/fusion.h"
#include "horo/engine/merge.h"
#include "horo/engine/message.h"

namespace horo::engine {

/// How long the root waits for more to become ready before it lets ranks run what is.
///
/// Nothing is gained by waiting when a thread already sleeps for the result, when there is enough for one efficient
/// operation, or when experience shows that nothing comes: so the window closes early, and shrinks to a twentieth when
/// it gathers nothing.
class Window {
 public:
  explicit Window(Duration longest) : longest_(longest), length_(longest) {}
  Duration length() const { return length_; }
  /// The window ran out with so many units in it.
  void expired(size_t units);

 private:
  Duration longest_;
  Duration length_;
};

/// Bytes. From here on one operation more costs little beside moving them.
inline constexpr uint64_t kEnough = 4 << 20;

struct CoordinatorOptions {
  FusionRules fusion;
  Duration window = std::chrono::milliseconds(1);
  size_t cache_capacity = 1024;
  std::vector<int> ranks;  ///< What the members are called in messages.
};

/// Pure.
class Coordinator {
 public:
  Coordinator(CoordinatorOptions options, const Cache& cache);

  void complete(Merge::Complete complete, const std::set<int>& joined, Time now);
  /// What to tell everybody now. Empty while there is nothing, or the window is open.
  Down close(bool somebody_waits, const Merge& merge, Time now);
  /// When the window closes by itself.
  Deadline next() const;
  void call_members(std::vector<int> ranks) { options_.ranks = std::move(ranks); }
  void set_threshold(uint64_t bytes) { options_.fusion.threshold = bytes; }
  void set_window(Duration longest) { window_ = Window(longest); }

 private:
  struct Ready {
    uint32_t id = 0;
    UnitPtr unit;
  };
  void fail_to_agree(const Unit& unit, const std::vector<Variant>& variants);
  bool should_close(bool somebody_waits, Time now);
  Unit for_people(Unit unit) const;
  std::string members_text(const std::vector<int>& members) const;

  CoordinatorOptions options_;
  const Cache& cache_;
  Recency recency_;
  Window window_;
  std::vector<Ready> ready_;
  uint64_t ready_bytes_ = 0;
  bool urgent_ = false;
  Time first_ready_;
  std::vector<Failure> failures_;
};

}  // namespace horo::engine
