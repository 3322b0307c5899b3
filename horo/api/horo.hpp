// horo for C++: thin, header-only wrappers over horo.h. Failures are exceptions (horo::Error).
//
//   horo::Engine engine;                                  // rank, size, store and key from HORO_* variables
//   std::vector<float> gradient(1000);
//   engine.world().allreduce(gradient.data(), gradient.size(), HORO_AVERAGE);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "horo/api/horo.h"

namespace horo {

/// What went wrong. See docs/errors.md for what to do about each code.
class Error : public std::runtime_error {
 public:
  explicit Error(const horo_status* status)
      : std::runtime_error(horo_status_message(status)),
        code_(horo_status_code(status)),
        operation_(horo_status_operation(status)),
        contents_intact_(horo_status_contents_intact(status) != 0),
        lost_(horo_status_lost(status, nullptr, 0)) {
    horo_status_lost(status, lost_.data(), lost_.size());
  }
  horo_code code() const { return code_; }
  const std::vector<int>& lost() const { return lost_; }
  uint64_t operation() const { return operation_; }
  bool contents_intact() const { return contents_intact_; }

 private:
  horo_code code_;
  uint64_t operation_;
  bool contents_intact_;
  std::vector<int> lost_;
};

/// Throws unless `status` is success; frees it.
inline void check(horo_status* status) {
  if (status == nullptr) return;
  Error error(status);
  horo_status_free(status);
  throw error;
}

/// The dtype of a C++ element type.
template <class T>
constexpr horo_dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return HORO_F32;
  else if constexpr (std::is_same_v<T, double>)
    return HORO_F64;
  else if constexpr (std::is_same_v<T, bool>)
    return HORO_BOOL;
  else if constexpr (std::is_same_v<T, std::byte>)
    return HORO_BYTE;
  else {
    static_assert(std::is_integral_v<T>, "pass the dtype of other element types to run()");
    constexpr horo_dtype kSigned[] = {HORO_I8, HORO_I16, HORO_I32, HORO_I64};
    constexpr horo_dtype kUnsigned[] = {HORO_U8, HORO_U16, HORO_U32, HORO_U64};
    constexpr int kIndex = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? kSigned[kIndex] : kUnsigned[kIndex];
  }
}

/// An operation under way. Its memory must stay valid until wait() has returned.
class Request {
 public:
  explicit Request(horo_request* request) : request_(request, horo_request_destroy) {}
  bool done() const { return horo_request_done(request_.get()) != 0; }
  /// Throws what the operation ended in. Negative: waits for ever.
  void wait(double timeout = -1) { check(horo_request_wait(request_.get(), timeout)); }
  /// The same; throws HORO_INTERRUPTED after a signal, and can be called again then.
  void wait_interruptible(double timeout = -1) { check(horo_request_wait_interruptible(request_.get(), timeout)); }

 private:
  std::unique_ptr<horo_request, void (*)(horo_request*)> request_;
};

/// Members make the same calls in the same order.
class Group {
 public:
  using Handle = std::unique_ptr<horo_group, void (*)(horo_group*)>;
  explicit Group(Handle handle) : group_(std::move(handle)) {}

  int rank() const { return horo_group_rank(group_.get()); }
  int size() const { return horo_group_size(group_.get()); }
  std::string transport() const { return horo_group_transport(group_.get()); }
  std::string algorithm() const { return horo_group_algorithm(group_.get()); }
  horo_group* get() const { return group_.get(); }

  void run(const horo_operation& operation, const void* input, void* output) {
    check(horo_group_run(get(), &operation, input, output));
  }
  /// Nothing when it is done; after a signal the rest of it, to be waited for.
  std::optional<Request> run_interruptible(const horo_operation& operation, const void* input, void* output) {
    horo_request* rest = nullptr;
    horo_status* status = horo_group_run_interruptible(get(), &operation, input, output, &rest);
    if (rest == nullptr) {
      check(status);
      return std::nullopt;
    }
    horo_status_free(status);
    return Request(rest);
  }
  Request submit(const horo_operation& operation, const void* input, void* output) {
    horo_request* request = nullptr;
    check(horo_group_submit(get(), &operation, input, output, nullptr, nullptr, &request));
    return Request(request);
  }

