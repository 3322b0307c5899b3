#include "horo/ddp/power_sgd.h"

#include <algorithm>
#include <cstring>

namespace horo::ddp {

namespace {

float* floats(const Memory& memory) { return reinterpret_cast<float*>(memory.get()); }

}  // namespace

PowerSgdState::PowerSgdState(const HookOptions& options, std::span<const Parameter> parameters)
    : options_(options), kept_(parameters.size()) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (parameter.shape.size() < 2 || parameter.count() == 0) continue;
    Kept& kept = kept_[i];
    kept.rows = static_cast<uint64_t>(parameter.shape[0]);
    kept.columns = parameter.count() / kept.rows;
    const uint64_t rank = std::min({static_cast<uint64_t>(options.rank), kept.rows, kept.columns});
    const auto thin = static_cast<double>((kept.rows + kept.columns) * rank);
    if (thin * options.min_compression_rate < static_cast<double>(parameter.count()))
      kept.rank = static_cast<int>(rank);
  }
}

void PowerSgdState::prepare(size_t parameter, uint64_t iteration) {
  Kept& kept = kept_[parameter];
  const bool known = options_.warm_start && !kept.right.empty();
  if (known && orthogonalize(kept.right, kept.columns)) return;
  // A column that has become zero would stay so.
  kept.right.resize(kept.columns * static_cast<uint64_t>(kept.rank));
  for (uint64_t attempt = 0; attempt < 4; ++attempt) {
    fill_random(kept.right, options_.seed + (((iteration << 20) + parameter) << 2) + attempt);
    if (orthogonalize(kept.right, kept.columns)) return;
  }
}

PowerSgdExchange::PowerSgdExchange(const BucketPlace& place, PowerSgdState& state)
    : place_(place), state_(state), exact_(place) {
  const Bucket& bucket = *place.bucket;
  for (size_t i = 0; i < bucket.parameters.size(); ++i) {
    const uint64_t end = i + 1 < bucket.begins.size() ? bucket.begins[i + 1] : bucket.elements;
    const Tensor tensor{bucket.parameters[i], bucket.begins[i], end - bucket.begins[i], lefts_, rights_};
    const auto& kept = state.of(tensor.parameter);
    lefts_ += kept.rank > 0 ? kept.rows * static_cast<uint64_t>(kept.rank) : tensor.count;
    rights_ += kept.columns * static_cast<uint64_t>(kept.rank);
    tensors_.push_back(tensor);
  }
}

Result<std::unique_ptr<BucketExchange>> PowerSgdExchange::make(const BucketPlace& place, PowerSgdState& state,
                                                               const Allocate& allocate) {
  std::unique_ptr<PowerSgdExchange> made(new PowerSgdExchange(place, state));
  HORO_ASSIGN(made->left_, allocate(made->lefts_ * sizeof(float)));
  HORO_ASSIGN(made->right_, allocate(made->rights_ * sizeof(float)));
  return std::unique_ptr<BucketExchange>(std::move(made));
}

Matrix PowerSgdExchange::matrix_of(const Tensor& tensor) const {
  const auto& kept = state_.of(tensor.parameter);
  return {reinterpret_cast<float*>(place_.memory) + tensor.begin, kept.rows, kept.columns};
}

std::span<float> PowerSgdExchange::left_of(const Tensor& tensor) const {
  const auto& kept = state_.of(tensor.parameter);
  return {floats(left_) + tensor.left, kept.rows * static_cast<uint64_t>(kept.rank)};
}

std::span<float> PowerSgdExchange::right_of(const Tensor& tensor) const {
  const auto& kept = state_.of(tensor.parameter);
  return {floats(right_) + tensor.right, kept.columns * static_cast<uint64_t>(kept.rank)};
}

void PowerSgdExchange::begin(const Round& round) {
  round_ = round;
  step_ = 0;
  exact_.begin(round);
}

Result<std::optional<Exchange::Step>> PowerSgdExchange::next() {
  if (round_.iteration < state_.options().start_iteration) return exact_.next();
  ++step_;
  if (step_ == 1) return std::optional(send_left());
  if (step_ == 2 && rights_ > 0) return std::optional(send_right());
  take();
  return std::optional<Step>();
}

Exchange::Step PowerSgdExchange::send_left() {
  for (const Tensor& tensor : tensors_) {
    const Matrix matrix = matrix_of(tensor);
    auto& kept = state_.of(tensor.parameter);
    if (kept.rank == 0) {
      std::copy_n(matrix.values, tensor.count, floats(left_) + tensor.left);
      continue;
    }
    if (!kept.error.empty()) add(matrix.values, kept.error.data(), tensor.count);
    state_.prepare(tensor.parameter, round_.iteration);
    for (uint64_t k = 0; k < static_cast<uint64_t>(kept.rank); ++k) {
      multiply(left_of(tensor).data() + k * kept.rows, matrix, kept.right.data() + k * kept.columns);
    }
  }
  return {allreduce_of(DType::kF32, lefts_, round_.factor), left_.get(), left_.get(), lefts_ * sizeof(float)};
}

Exchange::Step PowerSgdExchange::send_right() {
  for (const Tensor& tensor : tensors_) {
    const auto& kept = state_.of(tensor.parameter);
    if (kept.rank == 0) continue;
    orthogonalize(left_of(tensor), kept.rows);
    for (uint64_t k = 0; k < static_cast<uint64_t>(kept.rank); ++k) {
      multiply_transposed(right_of(tensor).data() + k * kept.columns, matrix_of(tensor),
                          left_of(tensor).data() + k * kept.rows);
    }
  }
  return {allreduce_of(DType::kF32, rights_, round_.factor), right_.get(), right_.get(), rights_ * sizeof(float)};
}

void PowerSgdExchange::take() {
  for (const Tensor& tensor : tensors_) {
    const Matrix matrix = matrix_of(tensor);
    auto& kept = state_.of(tensor.parameter);
    if (kept.rank == 0) {
      std::copy_n(floats(left_) + tensor.left, tensor.count, matrix.values);
      continue;
    }
    const std::span<float> left = left_of(tensor), right = right_of(tensor);
    if (state_.options().error_feedback) kept.error.resize(tensor.count);
    put_product(matrix, left.data(), right.data(), kept.rank, kept.error.empty() ? nullptr : kept.error.data());
    kept.right.assign(right.begin(), right.end());
    // One bad iteration (an overflow, say) must not spoil all that follow.
    if (!all_finite(left) || !all_finite(right)) {
      kept.right.clear();
      kept.error.clear();
    }
  }
}

}  // namespace horo::ddp
