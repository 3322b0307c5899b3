#include "horo/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace horo {

void check_failed(const char* file, int line, const char* expression, std::string_view message) {
  std::fprintf(stderr, "horo: internal error at %s:%d: %s is false: %.*s\n", file, line, expression,
               static_cast<int>(message.size()), message.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace horo
