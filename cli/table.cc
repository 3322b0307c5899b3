#include "cli/table.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "horo/base/config.h"

namespace horo::cli {

std::string Table::to_string(bool colours) const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::ostringstream out;
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (r == 0 && colours) out << "\033[1m";
    for (size_t i = 0; i < rows_[r].size(); ++i) {
      const bool left = std::find(left_.begin(), left_.end(), i) != left_.end();
      const std::string padding(widths[i] - rows_[r][i].size(), ' ');
      out << (i == 0 ? "" : "  ") << (left ? "" : padding) << rows_[r][i];
      if (left && i + 1 < rows_[r].size()) out << padding;
    }
    if (r == 0 && colours) out << "\033[0m";
    out << '\n';
  }
  return std::move(out).str();
}

std::string number(double value) {
  if (value == 0 || !std::isfinite(value)) return value == 0 ? "0" : "-";
  const int digits = static_cast<int>(std::floor(std::log10(std::fabs(value)))) + 1;
  std::ostringstream out;
  out << std::fixed << std::setprecision(std::clamp(3 - digits, 0, 6)) << value;
  return std::move(out).str();
}

bool colours_on(int descriptor) { return isatty(descriptor) == 1 && !Environment::of_process().find("NO_COLOR"); }

}  // namespace horo::cli
