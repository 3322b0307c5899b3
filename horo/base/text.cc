#include "horo/base/text.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace horo {

namespace {

/// At most `limit`, for what is farther than that: words of users can be long.
size_t edit_distance(std::string_view a, std::string_view b, size_t limit) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) >= limit) return limit;
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
    if (*std::min_element(row.begin(), row.end()) >= limit) return limit;
  }
  return row.back();
}

}  // namespace

std::string ranks_text(std::span<const int> ranks) {
  if (ranks.empty()) return "no rank";
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  std::ostringstream out;
  out << (sorted.size() == 1 ? "rank " : "ranks ");
  for (size_t i = 0; i < sorted.size();) {
    size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    if (i > 0) out << ", ";
    out << sorted[i];
    if (last > i) out << (last == i + 1 ? ", " : "-") << sorted[last];
    i = last + 1;
  }
  return std::move(out).str();
}

std::string bytes_text(uint64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  auto value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::ostringstream out;
  out.precision(4);
  out << value << ' ' << kUnits[unit];
  return std::move(out).str();
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  size_t best_distance = std::max<size_t>(2, word.size() / 4) + 1;
  for (std::string_view candidate : candidates) {
    const size_t distance = edit_distance(word, candidate, best_distance);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace horo
