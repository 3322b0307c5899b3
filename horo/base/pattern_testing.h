// Regular expressions for tests: those of the C library, as <regex> takes a compiler four seconds of every file.
#pragma once

#include <gtest/gtest.h>
#include <regex.h>

#include <string>
#include <vector>

namespace horo::test {

/// What an extended expression of POSIX finds in `text`: each time the match, and then its groups. `^` and `$` are the
/// ends of the whole text.
inline std::vector<std::vector<std::string>> find_all(const char* expression, const std::string& text) {
  std::vector<std::vector<std::string>> found;
  regex_t compiled;
  if (regcomp(&compiled, expression, REG_EXTENDED) != 0) {
    ADD_FAILURE() << "not an expression: " << expression;
    return found;
  }
  std::vector<regmatch_t> groups(compiled.re_nsub + 1);
  const char* at = text.c_str();
  while (regexec(&compiled, at, groups.size(), groups.data(), at == text.c_str() ? 0 : REG_NOTBOL) == 0) {
    std::vector<std::string>& match = found.emplace_back();
    for (const regmatch_t& group : groups) {
      match.emplace_back(group.rm_so < 0 ? std::string() : std::string(at + group.rm_so, at + group.rm_eo));
    }
    if (groups.front().rm_eo == 0) break;  // An empty one, which would be found for ever.
    at += groups.front().rm_eo;
  }
  regfree(&compiled);
  return found;
}

/// Whether all of `text` is what the expression says.
inline bool is_like(const char* expression, const std::string& text) {
  const auto found = find_all(expression, text);
  return found.size() == 1 && found.front().front() == text;
}

}  // namespace horo::test
