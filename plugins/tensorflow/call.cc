#include "plugins/tensorflow/call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "horo/base/text.h"

namespace horo::tensorflow {

namespace {

// TensorFlow's numbers of types, and ours.
constexpr std::pair<TF_DataType, horo_dtype> kTypes[] = {
    {1, HORO_F32},  {2, HORO_F64},  {3, HORO_I32},   {4, HORO_U8},      {5, HORO_I16},    {6, HORO_I8},
    {8, HORO_C64},  {9, HORO_I64},  {10, HORO_BOOL}, {14, HORO_BF16},   {17, HORO_U16},   {18, HORO_C128},
    {19, HORO_F16}, {22, HORO_U32}, {23, HORO_U64},  {24, HORO_F8E5M2}, {25, HORO_F8E4M3}};
constexpr TF_DataType kInt64 = 9;

// A small tensor that is alone is worked on by the thread that hands it in, for so long at most: two changes of threads
// take longer than the operation. Others are left to the library at once, so that independent ones never wait for each
// other.
constexpr size_t kSmallBytes = 32 * 1024;
constexpr double kHelpSeconds = 200e-6;

// TensorFlow runs several iterations of a loop at once, 10 of them unless the program says otherwise. Each has a name
// of its own, or they would meet other ranks' iterations; the names come again, because caches hold so many only.
constexpr int64_t kIterations = 32;

/// How many are under way in this process.
std::atomic<int>& under_way() {
  static std::atomic<int> count = 0;
  return count;
}

/// Whether this thread tells TensorFlow right now that a call is done: it may be the library's, and must not wait.
thread_local bool telling = false;

/// Whether the result has the input's shape, so that it can be written where the input lies.
bool keeps_shape(horo_kind kind) { return kind == HORO_ALLREDUCE || kind == HORO_BROADCAST; }

/// Whether the operation says how many rows each rank has given.
bool tells_rows(horo_kind kind) { return kind == HORO_ALLGATHER || kind == HORO_ALLTOALL; }

uint64_t elements_of(const int64_t* shape, size_t dimensions) {
  uint64_t count = 1;
  for (size_t i = 0; i < dimensions; ++i) count *= static_cast<uint64_t>(shape[i]);
  return count;
}

}  // namespace

std::string calls_in(std::string_view node) {
  // A condition or a loop that has become nodes of the graph has numbers in its name, "cond/then/_12/", which depend on
  // all else in there.
  std::string calls, path;
  while (node.find('/') != node.npos) {
    const std::string_view part = node.substr(0, node.find('/'));
    node.remove_prefix(part.size() + 1);
    if (!part.starts_with('_')) path += text(part, "/");
    if (part.starts_with("PartitionedCall") || part.starts_with("StatefulPartitionedCall")) calls = path;
  }
  return calls;
}

int dtype_of(TF_DataType type) {
  const auto* found = std::ranges::find(kTypes, type, [](const auto& pair) { return pair.first; });
  return found == std::end(kTypes) ? -1 : static_cast<int>(found->second);
}

void Call::start(const Collective& collective, TF_OpKernelContext* context, std::function<void()> done) {
  auto* call = new Call(collective, context, std::move(done));
  if (call->take_inputs()) {
    call->hand_in();
  } else {
    call->end();
  }
}

Call::Call(const Collective& collective, TF_OpKernelContext* context, std::function<void()> done)
    : collective_(collective), api_(*collective.api), context_(context), done_(std::move(done)), outcome_(api_) {
  alone_ = under_way().fetch_add(1, std::memory_order_relaxed) == 0;
}

Call::~Call() {
  under_way().fetch_sub(1, std::memory_order_relaxed);
  for (const Slot& slot : slots_) {
    if (slot.input != nullptr) api_.delete_tensor(slot.input);
    if (slot.output != nullptr) api_.delete_tensor(slot.output);
  }
  if (handle_ != nullptr) horo_handle_destroy(handle_);
}

std::string Call::name_here() {
  int32_t here = number();
  const bool by_path = here > kByPath;
  if (by_path) here -= kByPath;
  std::string name = (by_path || collective_.at_call ? collective_.path : "") + collective_.name;
  if (here > 1) name += text("#", here);
  const int64_t iteration = api_.get_iter_id == nullptr ? 0 : api_.get_iter_id(context_) % kIterations;
  if (iteration != 0) name += text("@", iteration);
  return name;
}

int32_t Call::number() {
  TF_Tensor* token = nullptr;
  api_.get_input(context_, api_.num_inputs(context_) - 1, &token, outcome_.get());
  if (!outcome_.ok()) return 1;
  const bool told = api_.num_dims(token) == 1 && collective_.place >= 0 && collective_.place < api_.dim(token, 0);
  const int32_t here = told ? static_cast<const int32_t*>(api_.tensor_data(token))[collective_.place] : 1;
  api_.delete_tensor(token);
  return here;
}

bool Call::take_inputs() {
  // Behind the tensors: the splits of an alltoall, and the token.
  const int tensors = api_.num_inputs(context_) - (collective_.kind == HORO_ALLTOALL ? 2 : 1);
  slots_.resize(static_cast<size_t>(std::max(tensors, 0)));
  if (slots_.empty()) outcome_.fail(HORO_INVALID_ARGUMENT, text("'", collective_.name, "' has no tensors"));
  const std::string name = name_here();
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].call = this;
    slots_[i].index = static_cast<int>(i);
    slots_[i].name = collective_.grouped ? text(name, "_", i + 1, "of", slots_.size()) : name;
    if (!take(slots_[i])) return false;
  }
  return outcome_.ok() && (collective_.kind != HORO_ALLTOALL || take_splits());
}

