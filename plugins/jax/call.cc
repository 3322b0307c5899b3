#include "plugins/jax/call.h"

#include <optional>
#include <string_view>

#include "horo/base/text.h"

namespace horo::jax {

namespace {

std::optional<horo_dtype> dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::kPred:
      return HORO_BOOL;
    case ffi::kS8:
      return HORO_I8;
    case ffi::kS16:
      return HORO_I16;
    case ffi::kS32:
      return HORO_I32;
    case ffi::kS64:
      return HORO_I64;
    case ffi::kU8:
      return HORO_U8;
    case ffi::kU16:
      return HORO_U16;
    case ffi::kU32:
      return HORO_U32;
    case ffi::kU64:
      return HORO_U64;
    case ffi::kF16:
      return HORO_F16;
    case ffi::kBf16:
      return HORO_BF16;
    case ffi::kF32:
      return HORO_F32;
    case ffi::kF64:
      return HORO_F64;
    case ffi::kC64:
      return HORO_C64;
    case ffi::kC128:
      return HORO_C128;
    case ffi::kF8E5M2:
      return HORO_F8E5M2;
    case ffi::kF8E4M3FN:
      return HORO_F8E4M3;
  }
  return std::nullopt;
}

/// The attributes of a call, by name.
class AttributeReader {
 public:
  explicit AttributeReader(const ffi::Attributes& attributes) : attributes_(attributes) {}

  Result<std::string> string(std::string_view name) const {
    const void* value = find(name, ffi::kStringAttribute);
    if (value == nullptr) return missing(name, "a string");
    const auto* bytes = static_cast<const ffi::Bytes*>(value);
    return std::string(bytes->begin, bytes->size);
  }
  template <class T>
  Result<T> scalar(std::string_view name, ffi::DataType type) const {
    const auto* value = static_cast<const ffi::Scalar*>(find(name, ffi::kScalarAttribute));
    if (value == nullptr || value->dtype != type) return missing(name, "a number of 64 bits");
    return *static_cast<const T*>(value->value);
  }

 private:
  const void* find(std::string_view name, ffi::AttributeType type) const {
    for (int64_t i = 0; i < attributes_.size; ++i) {
      const ffi::Bytes& own = *attributes_.names[i];
      if (std::string_view(own.begin, own.size) == name && attributes_.types[i] == type) return attributes_.values[i];
    }
    return nullptr;
  }
  static Status missing(std::string_view name, std::string_view what) {
    return {Code::kInvalidArgument, text("the call of horo_allreduce lacks the attribute '", name, "', ", what)};
  }

  const ffi::Attributes& attributes_;
};

Status check_buffers(const ffi::CallFrame& frame) {
  const int64_t inputs = frame.arguments.size;
  const int64_t outputs = frame.results.size;
  if (inputs != outputs || inputs == 0) {
    return {Code::kInvalidArgument, text("horo_allreduce was called with ", inputs, " inputs and ", outputs,
                                         " outputs; it takes equally many, and at least one")};
  }
  for (int64_t i = 0; i < inputs; ++i) {
    if (frame.arguments.types[i] != ffi::kBuffer || frame.results.types[i] != ffi::kBuffer) {
      return {Code::kInvalidArgument, "horo_allreduce takes and gives buffers only"};
    }
  }
  return {};
}

}  // namespace

Result<Call> read_call(const ffi::CallFrame& frame) {
  HORO_TRY(check_buffers(frame));
  const AttributeReader attributes(frame.attributes);
  HORO_ASSIGN(const std::string base, attributes.string("name"));
  HORO_ASSIGN(const auto op, attributes.scalar<int64_t>("op", ffi::kS64));
  HORO_ASSIGN(const auto set, attributes.scalar<int64_t>("process_set", ffi::kS64));
  HORO_ASSIGN(const auto prescale, attributes.scalar<double>("prescale", ffi::kF64));
  HORO_ASSIGN(const auto postscale, attributes.scalar<double>("postscale", ffi::kF64));

  const auto count = static_cast<size_t>(frame.arguments.size);
  Call call;
  call.set = static_cast<int>(set);
  call.names.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto& input = *static_cast<const ffi::Buffer*>(frame.arguments.values[i]);
    const auto& output = *static_cast<const ffi::Buffer*>(frame.results.values[i]);
    call.names.push_back(count == 1 ? base : text(base, "_", i + 1, "of", count));
    const std::optional<horo_dtype> dtype = dtype_of(input.dtype);
    if (!dtype) {
      return Status(Code::kInvalidArgument, text("'", call.names.back(), "' has XLA's element type number ",
                                                 static_cast<int>(input.dtype), ", which horo does not know"));
    }
    horo_tensor tensor = HORO_TENSOR_INIT;
    tensor.name = call.names.back().c_str();
    tensor.kind = HORO_ALLREDUCE;
    tensor.dtype = *dtype;
    tensor.op = static_cast<horo_reduce_op>(op);
    tensor.prescale = prescale;
    tensor.postscale = postscale;
    tensor.shape = input.dims;
    tensor.dimensions = static_cast<size_t>(input.rank);
    tensor.input = input.data;
    tensor.output = output.data;
    call.tensors.push_back(tensor);
  }
  return call;
}

}  // namespace horo::jax
