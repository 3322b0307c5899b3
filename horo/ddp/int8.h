// Gradients as 8-bit integers: a quarter of the bytes of f32, and one f32 for each tensor.
//
// Every rank cuts its bucket into one slice for each rank and sends each slice, quantized, to its owner (an alltoall);
// the owner adds the slices up in rank order, in f32, quantizes the average and gives it to all (an allgather). That
// is what an allreduce of bytes would move. A value x of a tensor whose largest is m becomes the integer nearest to
// 127 x / m, so it is off by m / 254 at most; the result by
//
//   (mean over the ranks of m_rank + m_result) / 254  <=  (mean over the ranks of m_rank) / 127
//
// where m_rank is the largest absolute value of the tensor's gradient on that rank (f32 rounding aside). A tensor with
// a value that is not finite is all NaN afterwards, on all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "horo/ddp/hooks.h"

namespace horo::ddp {

/// Largest absolute value; NaN when a value is not finite.
float largest(const float* values, uint64_t count);
/// out[i] = 127 values[i] / largest, rounded to nearest; zeros where that is zero or NaN.
void quantize(int8_t* out, const float* values, uint64_t count, float largest);
/// out[i] += in[i] largest / 127.
void add_dequantized(float* out, const int8_t* in, uint64_t count, float largest);
/// out[i] = in[i] largest / 127.
void dequantize(float* out, const int8_t* in, uint64_t count, float largest);

class Int8Exchange : public BucketExchange {
 public:
  static Result<std::unique_ptr<BucketExchange>> make(const BucketPlace& place, const Allocate& allocate);
  void begin(const Round& round) override;
  Result<std::optional<Step>> next() override;

 private:
  /// Elements of one tensor that lie in one slice.
  struct Piece {
    size_t tensor = 0;  ///< Place in the bucket.
    uint64_t begin = 0, count = 0;
  };
  /// What one rank owns. On the way it is one f32 for each piece, then its elements, filled up to whole words.
  struct Slice {
    std::vector<Piece> pieces;
    uint64_t begin = 0, elements = 0;
    uint64_t bytes() const { return (pieces.size() * sizeof(float) + elements + 3) / 4 * 4; }
  };

  explicit Int8Exchange(const BucketPlace& place);
  Status allocate(const Allocate& allocate);
  float* values() const { return reinterpret_cast<float*>(place_.memory); }
  Step send();
  Step give();
  void take();

  const BucketPlace place_;
  std::vector<Slice> slices_;      ///< Of each rank.
  std::vector<uint64_t> bytes_;    ///< Of each slice on the way.
  uint64_t total_ = 0;             ///< Of all slices.
  Memory sent_, received_, mine_;  ///< Slices for all ranks; my slice from all ranks; the results.
  std::vector<float> sum_;
  double factor_ = 1.0;
  int step_ = 0;
};

}  // namespace horo::ddp
