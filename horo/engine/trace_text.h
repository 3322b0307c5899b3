// Makes the records of a Chrome trace out of what the timeline is told.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "horo/engine/trace_event.h"

namespace horo::engine {

/// Whose trace it is.
struct TraceOrigin {
  int rank = 0, size = 1;
  std::string host;   ///< For people.
  std::string clock;  ///< Names the clock: ranks with the same one need no alignment.
  Time start{};
  int64_t wall_us = 0;  ///< Since 1970, at `start`.
};

/// Pure. The rank is a process of the trace, every tensor one of its rows, and so is every process set, with one bar
/// per operation that was carried. Rows of tensors hold properly nested phases, whatever is missing in the events: each
/// phase of a tensor ends what is still open of the one before.
///
/// Memory is bounded: the first kMostRows tensors have a row of their own, later ones share what is free.
class TraceText {
 public:
  explicit TraceText(TraceOrigin origin) : origin_(std::move(origin)) {}

  /// The first record, which `horo timeline merge` reads.
  std::string first() const;
  /// Appends `,\n{...}` for every record that `event` makes.
  void add(const TraceEvent& event, std::string& out);
  /// So many events came faster than they could be taken.
  void add_dropped(uint64_t count, Time at, std::string& out);

  static constexpr size_t kMostRows = 4096;

 private:
  struct Row {
    int number = 0;
    int open = 0;  ///< Phases.
    bool shared = false;
  };
  struct Batch {
    std::vector<std::string> keys;
    Kind kind = Kind::kBarrier;
    uint64_t bytes = 0;
    Time carried_since{};
    int carried = 0;  ///< How often.
  };

  Row& row_of(int set, const std::string& name, std::string& out);
  Row* find(const std::string& key);
  int row_of_set(int set, std::string& out);
  void name_row(int number, std::string_view name, std::string& out);
  void begin(Row& row, Time at, std::string_view name, std::string_view arguments, std::string& out);
  void end(Row& row, Time at, std::string_view arguments, std::string& out);
  void end_all(Row& row, Time at, std::string_view arguments, std::string& out);
  void let_go(const std::string& key);

  void handed_in(const TraceEvent& event, std::string& out);
  void agreed(const TraceEvent& event, std::string& out);
  void activity(const TraceEvent& event, Batch& batch, std::string& out);
  void carried(const TraceEvent& event, Batch& batch, std::string& out);
  void over(const std::vector<std::string>& keys, const TraceEvent& event, std::string& out);
  void instant(int row, Time at, std::string_view name, std::string_view arguments, std::string& out);
  std::string time_text(Time at) const;

  const TraceOrigin origin_;
  int next_row_ = 0;
  size_t own_rows_ = 0;
  std::unordered_map<std::string, Row> rows_;  ///< Of tensors, by set and name.
  std::vector<int> free_rows_;                 ///< Of the shared ones.
  std::map<int, int> set_rows_;
  std::map<std::pair<int, uint64_t>, Batch> batches_;
};

}  // namespace horo::engine
