// horo for C++: thin, header-only wrappers over horo.h. Failures are exceptions (horo::Error).
//
//   horo::Engine engine;                                  // rank, size, store and key from HORO_* variables
//   std::vector<float> gradient(1000);
//   engine.world().allreduce(gradient.data(), gradient.size(), HORO_AVERAGE);
#pragma once

#include <algorithm>
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

#include "horo/api/devices.h"
#include "horo/api/horo.h"
#include "horo/api/observe.h"

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
  /// It is over, here and on the other members.
  void give_up(const std::string& why) { check(horo_group_give_up(get(), why.c_str())); }

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

/// A tensor of `count` elements at `data`, in place, to be handed in to a Runtime. The name must outlive the call.
template <class T>
horo_tensor tensor_of(const char* name, horo_kind kind, T* data, const int64_t& count) {
  horo_tensor tensor = HORO_TENSOR_INIT;
  tensor.name = name;
  tensor.kind = kind;
  tensor.dtype = dtype_of<std::remove_const_t<T>>();
  tensor.shape = &count;
  tensor.dimensions = 1;
  tensor.input = data;
  if constexpr (!std::is_const_v<T>) tensor.output = data;
  return tensor;
}

/// Named tensors that were handed in. Their memory must stay valid until they are done; results that the library
/// allocated live as long as this.
class Handle {
 public:
  explicit Handle(horo_handle* handle) : handle_(handle, horo_handle_destroy) {}
  bool done() const { return horo_handle_done(handle_.get()) == 1; }
  /// Throws what the operation ended in. Negative: waits for ever.
  void wait(double timeout = -1) { check(horo_handle_wait(handle_.get(), timeout)); }
  /// False when it is not done by then.
  bool wait_for(double seconds) { return has_ended(horo_handle_wait(handle_.get(), seconds)); }
  /// The same, for what is put into a stream of its device next: it need not be done yet (horo/api/devices.h).
  bool wait_in_stream(void* stream, double seconds) {
    return has_ended(horo_handle_wait_in_stream(handle_.get(), stream, seconds));
  }
  horo_result result(size_t index = 0) const {
    horo_result result = HORO_RESULT_INIT;
    check(horo_handle_result(handle_.get(), index, &result));
    return result;
  }
  /// Of a join: the last rank.
  int64_t answer() const { return horo_handle_answer(handle_.get()); }

 private:
  bool has_ended(horo_status* status) {
    if (horo_status_code(status) == HORO_TIMEOUT) {
      // Of the wait, or of the operation, which may have ended just now: asked again it says which.
      horo_status_free(status);
      if (!done()) return false;
      status = horo_handle_wait(handle_.get(), 0);
    }
    check(status);
    return true;
  }
  std::unique_ptr<horo_handle, void (*)(horo_handle*)> handle_;
};

/// Named tensors, handed in by every rank in any order.
class Runtime {
 public:
  Runtime() : Runtime(horo_runtime_options HORO_RUNTIME_OPTIONS_INIT) {}
  explicit Runtime(const horo_runtime_options& options) : runtime_(start(options), horo_runtime_destroy) {}

  int rank() const { return horo_runtime_rank(get()); }
  int size() const { return horo_runtime_size(get()); }
  int local_rank() const { return horo_runtime_local_rank(get()); }
  int local_size() const { return horo_runtime_local_size(get()); }
  int cross_rank() const { return horo_runtime_cross_rank(get()); }
  int cross_size() const { return horo_runtime_cross_size(get()); }
  bool is_homogeneous() const { return horo_runtime_is_homogeneous(get()) == 1; }
  uint64_t epoch() const { return horo_runtime_epoch(get()); }
  /// After a loss, by all survivors: goes on without the ranks that are gone. A negative timeout waits for ever.
  void reform(double timeout_seconds = 30) { check(horo_runtime_reform(get(), timeout_seconds)); }