bool Call::take(Slot& slot) {
  api_.get_input(context_, slot.index, &slot.input, outcome_.get());
  if (!outcome_.ok()) return false;
  slot.type = api_.tensor_type(slot.input);
  const int dtype = dtype_of(slot.type);
  if (dtype < 0) {
    outcome_.fail(HORO_INVALID_ARGUMENT, text("'", slot.name, "': there are no operations on type ", slot.type));
    return false;
  }
  slot.dtype = static_cast<horo_dtype>(dtype);
  slot.shape.resize(static_cast<size_t>(api_.num_dims(slot.input)));
  for (size_t i = 0; i < slot.shape.size(); ++i) slot.shape[i] = api_.dim(slot.input, static_cast<int>(i));
  if (!keeps_shape(collective_.kind)) return true;
  // An input that nobody else reads becomes the output, which it can only while nothing else refers to it.
  api_.delete_tensor(std::exchange(slot.input, nullptr));
  int forwarded = -1;
  slot.output = api_.forward_input_or_allocate_output(context_, &slot.index, 1, slot.index, slot.shape.data(),
                                                      static_cast<int>(slot.shape.size()), &forwarded, outcome_.get());
  if (!outcome_.ok() || forwarded == slot.index) return outcome_.ok();
  api_.get_input(context_, slot.index, &slot.input, outcome_.get());
  return outcome_.ok();
}

bool Call::take_splits() {
  TF_Tensor* splits = nullptr;
  api_.get_input(context_, static_cast<int>(slots_.size()), &splits, outcome_.get());
  if (!outcome_.ok()) return false;
  const auto* rows = static_cast<const int64_t*>(api_.tensor_data(splits));
  const size_t count = api_.num_dims(splits) == 1 ? static_cast<size_t>(api_.dim(splits, 0)) : 0;
  bool right = api_.num_dims(splits) == 1;
  for (size_t i = 0; i < count; ++i) right = right && rows[i] >= 0;
  if (right) splits_.assign(rows, rows + count);
  api_.delete_tensor(splits);
  if (!right) {
    outcome_.fail(HORO_INVALID_ARGUMENT,
                  text("'", slots_[0].name, "': splits are one number of rows, none below 0, for each rank"));
  }
  return right;
}

void* Call::allocate(Slot& slot, const int64_t* shape, size_t dimensions) {
  const size_t bytes = elements_of(shape, dimensions) * horo_dtype_size(slot.dtype);
  Outcome allocated(api_);
  slot.output = api_.allocate_output(context_, slot.index, slot.type, shape, static_cast<int>(dimensions), bytes,
                                     allocated.get());
  return allocated.ok() && slot.output != nullptr ? api_.tensor_data(slot.output) : nullptr;
}

