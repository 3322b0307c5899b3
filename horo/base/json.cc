#include "horo/base/json.h"

#include <cstdint>
#include <cstdio>

namespace horo {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Bytes of the UTF-8 sequence that `words` begin with; 0 for what is none (overlong forms, surrogates, beyond
/// U+10FFFF).
size_t sequence_length(std::string_view words) {
  const auto byte = [&](size_t i) { return i < words.size() ? static_cast<uint8_t>(words[i]) : 0U; };
  const auto follows = [&](size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool second = follows(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF);
    return second && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool second = follows(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF);
    return second && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string json_quoted(std::string_view words) {
  std::string out = "\"";
  for (size_t i = 0; i < words.size();) {
    const char c = words[i];
    const size_t length = sequence_length(words.substr(i));
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<uint8_t>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else if (length == 0) {
      out += kReplacement;
    } else {
      out += words.substr(i, length);
    }
    i += length == 0 ? 1 : length;
  }
  return out + "\"";
}

}  // namespace horo
