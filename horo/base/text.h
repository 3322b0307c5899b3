// Small pieces of text: joining values, lists of ranks, sizes in bytes.
#pragma once

#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

namespace horo {

/// text("rank ", 3, " of ", 4) is "rank 3 of 4".
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

/// "rank 2", "ranks 0-3, 7", "no rank".
std::string ranks_text(std::span<const int> ranks);

/// "64 KiB", "1.5 MiB", "40 B".
std::string bytes_text(uint64_t bytes);

/// The one of `candidates` that is closest to `word` by edit distance, if it is close enough to be a slip.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace horo
