// The tables that one instruction set fills, and how they are found. Inside this folder only; users include reduce.h.
//
// kernels.inc is the one source of all kernels. Each <arch>/<isa>.cc compiles it with the flags of its instruction set
// (module.cmake) inside an unnamed namespace and exports one table, so that no inline function compiled with wider
// instructions can be picked by the linker for the rest of the program. For the same reason those files include
// nothing that has inline functions of its own beyond what is always inlined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "horo/kernel/reduce.h"

namespace horo::kernel {

inline constexpr int kPlacementCount = 3;
/// f16, bf16, f32, f64: the neighbours that cast() goes between.
inline constexpr int kFloatCount = 4;

/// Null where a kernel does not exist.
struct Kernels {
  Isa isa;
  CombineFn combine[kDTypeCount][kReduceOpCount];
  CombineManyFn combine_many[kPlacementCount][kDTypeCount][kReduceOpCount];
  ScaleFn scale[kDTypeCount];
  CastFn cast[kFloatCount][kFloatCount];  ///< [to][from]
};

extern const Kernels kGenericKernels;

/// The tables of this architecture that this CPU can run, generic first, best last. Defined once per architecture.
std::span<const Kernels* const> usable_kernels();

/// Copies `bytes` (a multiple of 64) to `out` (a multiple of 64) without leaving them in the cache. Call
/// stream_fence() before another thread may be told of the data.
void stream_lines(std::byte* out, const std::byte* in, size_t bytes);
/// The same for kStreamPages pages in turns of one line each, asking for the pages after them. Prefetchers in hardware
/// stop at the end of a page; on x86_64 four pages at once copy 64 MiB at 12 GB/s where one after the other does 9
/// (kernel_bench). Cores of Arm follow addresses by themselves: there four at once copy at 11 GB/s, one after the other
/// at 14, and allreduces of 64 MiB take 17.5 ms and 11.7 ms (Neoverse N1).
#ifdef __aarch64__
inline constexpr size_t kStreamPages = 1;
#else
inline constexpr size_t kStreamPages = 4;
#endif
inline constexpr size_t kStreamPage = 4096;
void stream_pages(std::byte* out, const std::byte* in);
void stream_fence();

/// One way to compute CRC-32C; without the inversions at both ends.
struct Crc32cKernel {
  const char* name;
  uint32_t (*update)(uint32_t state, const std::byte* data, size_t bytes);
};

/// Table driven; the reference.
uint32_t crc32c_table(uint32_t state, const std::byte* data, size_t bytes);
/// Those this CPU can run, the table first, best last. Defined once per architecture.
std::span<const Crc32cKernel> usable_crc32c();

}  // namespace horo::kernel
