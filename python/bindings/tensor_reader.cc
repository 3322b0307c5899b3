#include "tensor_reader.h"

#include <optional>
#include <utility>

#include "horo/api/horo.h"

namespace nb = nanobind;

namespace horo::python {

/// DLTensor of DLPack 1, an interface that does not change.
struct TensorReader::Exchanged {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t dimensions;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  const int64_t* shape;
  const int64_t* strides;
  uint64_t byte_offset;
};

namespace {

/// DLPackExchangeAPI: the version, an older table, and the functions of version 1, of which one is used here.
struct ExchangeTable {
  uint32_t major;
  uint32_t minor;
  const ExchangeTable* older;
  void* allocate;
  void* to_managed;
  void* from_managed;
  void* to_unmanaged;  ///< May be null.
};

constexpr int32_t kHost = 1;

void* find_exchange(nb::handle tensor_class) {
  const nb::object capsule = nb::getattr(tensor_class, "__dlpack_c_exchange_api__", nb::none());
  if (capsule.is_none()) return nullptr;
  const void* found = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
  if (found == nullptr) PyErr_Clear();
  const auto* table = static_cast<const ExchangeTable*>(found);
  while (table != nullptr && table->major != 1) table = table->older;
  return table == nullptr ? nullptr : table->to_unmanaged;
}

struct Type {
  int dtype;
  uint64_t bytes;
  bool complex;
};

/// By DLPack's code of the kind and the number of bits.
std::optional<Type> type_of(int code, int bits) {
  switch (code << 8 | bits) {
    case 0 << 8 | 8:
      return Type{HORO_I8, 1, false};
    case 0 << 8 | 16:
      return Type{HORO_I16, 2, false};
    case 0 << 8 | 32:
      return Type{HORO_I32, 4, false};
    case 0 << 8 | 64:
      return Type{HORO_I64, 8, false};
    case 1 << 8 | 8:
      return Type{HORO_U8, 1, false};
    case 1 << 8 | 16:
      return Type{HORO_U16, 2, false};
    case 1 << 8 | 32:
      return Type{HORO_U32, 4, false};
    case 1 << 8 | 64:
      return Type{HORO_U64, 8, false};
    case 2 << 8 | 16:
      return Type{HORO_F16, 2, false};
    case 2 << 8 | 32:
      return Type{HORO_F32, 4, false};
    case 2 << 8 | 64:
      return Type{HORO_F64, 8, false};
    case 4 << 8 | 16:
      return Type{HORO_BF16, 2, false};
    case 5 << 8 | 64:
      return Type{HORO_C64, 8, true};
    case 5 << 8 | 128:
      return Type{HORO_C128, 16, true};
    case 6 << 8 | 8:
      return Type{HORO_BOOL, 1, false};
    case 10 << 8 | 8:
      return Type{HORO_F8E4M3, 1, false};
    case 12 << 8 | 8:
      return Type{HORO_F8E5M2, 1, false};
    default:
      return std::nullopt;
  }
}

uint64_t bytes_of(int dtype) {
  switch (dtype) {
    case HORO_I16:
    case HORO_U16:
    case HORO_F16:
    case HORO_BF16:
      return 2;
    case HORO_I32:
    case HORO_U32:
    case HORO_F32:
      return 4;
    case HORO_I64:
    case HORO_U64:
    case HORO_F64:
    case HORO_C64:
      return 8;
    case HORO_C128:
      return 16;
    default:
      return 1;
  }
}

void complete(TensorView& view) {
  view.count = 1;
  view.contiguous = true;
  for (size_t i = view.shape.size(); i-- > 0;) {
    if (view.shape[i] != 1 && view.strides[i] != static_cast<int64_t>(view.count)) view.contiguous = false;
    view.count *= static_cast<uint64_t>(view.shape[i]);
  }
  if (view.count == 0) view.contiguous = true;
  view.bytes = view.count * bytes_of(view.dtype);
}

nb::object name(const char* text) { return nb::steal(PyUnicode_InternFromString(text)); }

nb::object call(nb::handle of, const nb::object& method) {
  return nb::steal(PyObject_CallMethodObjArgs(of.ptr(), method.ptr(), nullptr));
}

/// False, and no error, where that fails.
bool holds(const nb::object& answer) {
  if (answer.is_valid()) return answer.ptr() == Py_True;
  PyErr_Clear();
  return false;
}

}  // namespace

TensorReader::TensorReader(nb::object tensor_class, nb::object strided, nb::dict dtypes, bool exchange)
    : class_(std::move(tensor_class)),
      strided_(std::move(strided)),
      dtypes_(std::move(dtypes)),
      layout_(name("layout")),
      is_neg_(name("is_neg")),
      is_conj_(name("is_conj")),
      is_cpu_(name("is_cpu")),
      dtype_(name("dtype")),
      shape_(name("shape")),
      stride_(name("stride")),
      data_ptr_(name("data_ptr")),
      exchange_(exchange ? reinterpret_cast<Exchange>(find_exchange(class_)) : nullptr) {}

// The functions of torch say nothing of either.
bool TensorReader::is_as_it_lies(nb::handle tensor, bool complex) const {
  const nb::object negated = call(tensor, is_neg_);
  if (!negated.is_valid() || holds(negated)) return false;
  if (!complex) return true;
  const nb::object conjugated = call(tensor, is_conj_);
  return conjugated.is_valid() && !holds(conjugated);
}

bool TensorReader::read(nb::handle tensor, TensorView& view) {
  // Of a subclass what lies in memory may be anything.
  if (reinterpret_cast<PyObject*>(Py_TYPE(tensor.ptr())) != class_.ptr()) return false;
  // Before the functions of torch are asked: their refusal costs much.
  const nb::object layout = nb::steal(PyObject_GetAttr(tensor.ptr(), layout_.ptr()));
  const bool read =
      layout.is(strided_) && (exchange_ != nullptr ? read_exchanged(tensor, view) : read_attributes(tensor, view));
  if (!read) {
    PyErr_Clear();
    return false;
  }
  complete(view);
  return true;
}

bool TensorReader::read_exchanged(nb::handle tensor, TensorView& view) const {
  Exchanged from{};
  if (exchange_(tensor.ptr(), &from) != 0 || from.device_type != kHost || from.lanes != 1) return false;
  const std::optional<Type> type = type_of(from.code, from.bits);
  if (!type || (from.dimensions > 0 && from.strides == nullptr)) return false;
  if (!is_as_it_lies(tensor, type->complex)) return false;
  const auto dimensions = static_cast<size_t>(from.dimensions);
  view.data = static_cast<std::byte*>(from.data) + from.byte_offset;
  view.dtype = type->dtype;
  view.shape = {from.shape, dimensions};
  view.strides = {from.strides, dimensions};
  return true;
}

bool TensorReader::read_numbers(nb::object numbers, size_t at, size_t& count) {
  if (!numbers.is_valid() || !PyTuple_Check(numbers.ptr())) return false;
  count = static_cast<size_t>(PyTuple_Size(numbers.ptr()));
  if (count > kMostDimensions) return false;
  for (size_t i = 0; i < count; ++i) {
    numbers_[at + i] = PyLong_AsLongLong(PyTuple_GetItem(numbers.ptr(), static_cast<Py_ssize_t>(i)));
  }
  return PyErr_Occurred() == nullptr;
}

bool TensorReader::read_attributes(nb::handle tensor, TensorView& view) {
  if (!holds(nb::steal(PyObject_GetAttr(tensor.ptr(), is_cpu_.ptr())))) return false;
  const nb::object dtype = nb::steal(PyObject_GetAttr(tensor.ptr(), dtype_.ptr()));
  PyObject* number = dtype.is_valid() ? PyDict_GetItem(dtypes_.ptr(), dtype.ptr()) : nullptr;
  if (number == nullptr) return false;
  view.dtype = static_cast<int>(PyLong_AsLong(number));
  if (!is_as_it_lies(tensor, view.dtype == HORO_C64 || view.dtype == HORO_C128)) return false;
  size_t extents = 0, strides = 0;
  if (!read_numbers(nb::steal(PyObject_GetAttr(tensor.ptr(), shape_.ptr())), 0, extents)) return false;
  if (!read_numbers(call(tensor, stride_), kMostDimensions, strides) || strides != extents) return false;
  const nb::object address = call(tensor, data_ptr_);
  if (!address.is_valid()) return false;
  view.data = static_cast<std::byte*>(PyLong_AsVoidPtr(address.ptr()));
  view.shape = {numbers_.data(), extents};
  view.strides = {numbers_.data() + kMostDimensions, extents};
  return PyErr_Occurred() == nullptr;
}

}  // namespace horo::python
