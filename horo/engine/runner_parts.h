// What the sources of Runner share.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "horo/collective/operation.h"
#include "horo/engine/tensor.h"

namespace horo::engine {

inline uint64_t bytes_of(const std::vector<int64_t>& shape, DType dtype) {
  uint64_t bytes = size_of(dtype);
  for (int64_t extent : shape) bytes *= static_cast<uint64_t>(extent);
  return bytes;
}

inline uint64_t row_bytes(const Tensor& tensor) {
  uint64_t bytes = size_of(tensor.dtype);
  for (size_t i = 1; i < tensor.shape.size(); ++i) bytes *= static_cast<uint64_t>(tensor.shape[i]);
  return bytes;
}

inline std::vector<int64_t> with_rows(const Tensor& tensor, uint64_t rows) {
  std::vector<int64_t> shape = tensor.shape;
  shape[0] = static_cast<int64_t>(rows);
  return shape;
}

inline uint64_t total(const std::vector<uint64_t>& values) {
  return std::accumulate(values.begin(), values.end(), uint64_t{0});
}

inline collective::Operation reduction_of(collective::Kind kind, const Tensor& tensor) {
  collective::Operation operation;
  operation.kind = kind;
  operation.dtype = tensor.dtype;
  operation.op = static_cast<ReduceOp>(tensor.reduction);
  operation.prescale = tensor.prescale;
  operation.postscale = tensor.postscale;
  return operation;
}

inline collective::Operation of_bytes(collective::Kind kind) {
  collective::Operation operation;
  operation.kind = kind;
  operation.dtype = DType::kByte;
  return operation;
}

}  // namespace horo::engine
