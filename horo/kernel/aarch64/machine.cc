// What of aarch64 this CPU offers, and the few instructions that the baseline has for everybody.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <cstring>
#include <vector>

#include "horo/base/immortal.h"
#include "horo/kernel/aarch64/crc32c_armv8.h"
#include "horo/kernel/kernels.h"

namespace horo::kernel {

extern const Kernels kNeonKernels;
extern const Kernels kSveKernels;

namespace {

/// HWCAP2_BF16; the headers of older systems lack the name.
constexpr unsigned long kHasBf16 = 1UL << 14;

bool has(unsigned long capabilities) { return (getauxval(AT_HWCAP) & capabilities) == capabilities; }

bool has_sve() { return has(HWCAP_SVE | HWCAP_FPHP | HWCAP_ASIMDHP) && (getauxval(AT_HWCAP2) & kHasBf16) != 0; }

}  // namespace

std::span<const Kernels* const> usable_kernels() {
  static const Immortal<std::vector<const Kernels*>> tables([] {
    std::vector<const Kernels*> found = {&kGenericKernels, &kNeonKernels};
    if (has_sve()) found.push_back(&kSveKernels);
    return found;
  });
  return *tables;
}

std::span<const Crc32cKernel> usable_crc32c() {
  static const Immortal<std::vector<Crc32cKernel>> kernels([] {
    std::vector<Crc32cKernel> found = {{"table", crc32c_table}};
    if (has(HWCAP_CRC32 | HWCAP_PMULL)) found.push_back({"armv8", crc32c_armv8});
    return found;
  });
  return *kernels;
}

bool streams() { return true; }

namespace {

inline void ask_to_write(std::byte* line) { __builtin_prefetch(line, 1); }

/// Stores of pairs with the hint that they are not needed again soon.
inline void stream_line(std::byte* out, const std::byte* in) {
  asm volatile(
      "ldp q0, q1, [%[from]]\n\t"
      "ldp q2, q3, [%[from], #32]\n\t"
      "stnp q0, q1, [%[to]]\n\t"
      "stnp q2, q3, [%[to], #32]"
      :
      : [from] "r"(in), [to] "r"(out)
      : "v0", "v1", "v2", "v3", "memory");
}

}  // namespace

#include "horo/kernel/asked.inc"
#include "horo/kernel/stream.inc"

/// Non-temporal stores of aarch64 are ordered by the same release operations as any other.
void stream_fence() {}

namespace {

/// FPCR: rounding mode, flush to zero for f32 and f64, for f16, default NaN, and the alternate half format and modes
/// of later extensions (AHP, FIZ, AH, NEP).
constexpr uint64_t kModes = 3UL << 22 | 1UL << 24 | 1UL << 19 | 1UL << 25 | 1UL << 26 | 7UL;

uint64_t read_modes() {
  uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}

void write_modes(uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }

}  // namespace

DefaultFloatMode::DefaultFloatMode() : saved_(read_modes()) {
  if ((saved_ & kModes) != 0) write_modes(saved_ & ~kModes);
}

DefaultFloatMode::~DefaultFloatMode() {
  if ((saved_ & kModes) != 0) write_modes(saved_);
}

}  // namespace horo::kernel