  template <class T>
  void allreduce(T* data, size_t count, horo_reduce_op op = HORO_SUM) {
    check(horo_allreduce(get(), data, data, count, dtype_of<T>(), op));
  }
  template <class T>
  Request allreduce_async(T* data, size_t count, horo_reduce_op op = HORO_SUM) {
    horo_operation operation = HORO_OPERATION_INIT;
    operation.kind = HORO_ALLREDUCE;
    operation.dtype = dtype_of<T>();
    operation.op = op;
    operation.count = count;
    return submit(operation, data, data);
  }
  template <class T>
  void broadcast(T* data, size_t count, int root) {
    check(horo_broadcast(get(), data, count, dtype_of<T>(), root));
  }
  /// `output` holds size() blocks of `count`.
  template <class T>
  void allgather(const T* input, T* output, size_t count) {
    check(horo_allgather(get(), input, output, count, dtype_of<T>()));
  }
  /// `input` holds size() blocks of `count`.
  template <class T>
  void reducescatter(const T* input, T* output, size_t count, horo_reduce_op op = HORO_SUM) {
    check(horo_reducescatter(get(), input, output, count, dtype_of<T>(), op));
  }
  template <class T>
  void alltoall(const T* input, T* output, size_t count) {
    check(horo_alltoall(get(), input, output, count, dtype_of<T>()));
  }
  void barrier() { check(horo_barrier(get())); }

 private:
  Handle group_;
};

/// This process's place in a job.
class Engine {
 public:
  Engine() : Engine(horo_engine_options HORO_ENGINE_OPTIONS_INIT) {}
  explicit Engine(const horo_engine_options& options) : engine_(start(options), horo_engine_destroy) {}

  int rank() const { return horo_engine_rank(engine_.get()); }
  int size() const { return horo_engine_size(engine_.get()); }
  int local_rank() const { return horo_engine_local_rank(engine_.get()); }
  int local_size() const { return horo_engine_local_size(engine_.get()); }
  uint64_t epoch() const { return horo_engine_epoch(engine_.get()); }
  /// Who is left.
  std::vector<int> members() const {
    std::vector<int> ranks(static_cast<size_t>(size()));
    ranks.resize(horo_engine_members(engine_.get(), ranks.data(), ranks.size()));
    return ranks;
  }
  Group world() const {
    return Group(Group::Handle(horo_engine_world(engine_.get()), [](horo_group*) {}));
  }
  Group group(const std::vector<int>& ranks) {
    horo_group* made = nullptr;
    check(horo_group_create(engine_.get(), ranks.data(), ranks.size(), &made));
    return Group(Group::Handle(made, horo_group_destroy));
  }

  /// Memory that peers on this host can read: operations on it need no copy in.
  template <class T>
  std::unique_ptr<T[], std::function<void(T*)>> allocate(size_t count) {
    void* memory = nullptr;
    const bool too_many = count > SIZE_MAX / sizeof(T);
    check(horo_buffer_allocate(engine_.get(), too_many ? SIZE_MAX : count * sizeof(T), &memory));
    return {static_cast<T*>(memory), [engine = engine_.get()](T* freed) { horo_buffer_free(engine, freed); }};
  }
  void shutdown() { horo_engine_shutdown(engine_.get()); }
  horo_engine* get() const { return engine_.get(); }

 private:
  static horo_engine* start(const horo_engine_options& options) {
    horo_engine* engine = nullptr;
    check(horo_engine_start(&options, &engine));
    return engine;
  }
  std::unique_ptr<horo_engine, void (*)(horo_engine*)> engine_;
};

}  // namespace horo
