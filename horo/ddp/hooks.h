// The built-in ways to reduce a bucket.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "horo/ddp/buckets.h"
#include "horo/ddp/exchange.h"

namespace horo::ddp {

/// The values are part of the C ABI (api/ddp.h).
enum class HookKind : uint8_t { kAllreduce = 0, kF16 = 1, kBF16 = 2, kInt8 = 3, kPowerSgd = 4, kCaller = 5 };

struct HookOptions {
  HookKind kind = HookKind::kAllreduce;
  // PowerSGD:
  int rank = 1;
  uint64_t start_iteration = 1000;
  double min_compression_rate = 2.0;
  bool error_feedback = true;
  bool warm_start = true;
  uint64_t seed = 0;
};

Status check(const HookOptions& options);

/// Elements of a bucket that are reduced by one operation: of one large gradient, or of several small ones.
struct Part {
  uint64_t offset = 0;  ///< Bytes from the beginning of the bucket.
  uint64_t elements = 0;
  size_t parameter = 0;
  bool large = false;  ///< `parameter` alone, which may lie elsewhere.
};

/// Where a bucket is, and among whom it is reduced.
struct BucketPlace {
  const Bucket* bucket = nullptr;
  std::byte* memory = nullptr;
  int member = 0;
  int members = 1;
  std::vector<Part> parts = {};  ///< None: all in one.
};

class PowerSgdState;

/// What the exchanges of all buckets share, and what outlives a rebuild.
class Hook {
 public:
  Hook(HookOptions options, std::span<const Parameter> parameters);
  ~Hook();

  const HookOptions& options() const { return options_; }
  /// Buckets of a dtype that the hook cannot shorten get the plain one. `bucket` and the memory must outlive it.
  Result<std::unique_ptr<BucketExchange>> make(const BucketPlace& place, const Allocate& allocate);

 private:
  const HookOptions options_;
  const std::span<const Parameter> parameters_;
  std::unique_ptr<PowerSgdState> power_sgd_;
};

/// The average, where the bucket is, or the gradient if it was put elsewhere. The factor is the operation's: where
/// memory is shared it costs nothing, because the sums are multiplied as they are made.
class AllreduceExchange : public BucketExchange {
 public:
  explicit AllreduceExchange(BucketPlace place);
  void begin(const Round& round) override;
  void put(size_t parameter, std::byte* gradient) override;
  Result<std::optional<Step>> next() override;

 private:
  const BucketPlace place_;
  std::vector<std::byte*> where_;  ///< Each part is.
  double factor_ = 1.0;
  size_t next_ = 0;
};

/// The average of what the gradients are in a shorter float type.
class CastExchange : public BucketExchange {
 public:
  static Result<std::unique_ptr<BucketExchange>> make(const BucketPlace& place, DType wire, const Allocate& allocate);
  void begin(const Round& round) override;
  Result<std::optional<Step>> next() override;

 private:
  CastExchange(const BucketPlace& place, DType wire, Memory memory)
      : place_(place), wire_(wire), memory_(std::move(memory)) {}
  const BucketPlace place_;
  const DType wire_;
  const Memory memory_;
  double factor_ = 1.0;
  bool begun_ = false;
};

}  // namespace horo::ddp
