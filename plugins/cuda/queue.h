// A stream of the plugin's own, and what is put into it.
#pragma once

#include <memory>
#include <span>

#include "plugins/cuda/context.h"

#include "horo/device/plugin.h"

namespace horo::cuda {

/// Used by one thread at a time.
class Queue {
 public:
  static Result<std::unique_ptr<Queue>> open(Context& context);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Status wait(CUevent event);
  Status copy(std::span<const horo_device_copy> pieces);
  Status transfer(void* to, const void* from, uint64_t bytes);
  Status reduce(const horo_device_reduction& reduction);
  Status finish(bool may_spin);
  /// What is there now has run when poll() is true.
  Status mark();
  Result<bool> poll() const;
  /// Until what was marked has run.
  Status await(bool may_spin) const;
  Result<Context::Event*> record();

  // As in horo/device/plugin.h; words are in memory of the host that the device has mapped.
  Status signal(uint32_t* word, uint32_t value);
  Status hold(const uint32_t* word, uint32_t value);
  Status guard(const uint32_t* word);

  Context& context() const { return context_; }
  CUstream stream() const { return stream_; }

 private:
  explicit Queue(Context& context) : context_(context), driver_(context.driver()) {}
  /// What comes later knows what the host's word says when this has run.
  Status look_again();
  Status launch(CUfunction function, uint64_t blocks, void** arguments);
  /// A table for copy_many, in the device's memory. Good until finish().
  Result<CUdeviceptr> upload(const void* table, uint64_t bytes);
  void release_table();

  Context& context_;
  const Driver& driver_;
  CUstream stream_ = nullptr;
  CUevent done_ = nullptr;
  const uint32_t* guarding_ = nullptr;  ///< In memory of the host.
  CUdeviceptr guard_ = 0;               ///< What kernels look at; 0: nothing.
  CUdeviceptr guard_memory_ = 0;
  void* table_host_ = nullptr;
  CUdeviceptr table_ = 0;
  uint64_t table_bytes_ = 0;
  uint64_t table_used_ = 0;
};

}  // namespace horo::cuda
