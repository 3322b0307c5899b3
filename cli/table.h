// Aligned columns for a terminal.
#pragma once

#include <string>
#include <vector>

namespace horo::cli {

/// Columns are flush right, but for those told otherwise.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// A blank line between groups of rows.
  void gap() { rows_.emplace_back(); }
  void flush_left(size_t column) { left_.push_back(column); }
  std::string to_string(bool colours) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> left_;
};

/// Three significant digits: "0.42", "163", "22500".
std::string number(double value);
/// Standard output, or error, is a terminal that wants colours.
bool colours_on(int descriptor);

}  // namespace horo::cli
