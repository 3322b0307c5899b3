// Tests walk through all functions that headers of the C API declare.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "horo/base/pattern_testing.h"

namespace horo::test {

/// Names of the functions that a header declares, comments left aside.
inline std::set<std::string> declared_functions(const std::string& header) {
  std::ifstream file(header);
  EXPECT_TRUE(file.is_open()) << header;
  std::string code{std::istreambuf_iterator<char>(file), {}};
  for (size_t begin; (begin = code.find("/*")) != std::string::npos;) {
    const size_t end = code.find("*/", begin);
    code.erase(begin, end == std::string::npos ? end : end + 2 - begin);
  }
  std::set<std::string> names;
  for (const auto& match : find_all("(^|[^A-Za-z0-9_])(horo_[a-z_]+)[(]", code)) names.insert(match[2]);
  return names;
}

}  // namespace horo::test