void* Call::allocate_slot(void* slot, const int64_t* shape, size_t dimensions) {
  auto& one = *static_cast<Slot*>(slot);
  return one.call->allocate(one, shape, dimensions);
}

horo_tensor Call::describe(Slot& slot) {
  horo_tensor tensor = HORO_TENSOR_INIT;
  tensor.name = slot.name.c_str();
  tensor.kind = collective_.kind;
  tensor.dtype = slot.dtype;
  tensor.op = collective_.reduction;
  tensor.root = collective_.root;
  tensor.prescale = collective_.prescale;
  tensor.postscale = collective_.postscale;
  tensor.shape = slot.shape.data();
  tensor.dimensions = slot.shape.size();
  tensor.input = api_.tensor_data(slot.input != nullptr ? slot.input : slot.output);
  if (slot.output != nullptr) {
    tensor.output = api_.tensor_data(slot.output);
  } else {
    tensor.allocate = &Call::allocate_slot;
    tensor.allocate_context = &slot;
  }
  if (!splits_.empty()) {
    tensor.splits = splits_.data();
    tensor.split_count = splits_.size();
  }
  return tensor;
}

void Call::hand_in() {
  horo_runtime* runtime = horo_runtime_acquire();
  if (runtime == nullptr) {
    outcome_.fail(HORO_INVALID_ARGUMENT,
                  text("'", collective_.name, "': Horovod has not been initialized; use hvd.init()."));
    return end();
  }
  std::vector<horo_tensor> tensors;
  tensors.reserve(slots_.size());
  for (Slot& slot : slots_) tensors.push_back(describe(slot));
  horo_status* status =
      horo_runtime_submit(runtime, collective_.set, tensors.data(), tensors.size(), &Call::finished, this, &handle_);
  horo_runtime_release(runtime);
  if (status == nullptr) {
    if (alone_ && !telling && bytes() <= kSmallBytes) horo_status_free(horo_handle_wait(handle_, kHelpSeconds));
    return arrive();
  }
  outcome_.set(status);
  horo_status_free(status);
  end();
}

size_t Call::bytes() const {
  size_t sum = 0;
  for (const Slot& slot : slots_) {
    sum += elements_of(slot.shape.data(), slot.shape.size()) * horo_dtype_size(slot.dtype);
  }
  return sum;
}

void Call::finished(void* call, const horo_status* status) {
  auto* self = static_cast<Call*>(call);
  self->outcome_.set(status);
  self->arrive();
}

void Call::arrive() {
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == 1) end();
}

void Call::end() {
  for (Slot& slot : slots_) {
    if (!outcome_.ok() || slot.output != nullptr) continue;
    // Nothing came out that needed memory.
    horo_result result = HORO_RESULT_INIT;
    horo_status* status = horo_handle_result(handle_, static_cast<size_t>(slot.index), &result);
    outcome_.set(status);
    horo_status_free(status);
    if (outcome_.ok()) allocate(slot, result.shape, result.dimensions);
  }
  if (outcome_.ok() && tells_rows(collective_.kind)) deliver_rows();
  if (!outcome_.ok()) api_.op_kernel_context_failure(context_, outcome_.get());
  // The context may be gone as soon as TensorFlow hears of it.
  const std::function<void()> done = done_;
  delete this;
  const bool before = std::exchange(telling, true);
  done();
  telling = before;
}

void Call::deliver_rows() {
  std::vector<int64_t> rows;
  int64_t members = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    horo_result result = HORO_RESULT_INIT;
    horo_status* status = horo_handle_result(handle_, i, &result);
    outcome_.set(status);
    horo_status_free(status);
    if (!outcome_.ok()) return;
    members = static_cast<int64_t>(result.split_count);
    rows.insert(rows.end(), result.received_splits, result.received_splits + result.split_count);
  }
  const int64_t shape[] = {static_cast<int64_t>(slots_.size()), members};
  TF_Tensor* output = api_.allocate_output(context_, static_cast<int>(slots_.size()), kInt64, shape, 2,
                                           rows.size() * sizeof(int64_t), outcome_.get());
  if (!outcome_.ok()) return;
  std::memcpy(api_.tensor_data(output), rows.data(), rows.size() * sizeof(int64_t));
  api_.delete_tensor(output);
}

}  // namespace horo::tensorflow
