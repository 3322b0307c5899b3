// Writing JSON. Reading it is for programs, which have a library for that.
#pragma once

#include <string>
#include <string_view>

namespace horo {

/// `words` as a JSON string, with its quotes. Whatever the bytes are it is valid: those that are no UTF-8 become
/// U+FFFD.
std::string json_quoted(std::string_view words);

}  // namespace horo
