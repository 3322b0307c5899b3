#include "horo/ddp/matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace horo::ddp {

namespace {

/// Partial sums that a compiler may keep in vector registers without changing the order of additions.
constexpr uint64_t kLanes = 16;

float dot(const float* a, const float* b, uint64_t count) {
  float lanes[kLanes] = {};
  const uint64_t whole = count / kLanes * kLanes;
  for (uint64_t i = 0; i < whole; i += kLanes) {
    for (uint64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (uint64_t i = whole; i < count; ++i) lanes[i - whole] += a[i] * b[i];
  float sum = 0;
  for (float lane : lanes) sum += lane;
  return sum;
}

void add_scaled(float* to, const float* from, float factor, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) to[i] += from[i] * factor;
}

/// What is left of a column that depends on the ones before it is rounding: not a direction.
constexpr float kNothingLeft = 1e-5F;

}  // namespace

void multiply(float* out, const Matrix& matrix, const float* in) {
  for (uint64_t row = 0; row < matrix.rows; ++row) {
    out[row] = dot(matrix.values + row * matrix.columns, in, matrix.columns);
  }
}

void multiply_transposed(float* out, const Matrix& matrix, const float* in) {
  std::fill_n(out, matrix.columns, 0.0F);
  for (uint64_t row = 0; row < matrix.rows; ++row) {
    add_scaled(out, matrix.values + row * matrix.columns, in[row], matrix.columns);
  }
}

bool orthogonalize(std::span<float> columns, uint64_t length) {
  bool complete = true;
  for (uint64_t at = 0; at < columns.size(); at += length) {
    float* column = columns.data() + at;
    const float before = std::sqrt(dot(column, column, length));
    for (uint64_t other = 0; other < at; other += length) {
      add_scaled(column, columns.data() + other, -dot(column, columns.data() + other, length), length);
    }
    const float norm = std::sqrt(dot(column, column, length));
    const bool is_direction = !(norm <= before * kNothingLeft);  // NaN stays NaN.
    const float factor = is_direction ? 1.0F / norm : 0.0F;
    for (uint64_t i = 0; i < length; ++i) column[i] = is_direction ? column[i] * factor : 0.0F;
    complete = complete && is_direction;
  }
  return complete;
}

void put_product(const Matrix& matrix, const float* left, const float* right, int rank, float* error) {
  for (uint64_t row = 0; row < matrix.rows; ++row) {
    float* to = matrix.values + row * matrix.columns;
    if (error != nullptr) std::copy_n(to, matrix.columns, error + row * matrix.columns);
    std::fill_n(to, matrix.columns, 0.0F);
    for (uint64_t k = 0; k < static_cast<uint64_t>(rank); ++k) {
      add_scaled(to, right + k * matrix.columns, left[k * matrix.rows + row], matrix.columns);
    }
    if (error != nullptr) add_scaled(error + row * matrix.columns, to, -1.0F, matrix.columns);
  }
}

void add(float* to, const float* from, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) to[i] += from[i];
}

bool all_finite(std::span<const float> values) {
  uint32_t most = 0;
  for (float value : values) most = std::max(most, std::bit_cast<uint32_t>(value) & 0x7FFFFFFF);
  return most < 0x7F800000;
}

// SplitMix64.
void fill_random(std::span<float> values, uint64_t seed) {
  for (float& value : values) {
    seed += 0x9E3779B97F4A7C15;
    uint64_t mixed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    mixed ^= mixed >> 31;
    value = static_cast<float>(static_cast<int32_t>(mixed >> 40) - (1 << 23)) * 0x1p-23F;
  }
}

}  // namespace horo::ddp
