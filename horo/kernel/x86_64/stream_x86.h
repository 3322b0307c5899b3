// stream_lines(), stream_pages() and replace_lines() of kernels.h with one instruction set each.
#pragma once

#include <cstddef>

namespace horo::kernel {

/// Four stores a line: what every CPU has.
namespace by_sse2 {
void stream_lines(std::byte* out, const std::byte* in, size_t bytes);
void stream_pages(std::byte* out, const std::byte* in);
void replace_lines(std::byte* out, std::byte* kept, const std::byte* in, size_t bytes);
}  // namespace by_sse2

/// One store a line.
namespace by_avx512 {
void stream_lines(std::byte* out, const std::byte* in, size_t bytes);
void stream_pages(std::byte* out, const std::byte* in);
void replace_lines(std::byte* out, std::byte* kept, const std::byte* in, size_t bytes);
}  // namespace by_avx512

}  // namespace horo::kernel
