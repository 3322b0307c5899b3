// PowerSGD: the gradient of a matrix is reduced as the product of two thin ones (T. Vogels, S. P. Karimireddy, M.
// Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization", 2019).
//
// Of a gradient M with n rows and m columns, and a matrix Q of m rows and `rank` columns that all ranks have in common:
//
//   P = average of M Q        one operation, together with all tensors that are not worth it
//   P = orthogonalized P      the same bits on all ranks
//   Q = average of M^T P      the second operation
//   gradient = P Q^T
//
// What the product leaves out of this rank's M is added to its next gradient (error feedback); the next iteration
// begins with this one's Q (warm start).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "horo/ddp/hooks.h"
#include "horo/ddp/matrix.h"

namespace horo::ddp {

/// What is kept of each parameter; not touched by a rebuild of the buckets.
class PowerSgdState {
 public:
  struct Kept {
    int rank = 0;  ///< 0: reduced as it is.
    uint64_t rows = 0, columns = 0;
    std::vector<float> error;  ///< Empty: none so far.
    std::vector<float> right;  ///< Q, column by column. Empty: none so far.
  };
  PowerSgdState(const HookOptions& options, std::span<const Parameter> parameters);

  const HookOptions& options() const { return options_; }
  Kept& of(size_t parameter) { return kept_[parameter]; }
  /// Q to begin with: orthogonal columns, the same on all ranks.
  void prepare(size_t parameter, uint64_t iteration);

 private:
  const HookOptions options_;
  std::vector<Kept> kept_;
};

class PowerSgdExchange : public BucketExchange {
 public:
  static Result<std::unique_ptr<BucketExchange>> make(const BucketPlace& place, PowerSgdState& state,
                                                      const Allocate& allocate);
  void begin(const Round& round) override;
  Result<std::optional<Step>> next() override;

 private:
  struct Tensor {
    size_t parameter = 0;
    uint64_t begin = 0, count = 0;  ///< In the bucket.
    uint64_t left = 0;              ///< Where P, or the whole tensor, is in the first operation.
    uint64_t right = 0;             ///< Where Q is in the second.
  };

  PowerSgdExchange(const BucketPlace& place, PowerSgdState& state);
  Matrix matrix_of(const Tensor& tensor) const;
  std::span<float> left_of(const Tensor& tensor) const;
  std::span<float> right_of(const Tensor& tensor) const;
  Step send_left();
  Step send_right();
  void take();

  const BucketPlace place_;
  PowerSgdState& state_;
  AllreduceExchange exact_;  ///< For the first iterations.
  std::vector<Tensor> tensors_;
  uint64_t lefts_ = 0, rights_ = 0;  ///< Elements of the operations.
  Memory left_, right_;
  Round round_;
  int step_ = 0;
};

}  // namespace horo::ddp
