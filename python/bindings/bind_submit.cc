// Handing in: one call takes all tensors of an operation, as tuples.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "bindings.h"
#include "tensor_reader.h"

namespace nb = nanobind;

namespace horo::python {

Orphans::Orphans() : process_(getpid()) {}

bool Orphans::forked() const { return process_ != getpid(); }

void Orphans::add(Handle handle, nb::object memory) { all_.push_back({std::move(handle), std::move(memory)}); }

void Orphans::sweep() {
  for (int i = 0; i < 2 && !all_.empty() && all_.front().handle.done(); ++i) {
    // First out of the list: what it frees may run Python, which may hand in.
    const Orphan done = std::move(all_.front());
    all_.erase(all_.begin());
  }
}

Pending::Pending(Handle handle, nb::object memory, std::shared_ptr<Orphans> orphans)
    : handle_(std::move(handle)), memory_(std::move(memory)), orphans_(std::move(orphans)) {}

Pending::~Pending() {
  if (!orphans_ || !memory_.is_valid()) return;
  if (orphans_->forked() || !handle_.done()) orphans_->add(std::move(handle_), std::move(memory_));
}

bool Pending::wait(double seconds, std::optional<uintptr_t> stream) {
  bool waited = false;
  try {
    const nb::gil_scoped_release release;
    waited = stream ? handle_.wait_in_stream(reinterpret_cast<void*>(*stream), seconds) : handle_.wait_for(seconds);
  } catch (...) {
    memory_.reset();
    throw;
  }
  if (waited && (!stream || handle_.done())) memory_.reset();
  return waited;
}

namespace {

/// Points into the tuples, which outlive it, and into `numbers`.
class Tensors {
 public:
  Tensors(const nb::list& given, const horo_tensor& common) {
    const size_t count = nb::len(given);
    all_.reserve(count);
    shapes_.resize(count);
    strides_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const auto one = nb::borrow<nb::tuple>(given[i]);
      if (nb::len(one) != 6) throw nb::value_error("a tensor is (name, dtype, shape, strides, input, output)");
      horo_tensor tensor = common;
      tensor.name = nb::borrow<nb::str>(one[0]).c_str();
      tensor.dtype = static_cast<horo_dtype>(nb::cast<int>(one[1]));
      shapes_[i] = nb::cast<std::vector<int64_t>>(one[2]);
      tensor.shape = shapes_[i].data();
      tensor.dimensions = shapes_[i].size();
      if (!one[3].is_none()) {
        strides_[i] = nb::cast<std::vector<int64_t>>(one[3]);
        if (strides_[i].size() != shapes_[i].size()) throw nb::value_error("one stride for each dimension");
        tensor.strides = strides_[i].data();
      }
      tensor.input = reinterpret_cast<const void*>(nb::cast<uintptr_t>(one[4]));
      tensor.output = reinterpret_cast<void*>(nb::cast<uintptr_t>(one[5]));
      all_.push_back(tensor);
    }
  }
  const std::vector<horo_tensor>& all() const { return all_; }

