#pragma once

#include <cstddef>
#include <cstdint>

namespace horo::kernel {

uint32_t crc32c_armv8(uint32_t state, const std::byte* data, size_t bytes);

}  // namespace horo::kernel
