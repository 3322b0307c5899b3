// Products of a gradient, seen as a matrix, with thin matrices. Sums go in a fixed order and products are rounded
// before they are added (module.cmake), so that all machines get the same bits.
#pragma once

#include <cstdint>
#include <span>

namespace horo::ddp {

/// One row after the other.
struct Matrix {
  float* values = nullptr;
  uint64_t rows = 0, columns = 0;
};

/// A thin matrix is kept column by column.
/// out (rows) = matrix * in (columns).
void multiply(float* out, const Matrix& matrix, const float* in);
/// out (columns) = transposed matrix * in (rows).
void multiply_transposed(float* out, const Matrix& matrix, const float* in);

/// Makes columns of `length` each orthogonal to those before it and of length 1 (Gram-Schmidt). A column in which next
/// to nothing is left becomes zero. True when none did.
bool orthogonalize(std::span<float> columns, uint64_t length);

/// matrix = left * transposed right, of `rank` columns each; error = what matrix was before, minus that. `error` may be
/// null.
void put_product(const Matrix& matrix, const float* left, const float* right, int rank, float* error);

/// to += from.
void add(float* to, const float* from, uint64_t count);
bool all_finite(std::span<const float> values);

/// Evenly from [-1, 1), the same on every machine.
void fill_random(std::span<float> values, uint64_t seed);

}  // namespace horo::ddp
