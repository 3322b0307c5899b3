#include "plugins/tensorflow/kernels.h"

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/tensorflow/call.h"

namespace horo::tensorflow {

const Api*& kernel_api() {
  static const Api* only = nullptr;
  return only;
}

namespace {

/// Reads attributes; the first failure is kept, and told to TensorFlow at the end.
class Attributes {
 public:
  Attributes(const Api& api, TF_OpKernelConstruction* construction)
      : api_(api), construction_(construction), outcome_(api) {}
  ~Attributes() {
    if (!outcome_.ok()) api_.op_kernel_construction_failure(construction_, outcome_.get());
  }

  int64_t number(const char* name) {
    int64_t value = 0;
    if (outcome_.ok()) api_.op_kernel_construction_get_attr_int64(construction_, name, &value, outcome_.get());
    return value;
  }
  bool flag(const char* name) {
    unsigned char value = 0;
    if (outcome_.ok()) api_.op_kernel_construction_get_attr_bool(construction_, name, &value, outcome_.get());
    return value != 0;
  }
  /// Of a double: attributes of kind float have 32 bits only.
  double factor(const char* name) { return std::bit_cast<double>(number(name)); }
  std::string words(const char* name) {
    int32_t list = 0, total = 0;
    if (outcome_.ok()) api_.op_kernel_construction_get_attr_size(construction_, name, &list, &total, outcome_.get());
    std::string value(static_cast<size_t>(std::max(total, 0)), '\0');
    if (outcome_.ok() && total > 0) {
      api_.op_kernel_construction_get_attr_string(construction_, name, value.data(), value.size(), outcome_.get());
    }
    return value;
  }
  /// The name of the node, not an attribute.
  std::string_view node() {
    const TF_StringView name = api_.op_kernel_construction_get_name(construction_);
    return {name.data, name.len};
  }