 private:
  std::vector<std::vector<int64_t>> shapes_, strides_;
  std::vector<horo_tensor> all_;
};

Handle hand_in(Job& job, const std::vector<horo_tensor>& tensors, int set, double wait) {
  if (wait < 0) return job.runtime.submit(tensors, set);
  const nb::gil_scoped_release release;
  return job.runtime.run_for(tensors, wait, set);
}

Pending submit(Job& job, int set, int kind, int op, int root, double prescale, double postscale,
               const std::vector<uint64_t>& splits, const nb::list& given, nb::object memory, double wait, int device,
               uintptr_t stream) {
  job.orphans->sweep();
  horo_tensor common = HORO_TENSOR_INIT;
  common.kind = static_cast<horo_kind>(kind);
  common.op = static_cast<horo_reduce_op>(op);
  common.root = root;
  common.prescale = prescale;
  common.postscale = postscale;
  common.splits = splits.empty() ? nullptr : splits.data();
  common.split_count = splits.size();
  common.device = device;
  common.stream = reinterpret_cast<void*>(stream);
  const Tensors tensors(given, common);
  Handle handle = hand_in(job, tensors.all(), set, wait);
  if (wait >= 0 && handle.done()) memory.reset();
  return Pending(std::move(handle), std::move(memory), job.orphans);
}

/// None for a tensor that does not lie row by row in the host's memory.
std::optional<Pending> allreduce_in_place(Job& job, TensorReader& reader, nb::handle tensor, const char* name, int set,
                                          int op, double prescale, double postscale, double wait) {
  job.orphans->sweep();
  TensorView view;
  if (!reader.read(tensor, view) || !view.contiguous) return std::nullopt;
  const std::vector<int64_t> shape(view.shape.begin(), view.shape.end());  // The view is not good without the lock.
  horo_tensor one = HORO_TENSOR_INIT;
  one.kind = HORO_ALLREDUCE;
  one.name = name;
  one.dtype = static_cast<horo_dtype>(view.dtype);
  one.op = static_cast<horo_reduce_op>(op);
  one.prescale = prescale;
  one.postscale = postscale;
  one.shape = shape.data();
  one.dimensions = shape.size();
  one.input = one.output = view.data;
  // The storage: the tensor may be given another one meanwhile (tensor.data = ...).
  nb::object memory = tensor.attr("untyped_storage")();
  Handle handle = hand_in(job, {one}, set, wait);
  if (wait >= 0 && handle.done()) memory.reset();
  return Pending(std::move(handle), std::move(memory), job.orphans);
}

nb::dict kinds() {
  nb::dict all;
  all["allreduce"] = static_cast<int>(HORO_ALLREDUCE);
  all["allgather"] = static_cast<int>(HORO_ALLGATHER);
  all["broadcast"] = static_cast<int>(HORO_BROADCAST);
  all["alltoall"] = static_cast<int>(HORO_ALLTOALL);
  all["reducescatter"] = static_cast<int>(HORO_REDUCESCATTER);
  all["barrier"] = static_cast<int>(HORO_BARRIER);
  // Of ordered groups only:
  all["reduce"] = static_cast<int>(HORO_REDUCE);
  all["gather"] = static_cast<int>(HORO_GATHER);
  all["scatter"] = static_cast<int>(HORO_SCATTER);
  all["sendrecv"] = static_cast<int>(HORO_SENDRECV);
  return all;
}

/// By the names that NumPy, ml_dtypes and torch give them.
nb::dict dtypes() {
  constexpr std::pair<const char*, horo_dtype> kAll[] = {
      {"uint8", HORO_U8},          {"int8", HORO_I8},       {"uint16", HORO_U16},      {"int16", HORO_I16},
      {"uint32", HORO_U32},        {"int32", HORO_I32},     {"uint64", HORO_U64},      {"int64", HORO_I64},
      {"float16", HORO_F16},       {"bfloat16", HORO_BF16}, {"float32", HORO_F32},     {"float64", HORO_F64},
      {"bool", HORO_BOOL},         {"complex64", HORO_C64}, {"complex128", HORO_C128}, {"float8_e4m3fn", HORO_F8E4M3},
      {"float8_e5m2", HORO_F8E5M2}};
  nb::dict all;
  for (const auto& [name, number] : kAll) all[name] = static_cast<int>(number);
  return all;
}

nb::dict reductions() {
  nb::dict all;
  all["sum"] = static_cast<int>(HORO_SUM);
  all["average"] = static_cast<int>(HORO_AVERAGE);
  all["min"] = static_cast<int>(HORO_MIN);
  all["max"] = static_cast<int>(HORO_MAX);
  all["product"] = static_cast<int>(HORO_PRODUCT);
  all["adasum"] = static_cast<int>(HORO_ADASUM);
  // Of ordered groups, and whole numbers, only:
  all["and"] = static_cast<int>(HORO_AND);
  all["or"] = static_cast<int>(HORO_OR);
  all["xor"] = static_cast<int>(HORO_XOR);
  return all;
}

}  // namespace

void bind_submit(nb::module_& module, nb::class_<Job>& job) {
  job.def(
      "submit", &submit, nb::arg("process_set"), nb::arg("kind"), nb::arg("op"), nb::arg("root"), nb::arg("prescale"),
      nb::arg("postscale"), nb::arg("splits"), nb::arg("tensors"), nb::arg("memory"), nb::arg("wait"),
      nb::arg("device") = -1, nb::arg("stream") = 0,
      "Hands in tensors (name, dtype, shape, strides or None, address of the input, of the output or 0). `memory` is "
      "kept until they are done. With `wait` >= 0 this thread does the work and waits for so many seconds. `device`: "
      "of "
      "all of them, -1 for the host; it begins after what is in `stream` now.");
  job.def("allreduce_in_place", &allreduce_in_place, nb::arg("reader"), nb::arg("tensor").none(), nb::arg("name"),
          nb::arg("process_set"), nb::arg("op"), nb::arg("prescale"), nb::arg("postscale"), nb::arg("wait"),
          "submit() of a tensor of torch whose elements lie row by row in the host's memory; None for any other.");
  module.def(
      "devices",
      [] {
        int usable = 0;
        const std::string words = horo_devices_describe(nullptr, &usable);
        return nb::make_tuple(words, usable == 1);
      },
      "What was found of devices, in words, and whether operations on them can run.");
  module.attr("KINDS") = kinds();
  module.attr("DTYPES") = dtypes();
  module.attr("REDUCTIONS") = reductions();
}

}  // namespace horo::python