  /// Several tensors are a group.
  Handle submit(const std::vector<horo_tensor>& tensors, int set = 0) {
    horo_handle* handle = nullptr;
    check(horo_runtime_submit(get(), set, tensors.data(), tensors.size(), nullptr, nullptr, &handle));
    return Handle(handle);
  }
  /// Each by itself. Appends the handles of those that are under way, also when the next is refused, and that is
  /// thrown. `waits`: this thread waits for them next, and until then nothing happens to them.
  void submit_each(const std::vector<horo_tensor>& tensors, std::vector<Handle>& handles, bool waits = false,
                   int set = 0) {
    std::vector<horo_handle*> made(tensors.size());
    handles.reserve(handles.size() + tensors.size());
    horo_status* status =
        horo_runtime_submit_each(get(), set, tensors.data(), tensors.size(), waits ? 1 : 0, made.data());
    for (horo_handle* one : made) {
      if (one != nullptr) handles.emplace_back(one);
    }
    check(status);
  }
  template <class T>
  Handle allreduce_async(const char* name, T* data, size_t count, horo_reduce_op op = HORO_SUM, int set = 0) {
    const auto extent = static_cast<int64_t>(count);
    horo_tensor tensor = tensor_of(name, HORO_ALLREDUCE, data, extent);
    tensor.op = op;
    horo_handle* handle = nullptr;
    check(horo_runtime_submit(get(), set, &tensor, 1, nullptr, nullptr, &handle));
    return Handle(handle);
  }
  /// Hands in and waits; all of it is done by this thread.
  void run(const std::vector<horo_tensor>& tensors, int set = 0) {
    check(horo_runtime_run(get(), set, tensors.data(), tensors.size(), nullptr));
  }
  /// Hands in and waits for so long: the handle may not be done yet.
  Handle run_for(const std::vector<horo_tensor>& tensors, double seconds, int set = 0) {
    horo_handle* handle = nullptr;
    horo_status* status = horo_runtime_run_for(get(), set, tensors.data(), tensors.size(), seconds, &handle);
    if (handle == nullptr) check(status);
    Handle made(handle);
    horo_status_free(status);
    if (made.done()) made.wait(0);  // What it ended in, and not that it was not done a moment ago.
    return made;
  }
  template <class T>
  void allreduce(const char* name, T* data, size_t count, horo_reduce_op op = HORO_SUM, int set = 0) {
    const auto extent = static_cast<int64_t>(count);
    horo_tensor tensor = tensor_of(name, HORO_ALLREDUCE, data, extent);
    tensor.op = op;
    run({tensor}, set);
  }
  void barrier(const char* name = "barrier", int set = 0) {
    horo_tensor tensor = HORO_TENSOR_INIT;
    tensor.name = name;
    submit({tensor}, set).wait();
  }
  Handle join(int set = 0) {
    horo_handle* handle = nullptr;
    check(horo_runtime_join(get(), set, &handle));
    return Handle(handle);
  }

  /// Memory that peers on this host can read: tensors in it are reduced where they are, without a copy in. It stays
  /// valid after shutdown().
  template <class T>
  std::unique_ptr<T[], std::function<void(T*)>> allocate(size_t count) {
    horo_memory* memory = nullptr;
    const bool too_many = count > SIZE_MAX / sizeof(T);
    check(horo_runtime_allocate(get(), too_many ? SIZE_MAX : count * sizeof(T), &memory));
    return {static_cast<T*>(horo_memory_address(memory)), [memory](T*) { horo_memory_destroy(memory); }};
  }

  /// Called by all ranks of the job, in the same order.
  int add_set(const std::vector<int>& ranks) {
    int set = 0;
    check(horo_runtime_add_set(get(), ranks.data(), ranks.size(), &set));
    return set;
  }
  void remove_set(int set) { check(horo_runtime_remove_set(get(), set)); }
  std::vector<int> set_numbers() const {
    std::vector<int> numbers(horo_runtime_set_numbers(get(), nullptr, 0));
    numbers.resize(std::min(numbers.size(), horo_runtime_set_numbers(get(), numbers.data(), numbers.size())));
    return numbers;
  }
  std::vector<int> set_ranks(int set) const {
    std::vector<int> ranks(static_cast<size_t>(size()));
    size_t count = 0;
    check(horo_runtime_set_ranks(get(), set, ranks.data(), ranks.size(), &count));
    ranks.resize(count);
    return ranks;
  }
  /// Ordered operations of some ranks, beside the process sets.
  Group group(const std::vector<int>& ranks) {
    horo_group* made = nullptr;
    check(horo_runtime_group(get(), ranks.data(), ranks.size(), &made));
    return Group(Group::Handle(made, horo_group_destroy));
  }
  /// Writes a Chrome trace from now on: to `path` on rank 0, to a file named after it elsewhere.
  void start_timeline(const std::string& path, bool mark_cycles = false) {
    check(horo_runtime_start_timeline(get(), path.c_str(), mark_cycles ? 1 : 0));
  }
  void stop_timeline() { check(horo_runtime_stop_timeline(get())); }

  horo_operation_metrics metrics(horo_kind kind, int set = 0) const {
    horo_operation_metrics metrics{};
    metrics.struct_size = sizeof metrics;
    check(horo_runtime_operation_metrics(get(), set, kind, &metrics));
    return metrics;
  }
  horo_set_metrics set_metrics(int set = 0) const {
    horo_set_metrics metrics{};
    metrics.struct_size = sizeof metrics;
    check(horo_runtime_set_metrics(get(), set, &metrics));
    return metrics;
  }
  /// All of it, in the format of Prometheus.
  std::string metrics_text() const {
    std::string text(horo_runtime_metrics_text(get(), nullptr, 0), ' ');
    while (true) {  // It may grow in between.
      const size_t size = horo_runtime_metrics_text(get(), text.data(), text.size() + 1);
      const bool fits = size <= text.size();
      text.resize(size);
      if (fits) return text;
    }
  }

  void shutdown() { horo_runtime_shutdown(get()); }
  horo_runtime* get() const { return runtime_.get(); }

 private:
  static horo_runtime* start(const horo_runtime_options& options) {
    horo_runtime* runtime = nullptr;
    check(horo_runtime_start(&options, &runtime));
    return runtime;
  }
  std::unique_ptr<horo_runtime, void (*)(horo_runtime*)> runtime_;
};

}  // namespace horo
