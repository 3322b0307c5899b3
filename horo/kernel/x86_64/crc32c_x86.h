#pragma once

#include <cstddef>
#include <cstdint>

namespace horo::kernel {

uint32_t crc32c_sse42(uint32_t state, const std::byte* data, size_t bytes);
/// Needs what crc32c_sse42 needs, too.
uint32_t crc32c_avx512(uint32_t state, const std::byte* data, size_t bytes);

}  // namespace horo::kernel
