// Order statistics of measured times.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace horo::bench {

/// The smallest value that `share` (0..1] of the values do not exceed; 0 of none.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto place = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::min(std::max<size_t>(place, 1), values.size()) - 1];
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace horo::bench
