// Broken invariants of our own end the process with a message. Never used on input.
#pragma once

#include <string_view>

namespace horo {

[[noreturn]] void check_failed(const char* file, int line, const char* expression, std::string_view message);

}  // namespace horo

#define HORO_CHECK(condition, message)                                               \
  do {                                                                               \
    if (!(condition)) ::horo::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (false)
