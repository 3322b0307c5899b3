#include "horo/transport/word.h"

#include "horo/transport/futex.h"

namespace horo::transport {

void Word::wake() { wake_all(low_half(bits_)); }

}  // namespace horo::transport
