// Looks for the best of a few settings by trying them, one at a time, against the best so far.
//
// A *sample* is a score measured with one setting; higher is better. Samples are noisy, and what is measured may change
// its nature at any time. So settings are never compared with what was measured long ago: a *trial* takes samples of
// both settings in turns (A B, B A, A B), and the new one must win clearly. What is found in the end is compared with
// the start once more, in more turns; unless it wins again the start is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace horo::engine {

/// One setting: the index of a value per dimension.
using Point = std::vector<size_t>;

/// One dimension. The search begins with value `start`.
struct Dimension {
  size_t values = 1;
  size_t start = 0;
};

struct SearchOptions {
  std::vector<Dimension> dimensions;
  int trials = 20;       ///< At most so many new settings are tried.
  double margin = 0.03;  ///< By how much a setting must be better to be taken.
};

/// Pure. Dimensions are gone through one by one, and again as long as something was found; a value that has lost to the
/// best of its dimension is tried again only when another dimension has changed.
class Search {
 public:
  explicit Search(SearchOptions options);

  /// What the next sample is to be taken with; at the end, what was found.
  const Point& point() const;
  /// A sample of point(). `traffic` tells what was measured (bytes per step): where it changes in the middle of a
  /// trial, the trial begins again.
  void add(double score, double traffic);

  enum class Phase : uint8_t { kSearch, kProof, kDone };
  Phase phase() const { return phase_; }
  bool done() const { return phase_ == Phase::kDone; }
  int trials() const { return trials_; }
  const Point& start() const { return start_; }
  /// How many times as fast as the start what was found was, in the last comparison; 1 if the start was kept.
  double gain() const { return gain_; }

  /// No search takes more samples.
  static uint64_t most_samples(int trials);

 private:
  enum class Verdict : uint8_t { kOpen, kBetter, kNotBetter };
  bool takes_new() const;
  Verdict judge() const;
  void next_trial();
  bool next_value();
  void prove();
  void begin_again();
  void finish(Point found, double gain);

  const SearchOptions options_;
  const Point start_;
  std::vector<std::vector<size_t>> orders_;  ///< In which the values of a dimension are looked at.
  Phase phase_ = Phase::kSearch;
  Point best_;
  Point tried_;  ///< Against best_; in the proof best_ is against start_.
  std::vector<double> old_, new_;
  double traffic_ = 0;  ///< Of the trial's first sample.
  int trials_ = 0;
  int restarts_ = 0;
  double gain_ = 1;
  // Where the search is: the dimension, how many of its values have been looked at, and how many dimensions have been
  // gone through since one of them found something.
  size_t dimension_ = 0, looked_at_ = 0, barren_ = 0;
  size_t begun_with_ = 0;  ///< The dimension's value when its turn began.
};

}  // namespace horo::engine
