// What of x86_64 this CPU offers, and the few instructions that the baseline has for everybody.
#include <cpuid.h>
#include <immintrin.h>

#include <cstring>
#include <vector>

#include "horo/base/immortal.h"
#include "horo/kernel/kernels.h"
#include "horo/kernel/x86_64/crc32c_x86.h"
#include "horo/kernel/x86_64/stream_x86.h"

namespace horo::kernel {

extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

namespace {

/// Not a name that every compiler's __builtin_cpu_supports knows.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool has_avx2() { return __builtin_cpu_supports("avx2") != 0 && has_f16c(); }

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

bool has_crc32() { return __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0; }

}  // namespace

std::span<const Kernels* const> usable_kernels() {
  static const Immortal<std::vector<const Kernels*>> tables([] {
    std::vector<const Kernels*> found = {&kGenericKernels};
    if (has_avx2()) found.push_back(&kAvx2Kernels);
    if (has_avx2() && has_avx512()) found.push_back(&kAvx512Kernels);
    return found;
  });
  return *tables;
}

std::span<const Crc32cKernel> usable_crc32c() {
  static const Immortal<std::vector<Crc32cKernel>> kernels([] {
    std::vector<Crc32cKernel> found = {{"table", crc32c_table}};
    if (has_crc32()) found.push_back({"sse42", crc32c_sse42});
    if (has_crc32() && has_avx512() && __builtin_cpu_supports("vpclmulqdq") != 0) {
      found.push_back({"avx512", crc32c_avx512});
    }
    return found;
  });
  return *kernels;
}

// Servers of Skylake and the two that followed with its cores: two ranks that exchange 64 MiB through shared memory
// take 1.2 to 1.65 times as long if what they copy passes the caches by (docs/performance.md).
bool streams() {
  static const bool pays = __builtin_cpu_is("skylake-avx512") == 0 && __builtin_cpu_is("cascadelake") == 0 &&
                           __builtin_cpu_is("cooperlake") == 0;
  return pays;
}

namespace {

/// The baseline has no name for it, and CPUs that do not know it leave it out.
inline void ask_to_write(std::byte* line) { asm volatile("prefetchw %0" : : "m"(*line)); }

inline void stream_line(std::byte* out, const std::byte* in) {
  const auto* from = reinterpret_cast<const __m128i*>(in);
  auto* to = reinterpret_cast<__m128i*>(out);
  const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
  const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
  _mm_stream_si128(to, a);
  _mm_stream_si128(to + 1, b);
  _mm_stream_si128(to + 2, c);
  _mm_stream_si128(to + 3, d);
}

}  // namespace

#include "horo/kernel/asked.inc"

namespace by_sse2 {
#include "horo/kernel/stream.inc"
}  // namespace by_sse2

namespace {

bool streams_whole_lines() {
  static const bool can = has_avx512();
  return can;
}

}  // namespace

void stream_lines(std::byte* out, const std::byte* in, size_t bytes) {
  if (streams_whole_lines()) return by_avx512::stream_lines(out, in, bytes);
  by_sse2::stream_lines(out, in, bytes);
}

void stream_pages(std::byte* out, const std::byte* in) {
  if (streams_whole_lines()) return by_avx512::stream_pages(out, in);
  by_sse2::stream_pages(out, in);
}

void replace_lines(std::byte* out, std::byte* kept, const std::byte* in, size_t bytes) {
  if (streams_whole_lines()) return by_avx512::replace_lines(out, kept, in, bytes);
  by_sse2::replace_lines(out, kept, in, bytes);
}

void stream_fence() { _mm_sfence(); }

namespace {

/// All exceptions masked, nearest even, denormals kept: the state at the start of a process.
constexpr unsigned kDefaultMxcsr = 0x1F80;
/// The exception flags are results, not modes.
constexpr unsigned kFlags = 0x3F;

}  // namespace

DefaultFloatMode::DefaultFloatMode() : saved_(_mm_getcsr()) {
  if ((saved_ & ~kFlags) != kDefaultMxcsr) _mm_setcsr(kDefaultMxcsr);
}

DefaultFloatMode::~DefaultFloatMode() {
  if ((saved_ & ~kFlags) != kDefaultMxcsr) _mm_setcsr(static_cast<unsigned>(saved_));
}

}  // namespace horo::kernel
