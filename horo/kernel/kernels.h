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

inline constexpr int kPlacementCount = 5;
/// f16, bf16, f32, f64: the neighbours that cast() goes between.
inline constexpr int kFloatCount = 4;

/// Null where a kernel does not exist.
struct Kernels {
  Isa isa;
  CombineFn combine[kDTypeCount][kReduceOpCount];
  CombineManyFn combine_many[kPlacementCount][kDTypeCount][kReduceOpCount];
  CombineKeepingFn combine_keeping[kDTypeCount][kReduceOpCount];
  ScaleFn scale[kDTypeCount];
  CastFn cast[kFloatCount][kFloatCount];  ///< [to][from]
};

extern const Kernels kGenericKernels;

/// The tables of this architecture that this CPU can run, generic first, best last. Defined once per architecture.
std::span<const Kernels* const> usable_kernels();

/// Whether cores find by themselves what is done with long arrays. Those of Arm seem to: prefetchers go on past the
/// ends of pages, and results that are written line after line, with nothing in between, pass the cache by. There
/// asking for lines, and copying results past the cache, only cost (Neoverse N1, two cores at once, 64 MiB: a sum in
/// place takes 7.4 ms, or 9.4 if each line is asked for 4 KiB before; one out of place 8.3, in blocks 11.6, in blocks
/// that are then copied past the cache 12.3). What pays there is in aarch64/line_neon.inc.
#ifdef __aarch64__
inline constexpr bool kFollowsArrays = true;
#else
inline constexpr bool kFollowsArrays = false;
#endif

/// Copies `bytes` (a multiple of 64) to `out` (a multiple of 64) without leaving them in the cache. Call
/// stream_fence() before another thread may be told of the data.
void stream_lines(std::byte* out, const std::byte* in, size_t bytes);
/// The same for kStreamPages pages in turns of one line each, asking for lines kStreamAhead bytes before they are read.
/// On x86_64 four pages at once copy 64 MiB at 12 GB/s where one after the other does 9 (kernel_bench). On Arm four at
/// once copy at 11 GB/s, one after the other at 14; there 512 bytes ahead are better than a page, and nothing is worse
/// (an allreduce of 64 MiB: 10.6, 10.9 and 12 ms).
inline constexpr size_t kStreamPages = kFollowsArrays ? 1 : 4;
inline constexpr size_t kStreamPage = 4096;
inline constexpr size_t kStreamAhead = kFollowsArrays ? 512 : kStreamPages * kStreamPage;
void stream_pages(std::byte* out, const std::byte* in);
/// kept = out, without leaving it in the cache, and out = in, a line at a time; `bytes` and `kept` as above.
void replace_lines(std::byte* out, std::byte* kept, const std::byte* in, size_t bytes);
void stream_fence();

/// For __builtin_prefetch() of what this core copies next.
inline constexpr int kToRead = 0, kIntoTheCoresOwnCache = 2;

/// Copies `bytes` line by line, asking for lines to read and for lines to write before they come.
void copy_asked(std::byte* out, const std::byte* in, size_t bytes);

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
