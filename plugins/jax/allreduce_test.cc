// The handler, called as XLA calls it: by a frame and an interface of the test's own.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plugins/jax/ffi.h"

#include "horo/api/horo.hpp"

namespace ffi = horo::jax::ffi;

extern "C" ffi::Error* horo_jax_allreduce(ffi::CallFrame* frame);

// What is opaque to the handler.
struct ffi::Error {
  int code;
  std::string words;
};
struct ffi::Future {
  std::mutex mutex;
  std::condition_variable came;
  bool done = false;
  std::string failure;

  void complete(std::string words) {
    const std::lock_guard lock(mutex);
    failure = std::move(words);
    done = true;
    came.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex);
    return came.wait_for(lock, std::chrono::seconds(30), [this] { return done; });
  }
};

namespace {

ffi::Error* create_error(ffi::ErrorCreateArguments* arguments) {
  return new ffi::Error{arguments->code, arguments->message};
}
ffi::Error* create_future(ffi::FutureArguments* arguments) {
  arguments->future = new ffi::Future;
  return nullptr;
}
ffi::Error* set_available(ffi::FutureArguments* arguments) {
  arguments->future->complete("");
  return nullptr;
}
ffi::Error* set_error(ffi::FutureErrorArguments* arguments) {
  const std::unique_ptr<ffi::Error> error(arguments->error);
  arguments->future->complete(error->words);
  return nullptr;
}

ffi::Api api_of(size_t size) {
  ffi::Api api{};
  api.struct_size = size;
  api.create_error = create_error;
  api.future_create = create_future;
  api.future_set_available = set_available;
  api.future_set_error = set_error;
  return api;
}

using Tensors = std::vector<std::vector<float>>;

/// A call of the handler with tensors of floats, in place.
class Frame {
 public:
  explicit Frame(Tensors tensors, size_t api_size = sizeof(ffi::Api))
      : tensors_(std::move(tensors)), api_(api_of(api_size)), dims_(tensors_.size()), buffers_(tensors_.size()) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      dims_[i] = static_cast<int64_t>(tensors_[i].size());
      buffers_[i] = {sizeof(ffi::Buffer), nullptr, ffi::kF32, tensors_[i].data(), 1, &dims_[i]};
      values_.push_back(&buffers_[i]);
      types_.push_back(ffi::kBuffer);
    }
    add("name", ffi::kStringAttribute, &name_);
    add("op", ffi::kScalarAttribute, &op_);
    add("process_set", ffi::kScalarAttribute, &set_);
    add("prescale", ffi::kScalarAttribute, &before_);
    add("postscale", ffi::kScalarAttribute, &after_);
  }

  /// The words of a failure, "" for success, now or by the future.
  std::string call() {
    const auto count = static_cast<int64_t>(values_.size());
    const ffi::Arguments buffers{sizeof(ffi::Arguments), nullptr, count, types_.data(), values_.data()};
    frame_ = {};
    frame_.struct_size = sizeof(frame_);
    frame_.api = &api_;
    frame_.stage = ffi::kExecute;
    frame_.arguments = frame_.results = buffers;
    frame_.attributes = {sizeof(ffi::Attributes), nullptr,        static_cast<int64_t>(keys_.size()),
                         key_types_.data(),       key_pointers(), key_values_.data()};
    const std::unique_ptr<ffi::Error> error(horo_jax_allreduce(&frame_));
    if (error != nullptr) return error->words;
    const std::unique_ptr<ffi::Future> future(frame_.future);
    was_later_ = future != nullptr;
    if (future == nullptr) return "";
    return future->wait() ? future->failure : "the future was never completed";
  }
  void forget(const std::string& key) {
    for (ffi::Bytes& one : keys_) {
      if (std::string(one.begin, one.size) == key) one = {"x", 1};
    }
  }

  const std::vector<float>& tensor(size_t index) const { return tensors_[index]; }
  bool was_later() const { return was_later_; }
  void set_type(ffi::DataType type) { buffers_.front().dtype = type; }

 private:
  void add(const char* key, ffi::AttributeType type, void* value) {
    keys_.push_back({key, std::strlen(key)});
    key_types_.push_back(type);
    key_values_.push_back(value);
  }
  ffi::Bytes** key_pointers() {
    key_pointers_.clear();
    for (ffi::Bytes& one : keys_) key_pointers_.push_back(&one);
    return key_pointers_.data();
  }

  Tensors tensors_;
  ffi::Api api_;
  std::vector<int64_t> dims_;
  std::vector<ffi::Buffer> buffers_;
  std::vector<void*> values_;
  std::vector<int> types_;
  ffi::Bytes name_{"gradients", 9};
  int64_t sum_ = HORO_SUM, everybody_ = 0;
  double twice_ = 2.0, once_ = 1.0;
  ffi::Scalar op_{ffi::kS64, &sum_}, set_{ffi::kS64, &everybody_};
  ffi::Scalar before_{ffi::kF64, &twice_}, after_{ffi::kF64, &once_};
  std::vector<ffi::Bytes> keys_;
  std::vector<ffi::AttributeType> key_types_;
  std::vector<void*> key_values_;
  std::vector<ffi::Bytes*> key_pointers_;
  ffi::CallFrame frame_{};
  bool was_later_ = false;
};

