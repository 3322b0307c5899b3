// A progress bar on a terminal; elsewhere a line now and then.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace example {

class Progress {
 public:
  explicit Progress(bool visible) : visible_(visible), bar_(isatty(STDOUT_FILENO) != 0) {}

  /// `done`: 0 to 1.
  void show(double done, double loss, double accuracy, double samples_per_second) {
    if (!visible_) return;
    char words[96];
    std::snprintf(words, sizeof words, "%3.0f %%  loss %.3f  accuracy %4.1f %%  %.0f samples/s", 100 * done, loss,
                  100 * accuracy, samples_per_second);
    if (bar_) {
      constexpr size_t kCells = 30;
      const auto full = static_cast<size_t>(done * kCells);
      std::string cells(full, '#');
      cells.resize(kCells, '.');
      std::printf("\r[%s] %s ", cells.c_str(), words);
    } else if (done >= next_line_) {
      std::printf("%s\n", words);
      next_line_ = done + 0.099;
    }
    std::fflush(stdout);
  }

  /// Leaves the line of the bar.
  void end() {
    if (visible_ && bar_) std::printf("\n");
  }

 private:
  bool visible_, bar_;
  double next_line_ = 0;
};

}  // namespace example