 private:
  const Api& api_;
  TF_OpKernelConstruction* const construction_;
  Outcome outcome_;
};

template <horo_kind kind>
void* create_collective(TF_OpKernelConstruction* construction) {
  Attributes attributes(*kernel_api(), construction);
  auto* collective = new Collective{.api = kernel_api(), .kind = kind, .name = attributes.words("tensor_name")};
  collective->set = static_cast<int>(attributes.number("process_set_id"));
  collective->grouped = attributes.flag("grouped");
  collective->place = attributes.number("place");
  collective->path = calls_in(attributes.node());
  collective->at_call = attributes.flag("at_call");
  if (kind == HORO_BROADCAST) collective->root = static_cast<int>(attributes.number("root_rank"));
  if (kind == HORO_ALLREDUCE || kind == HORO_REDUCESCATTER) {
    collective->reduction = static_cast<horo_reduce_op>(attributes.number("reduction"));
    collective->prescale = attributes.factor("prescale_bits");
    collective->postscale = attributes.factor("postscale_bits");
  }
  return collective;
}

/// The callback of an asynchronous kernel, to be run after it has returned.
std::function<void()> done_of(const Api& api, TF_AsyncOpKernelDoneCallback* done) {
  if (api.done_callback_lives) return [&api, done] { api.run_async_op_kernel_done_callback(done); };
  // It is a std::function behind that name, and dies when compute_async returns.
  return *reinterpret_cast<std::function<void()>*>(done);
}

void compute_async(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  const auto& collective = *static_cast<const Collective*>(kernel);
  Call::start(collective, context, done_of(*collective.api, done));
}

void compute_and_wait(void* kernel, TF_OpKernelContext* context) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Call::start(*static_cast<const Collective*>(kernel), context, [&] {
    // Under the lock: the waiter may go, and take all of this with it, as soon as it is free.
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}

void destroy_collective(void* kernel) { delete static_cast<Collective*>(kernel); }

struct FactKernel {
  Fact fact;
  int set = 0;
};

template <Fact fact>
void* create_fact(TF_OpKernelConstruction* construction) {
  Attributes attributes(*kernel_api(), construction);
  return new FactKernel{fact, static_cast<int>(attributes.number("process_set_id"))};
}

/// Ranks of a set.
std::vector<int> members_of(horo_runtime* runtime, int set, Outcome& outcome) {
  std::vector<int> ranks(static_cast<size_t>(std::max(horo_runtime_size(runtime), 0)));
  size_t count = 0;
  horo_status* status = horo_runtime_set_ranks(runtime, set, ranks.data(), ranks.size(), &count);
  outcome.set(status);
  horo_status_free(status);
  ranks.resize(std::min(count, ranks.size()));
  return ranks;
}

/// The last rank that joined. Waits for all.
int64_t join(horo_runtime* runtime, int set, Outcome& outcome) {
  horo_handle* handle = nullptr;
  horo_status* status = horo_runtime_join(runtime, set, &handle);
  if (status == nullptr) status = horo_handle_wait(handle, -1);
  outcome.set(status);
  horo_status_free(status);
  const int64_t last = handle == nullptr ? -1 : horo_handle_answer(handle);
  horo_handle_destroy(handle);
  return last;
}

int64_t answer_of(const FactKernel& kernel, horo_runtime* runtime, Outcome& outcome) {
  switch (kernel.fact) {
    case Fact::kSize:
      return static_cast<int64_t>(members_of(runtime, kernel.set, outcome).size());
    case Fact::kIncluded:
      return std::ranges::count(members_of(runtime, kernel.set, outcome), horo_runtime_rank(runtime));
    case Fact::kRank:
      return horo_runtime_rank(runtime);
    case Fact::kLocalSize:
      return horo_runtime_local_size(runtime);
    case Fact::kLocalRank:
      return horo_runtime_local_rank(runtime);
    case Fact::kJoin:
      return join(runtime, kernel.set, outcome);
  }
  return -1;
}

void compute_fact(void* kernel, TF_OpKernelContext* context) {
  const Api& api = *kernel_api();
  Outcome outcome(api);
  int64_t answer = -1;
  if (horo_runtime* runtime = horo_runtime_acquire(); runtime != nullptr) {
    answer = answer_of(*static_cast<const FactKernel*>(kernel), runtime, outcome);
    horo_runtime_release(runtime);
  } else {
    outcome.fail(HORO_INVALID_ARGUMENT, "Horovod has not been initialized; use hvd.init().");
  }
  constexpr TF_DataType kInt32 = 3;
  TF_Tensor* output = nullptr;
  if (outcome.ok()) output = api.allocate_output(context, 0, kInt32, nullptr, 0, sizeof(int32_t), outcome.get());
  if (outcome.ok()) *static_cast<int32_t*>(api.tensor_data(output)) = static_cast<int32_t>(answer);
  if (output != nullptr) api.delete_tensor(output);
  if (!outcome.ok()) api.op_kernel_context_failure(context, outcome.get());
}

void destroy_fact(void* kernel) { delete static_cast<FactKernel*>(kernel); }

template <horo_kind kind>
constexpr KernelFunctions kCollective{&create_collective<kind>, &compute_and_wait, &compute_async, &destroy_collective};
template <Fact fact>
constexpr KernelFunctions kFact{&create_fact<fact>, &compute_fact, nullptr, &destroy_fact};

}  // namespace

KernelFunctions kernel_of(horo_kind kind) {
  switch (kind) {
    case HORO_ALLGATHER:
      return kCollective<HORO_ALLGATHER>;
    case HORO_BROADCAST:
      return kCollective<HORO_BROADCAST>;
    case HORO_REDUCESCATTER:
      return kCollective<HORO_REDUCESCATTER>;
    case HORO_ALLTOALL:
      return kCollective<HORO_ALLTOALL>;
    default:
      return kCollective<HORO_ALLREDUCE>;
  }
}

KernelFunctions kernel_of(Fact fact) {
  switch (fact) {
    case Fact::kSize:
      return kFact<Fact::kSize>;
    case Fact::kRank:
      return kFact<Fact::kRank>;
    case Fact::kLocalSize:
      return kFact<Fact::kLocalSize>;
    case Fact::kLocalRank:
      return kFact<Fact::kLocalRank>;
    case Fact::kIncluded:
      return kFact<Fact::kIncluded>;
    default:
      return kFact<Fact::kJoin>;
  }
}

}  // namespace horo::tensorflow
