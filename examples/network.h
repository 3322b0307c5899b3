// A small fully connected network with ReLU between its layers and softmax at the end, and a problem for it to learn.
// Plain C++: nothing here knows that there are other ranks, but for the hook that backward() calls.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

namespace example {

/// A matrix in somebody's memory; the strides make a transpose free.
struct View {
  const float* data;
  size_t row_stride, column_stride;
  float at(size_t row, size_t column) const { return data[row * row_stride + column * column_stride]; }
};

using Lane = float __attribute__((vector_size(16)));  // What every x86_64 and every aarch64 has a register for.
inline constexpr size_t kTileColumns = 8;

/// `Rows` rows of c = a * b, for the columns of b that lie in `panel`.
template <size_t Rows>
void multiply_tile(const View& a, size_t row, const Lane* panel, size_t depth, float* c, size_t columns) {
  Lane sums[Rows][2] = {};
  for (size_t k = 0; k < depth; ++k) {
    for (size_t i = 0; i < Rows; ++i) {
      const float factor = a.at(row + i, k);
      sums[i][0] += panel[2 * k] * factor;
      sums[i][1] += panel[2 * k + 1] * factor;
    }
  }
  for (size_t i = 0; i < Rows; ++i) std::memcpy(c + (row + i) * columns, sums[i], sizeof sums[i]);
}

/// c = a * b, where a has rows x depth and b has depth x columns elements; columns is a multiple of 8.
inline void multiply(View a, View b, float* c, size_t rows, size_t depth, size_t columns) {
  static thread_local std::vector<Lane> panel;
  panel.resize(2 * depth);
  for (size_t column = 0; column < columns; column += kTileColumns) {
    for (size_t k = 0; k < depth; ++k) {
      for (size_t j = 0; j < kTileColumns; ++j) panel[2 * k + j / 4][j % 4] = b.at(k, column + j);
    }
    size_t row = 0;
    for (; row + 4 <= rows; row += 4) multiply_tile<4>(a, row, panel.data(), depth, c + column, columns);
    for (; row < rows; ++row) multiply_tile<1>(a, row, panel.data(), depth, c + column, columns);
  }
}

struct Samples {
  size_t width = 0;
  std::vector<float> values;  ///< A row per sample.
  std::vector<int> labels;
  size_t count() const { return labels.size(); }
  const float* row(size_t index) const { return values.data() + index * width; }
};

/// Each class is several clouds in a space of many dimensions, so that no plane separates the classes.
inline std::pair<Samples, Samples> make_problem(size_t width, int classes, size_t training, size_t held_out) {
  constexpr int kClouds = 8;
  constexpr float kCentres = 0.5F, kNoise = 0.87F;  // Together of unit variance.
  std::mt19937 random(20240607);                    // The same problem on every rank.
  std::normal_distribution<float> normal;
  std::vector<float> centres(width * static_cast<size_t>(classes * kClouds));
  for (float& value : centres) value = kCentres * normal(random);
  auto draw = [&](size_t count) {
    Samples samples{width, std::vector<float>(count * width), std::vector<int>(count)};
    for (size_t index = 0; index < count; ++index) {
      const size_t cloud = random() % static_cast<size_t>(classes * kClouds);
      samples.labels[index] = static_cast<int>(cloud) % classes;
      for (size_t i = 0; i < width; ++i) {
        samples.values[index * width + i] = centres[cloud * width + i] + kNoise * normal(random);
      }
    }
    return samples;
  };
  Samples first = draw(training);
  return {std::move(first), draw(held_out)};
}

struct Score {
  double loss = 0;  ///< Mean cross entropy.
  double accuracy = 0;
};

class Network {
 public:
  static size_t parameter_count(const std::vector<size_t>& widths) {
    size_t count = 0;
    for (size_t layer = 0; layer + 1 < widths.size(); ++layer) count += (widths[layer] + 1) * widths[layer + 1];
    return count;
  }

