// Elementwise kernels: combine two or many arrays, scale, cast, copy. Chosen at run time by instruction set.
//
// All pointers may be unaligned. Results are equal bit for bit on every instruction set and architecture: f16 and bf16
// are computed in f32 and rounded once (to nearest even) at the end of the call, min and max propagate NaN, integers
// wrap, nothing is contracted into fused multiply-adds. A float that is NaN is always stored as the one quiet NaN with
// neither sign nor payload, because which NaN an addition returns differs between architectures. Kernels assume default
// rounding and denormal modes: whoever runs them on a caller's thread holds a DefaultFloatMode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "horo/base/dtype.h"

namespace horo::kernel {

/// out[i] = a[i] op b[i]. `out` may be `a` or `b`, otherwise the arrays do not overlap.
using CombineFn = void (*)(std::byte* out, const std::byte* a, const std::byte* b, size_t count);

/// What is done to a reduced element before it is rounded and stored.
struct Scaling {
  /// Floats and complex: multiplied in the accumulation type. Integers: through f64, truncated; what does not fit
  /// becomes the nearest value that does.
  double factor = 1.0;
  /// At least 1 (ReduceOp::kAverage). Integers, before the factor: divided with truncation toward zero. Floats and
  /// complex: divided by divisor / factor in the accumulation type, so that the quotient is rounded once.
  int64_t divisor = 1;
  bool none() const { return factor == 1.0 && divisor == 1; }
};

/// out[i] = scaling(in[0][i] op in[1][i] op ... ), combined in the order of the list. `out` may be any in[j].
using CombineManyFn = void (*)(std::byte* out, std::span<const std::byte* const> in, size_t count,
                               const Scaling& scaling);

/// out[i] = scaling(own[i] op other[i]), and kept[i] = own[i], which nobody here reads soon: one pass where copy() and
/// CombineManyFn take two. `out` may be `own`; `kept` begins on a cache line. As many bytes of `next`, which the caller
/// will read after that, are asked for meanwhile, where that pays and it is not null: the other's data come from its
/// cache, those from memory, at the same time.
using CombineKeepingFn = void (*)(std::byte* out, std::byte* kept, const std::byte* own, const std::byte* other,
                                  const std::byte* next, size_t count, const Scaling& scaling);

/// out[i] = in[i] * factor, or in[i] / divisor. `out` may be `in`.
using ScaleFn = void (*)(std::byte* out, const std::byte* in, size_t count, const Scaling& scaling);

/// Where data come from and where results go.
enum class Placement : uint8_t {
  kCached = 0,  ///< Both in a cache nearby, or wherever they are.
  kStreamed,    ///< Inputs from memory; results bypass the cache: nobody reads them before they would have left it.
  kFetched,     ///< Inputs from memory or from another core's cache, in pieces however small; results stay in cache.
  kReplacing,   ///< Inputs as with kFetched; results take the place of one of them, and nobody else reads them soon.
  kAsked,       ///< All of it from another core's cache, or memory, and into the cache: lines are asked for beforehand.
};

enum class Isa : uint8_t { kGeneric = 0, kNeon, kSve, kAvx2, kAvx512 };

/// "generic", "neon", "sve", "avx2", "avx512".
std::string_view name(Isa isa);
/// The instruction sets of this build that this CPU can run, generic first, best last.
std::span<const Isa> available();
/// The last of available().
Isa best();

/// Kernels of one instruction set (which must be available()). Null where can_reduce(dtype, op) is false. kAverage is
/// kSum here: the caller passes Scaling (see average()).
CombineFn combine(DType dtype, ReduceOp op, Isa isa = best());
CombineManyFn combine_many(DType dtype, ReduceOp op, Isa isa = best(), Placement placement = Placement::kCached);
/// Sums and products, which do not depend on the order of two. Null where one pass is not there, or does not pay.
CombineKeepingFn combine_keeping(DType dtype, ReduceOp op, Isa isa = best());
/// Null for bool, fp8 and byte.
ScaleFn scale(DType dtype, Isa isa = best());

/// The scaling that makes a sum over `members` ranks their average: a quotient, or what is exactly that.
Scaling average(DType dtype, int members);

/// Casts between f16, bf16, f32 and f64 (round to nearest even); null for other pairs.
using CastFn = void (*)(std::byte* out, const std::byte* in, size_t count);
CastFn cast(DType to, DType from, Isa isa = best());

/// Whether long arrays had better pass the caches of this CPU by. Where they had not, kAsked is the quickest instead.
bool streams();
/// Copies `bytes`; from stream_threshold() on, where the copy would not stay in cache anyway, it bypasses the cache, if
/// that pays.
void copy(std::byte* out, const std::byte* in, size_t bytes);
void copy(std::byte* out, const std::byte* in, size_t bytes, Placement placement);
/// As copy() does with the whole, of which this is a piece.
void copy_piece(std::byte* out, const std::byte* in, size_t bytes, size_t whole);
/// out = in, and kept = what `out` held, past the cache. `kept` begins on a cache line.
void replace(std::byte* out, std::byte* kept, const std::byte* in, size_t bytes);
/// What a CombineKeepingFn does, in blocks, for whatever has none: combine(out, in), and kept = in[own].
void combine_and_keep(CombineManyFn combine, DType dtype, std::byte* out, std::byte* kept, size_t own,
                      std::span<const std::byte* const, 2> in, size_t count, const Scaling& scaling,
                      const std::byte* next);
/// What is read much later, by other cores: bypasses the cache from a few times the size of a core's own on, as nothing
/// of it would be there then.
void copy_for_later(std::byte* out, const std::byte* in, size_t bytes);
/// The size in bytes from which streaming pays, if it does; depends on this machine's caches.
inline constexpr size_t kStreamedCaches = 16;
size_t stream_threshold();
/// What one core's own cache holds: more than this comes from memory, or goes there. Differs between machines, and
/// between the cores of some: no two ranks may rely on having the same.
size_t cache_bytes();

/// CRC-32C (Castagnoli) of `data`, continued from `crc` (0 to start).
uint32_t crc32c(uint32_t crc, std::span<const std::byte> data);
/// copy() and crc32c() in one pass over memory.
uint32_t copy_crc32c(std::byte* out, const std::byte* in, size_t bytes, uint32_t crc);

struct Operands {
  std::byte* out;
  const std::byte* mine;
  const std::byte* received;
  size_t count;  ///< Elements.
};
/// combine(out, mine, received) and the crc32c() of `received` in one pass over memory. `out` may be `received`.
uint32_t combine_crc32c(CombineFn combine, DType dtype, const Operands& operands, uint32_t crc);

/// Default rounding, no flush-to-zero, for as long as it lives; restores the caller's floating-point modes.
class DefaultFloatMode {
 public:
  DefaultFloatMode();
  ~DefaultFloatMode();
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace horo::kernel