TEST(JaxAllreduce, SaysWhichVersionItWasMadeFor) {
  ffi::Metadata metadata{sizeof(ffi::Metadata), {}, 7};
  ffi::MetadataExtension extension{{sizeof(ffi::MetadataExtension), ffi::kMetadataExtension, nullptr}, &metadata};
  ffi::CallFrame frame{};
  frame.extension_start = &extension.base;
  EXPECT_EQ(horo_jax_allreduce(&frame), nullptr);
  EXPECT_EQ(metadata.version.major, 0);
  EXPECT_EQ(metadata.version.minor, 1);
  EXPECT_EQ(metadata.traits, 0u);
}

TEST(JaxAllreduce, WithoutAJobSaysThatItIsNotInitialized) {
  Frame frame(Tensors{{1.0F}});
  EXPECT_NE(frame.call().find("horo: invalid-argument: the allreduce 'gradients' needs horo"), std::string::npos);
}

TEST(JaxAllreduce, CompletesAFutureWhereThereAreFutures) {
  horo::Runtime runtime;
  horo_runtime_publish(runtime.get());
  Frame frame(Tensors{{1.0F, 2.0F}, {3.0F}});
  EXPECT_EQ(frame.call(), "");
  EXPECT_TRUE(frame.was_later());
  EXPECT_EQ(frame.tensor(0), (std::vector<float>{2.0F, 4.0F}));
  EXPECT_EQ(frame.tensor(1), (std::vector<float>{6.0F}));
}

TEST(JaxAllreduce, WaitsWhereThereAreNone) {
  horo::Runtime runtime;
  horo_runtime_publish(runtime.get());
  Frame frame(Tensors{{1.0F}}, offsetof(ffi::Api, future_create));
  EXPECT_EQ(frame.call(), "");
  EXPECT_FALSE(frame.was_later());
  EXPECT_EQ(frame.tensor(0), (std::vector<float>{2.0F}));
}

TEST(JaxAllreduce, RefusesFramesThatMakeNoSense) {
  horo::Runtime runtime;
  horo_runtime_publish(runtime.get());
  EXPECT_NE(Frame(Tensors{}).call().find("0 inputs and 0 outputs"), std::string::npos);
  for (const char* key : {"name", "op", "process_set", "prescale", "postscale"}) {
    Frame frame(Tensors{{1.0F}});
    frame.forget(key);
    EXPECT_NE(frame.call().find("lacks the attribute '" + std::string(key) + "'"), std::string::npos) << key;
  }
  Frame frame(Tensors{{1.0F}});
  frame.set_type(static_cast<ffi::DataType>(999));
  EXPECT_NE(frame.call().find("XLA's element type number 999"), std::string::npos);
}

TEST(JaxAllreduce, AfterAShutdownThereIsNoJob) {
  horo::Runtime runtime;
  horo_runtime_publish(runtime.get());
  runtime.shutdown();
  Frame frame(Tensors{{1.0F}});
  EXPECT_NE(frame.call().find("not been initialized"), std::string::npos);
  EXPECT_EQ(frame.tensor(0), (std::vector<float>{1.0F}));
}

}  // namespace