  /// `gradient` is the caller's memory for parameter_count() floats.
  Network(std::vector<size_t> widths, float* gradient) : widths_(std::move(widths)), gradient_(gradient) {
    std::mt19937 random(7);
    parameters_.resize(parameter_count(widths_));
    velocity_.resize(parameters_.size());
    activations_.resize(widths_.size());
    size_t offset = 0;
    for (size_t layer = 0; layer + 1 < widths_.size(); ++layer) {
      offsets_.push_back(offset);
      std::normal_distribution<float> normal(0, std::sqrt(2.0F / static_cast<float>(widths_[layer])));
      const size_t weights = widths_[layer] * widths_[layer + 1];
      std::generate_n(parameters_.begin() + static_cast<std::ptrdiff_t>(offset), weights,
                      [&] { return normal(random); });
      offset += weights + widths_[layer + 1];
    }
  }

  std::vector<float>& parameters() { return parameters_; }

  Score forward(const float* input, const int* labels, size_t rows) {
    rows_ = rows;
    activations_[0].assign(input, input + rows * widths_[0]);
    for (size_t layer = 0; layer + 1 < widths_.size(); ++layer) {
      const size_t in = widths_[layer], out = widths_[layer + 1];
      const float* weights = parameters_.data() + offsets_[layer];
      std::vector<float>& result = activations_[layer + 1];
      result.resize(rows * out);
      multiply({activations_[layer].data(), in, 1}, {weights, out, 1}, result.data(), rows, in, out);
      const bool last = layer + 2 == widths_.size();
      for (size_t row = 0; row < rows; ++row) {
        float* values = result.data() + row * out;
        for (size_t i = 0; i < out; ++i) values[i] += weights[in * out + i];
        if (!last) std::transform(values, values + out, values, [](float value) { return std::max(value, 0.0F); });
      }
    }
    return softmax(labels);
  }

  /// Calls ready(memory, count) as soon as the gradient of a layer is there, the last layer first.
  template <class Ready>
  void backward(Ready ready) {
    for (size_t layer = widths_.size() - 1; layer-- > 0;) {
      const size_t in = widths_[layer], out = widths_[layer + 1];
      float* gradient = gradient_ + offsets_[layer];
      multiply({activations_[layer].data(), 1, in}, {delta_.data(), out, 1}, gradient, in, rows_, out);
      float* bias = gradient + in * out;
      std::fill_n(bias, out, 0.0F);
      for (size_t row = 0; row < rows_; ++row) {
        for (size_t i = 0; i < out; ++i) bias[i] += delta_[row * out + i];
      }
      ready(gradient, (in + 1) * out);
      if (layer == 0) return;
      back_delta_.resize(rows_ * in);
      const float* weights = parameters_.data() + offsets_[layer];
      multiply({delta_.data(), out, 1}, {weights, 1, out}, back_delta_.data(), rows_, out, in);
      for (size_t i = 0; i < back_delta_.size(); ++i) {
        if (activations_[layer][i] <= 0) back_delta_[i] = 0;
      }
      delta_.swap(back_delta_);
    }
  }

  /// Stochastic gradient descent with momentum.
  void step(float rate) {
    constexpr float kMomentum = 0.9F;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      velocity_[i] = kMomentum * velocity_[i] + gradient_[i];
      parameters_[i] -= rate * velocity_[i];
    }
  }

 private:
  /// Turns the last activations into the score and, in delta_, into the derivative of the mean loss.
  Score softmax(const int* labels) {
    const size_t classes = widths_.back();
    const float scale = 1.0F / static_cast<float>(rows_);
    Score score;
    delta_ = activations_.back();
    for (size_t row = 0; row < rows_; ++row) {
      float* values = delta_.data() + row * classes;
      const auto label = static_cast<size_t>(labels[row]);
      const float* best = std::max_element(values, values + classes);
      score.accuracy += best == values + label ? scale : 0;
      const float highest = *best;
      float sum = 0;
      for (size_t i = 0; i < classes; ++i) sum += values[i] = std::exp(values[i] - highest);
      score.loss -= std::log(std::max(values[label] / sum, 1e-30F)) * scale;
      for (size_t i = 0; i < classes; ++i) values[i] = (values[i] / sum - (i == label ? 1.0F : 0.0F)) * scale;
    }
    return score;
  }

  std::vector<size_t> widths_, offsets_;
  float* gradient_;
  std::vector<float> parameters_, velocity_, delta_, back_delta_;
  std::vector<std::vector<float>> activations_;
  size_t rows_ = 0;
};

}  // namespace example
