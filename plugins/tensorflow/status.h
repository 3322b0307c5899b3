// Outcomes on their way to TensorFlow.
#pragma once

#include <memory>
#include <string>

#include "plugins/tensorflow/api.h"

#include "horo/api/horo.h"

namespace horo::tensorflow {

/// A status of TensorFlow's that frees itself.
class Outcome {
 public:
  explicit Outcome(const Api& api) : api_(api), status_(api.new_status(), api.delete_status) {}

  TF_Status* get() const { return status_.get(); }
  bool ok() const { return api_.get_code(get()) == 0; }
  /// An outcome of the library's; null is success. Its code and lost ranks go before the words, where the front end
  /// looks for them.
  void set(const horo_status* status);
  void fail(horo_code code, const std::string& words);

 private:
  const Api& api_;
  std::unique_ptr<TF_Status, void (*)(TF_Status*)> status_;
};

}  // namespace horo::tensorflow
