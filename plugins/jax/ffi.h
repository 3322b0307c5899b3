// XLA's foreign function interface, version 0.1, as far as a handler on the host needs it.
//
// Declared here and not taken from XLA's headers: a handler says which version it was made for, releases up to jax 0.8
// take only 0.1, and later ones take that too. So one build serves every jaxlib since 0.4.33. Structures begin with the
// size that their maker knows; what a newer version appends is not seen here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace horo::jax::ffi {

constexpr int kMajor = 0;
constexpr int kMinor = 1;

struct Error;
struct Future;

enum ErrorCode : int {
  kInvalidArgument = 3,
  kAborted = 10,
  kInternal = 13,
};

enum ExtensionType : int { kMetadataExtension = 1 };

struct Extension {
  size_t struct_size;
  ExtensionType type;
  Extension* next;
};

struct Version {
  size_t struct_size;
  Extension* extension_start;
  int major;
  int minor;
};

struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
};

/// A call with this is a question about the handler, and nothing is to be done.
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

enum DataType : int {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kC64 = 15,
  kBf16 = 16,
  kC128 = 18,
  kF8E5M2 = 19,
  kF8E4M3FN = 20,
};

struct Buffer {
  size_t struct_size;
  Extension* extension_start;
  DataType dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct Bytes {
  const char* begin;
  size_t size;
};

struct Scalar {
  DataType dtype;
  void* value;
};

constexpr int kBuffer = 1;
enum AttributeType : int { kScalarAttribute = 3, kStringAttribute = 4 };

struct Arguments {
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  int* types;
  void** values;
};

struct Attributes {
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  AttributeType* types;
  Bytes** names;
  void** values;
};

struct ErrorCreateArguments {
  size_t struct_size;
  Extension* extension_start;
  const char* message;
  ErrorCode code;
};

struct FutureArguments {
  size_t struct_size;
  Extension* extension_start;
  Future* future;
};

struct FutureErrorArguments {
  size_t struct_size;
  Extension* extension_start;
  Future* future;
  Error* error;
};

struct Api {
  size_t struct_size;
  Extension* extension_start;
  Version version;
  const void* internal;
  Error* (*create_error)(ErrorCreateArguments*);
  void (*error_message)(void*);
  void (*destroy_error)(void*);
  void* (*handler_register)(void*);
  void* (*stream_get)(void*);
  void* (*type_register)(void*);
  void* (*context_get)(void*);
  void* (*state_set)(void*);
  void* (*state_get)(void*);
  void* (*device_memory_allocate)(void*);
  void* (*device_memory_free)(void*);
  void* (*thread_pool_schedule)(void*);
  void* (*thread_pool_threads)(void*);
  // From here on: jaxlib 0.4.34 and later, though the version is the same.
  Error* (*future_create)(FutureArguments*);
  Error* (*future_set_available)(FutureArguments*);
  Error* (*future_set_error)(FutureErrorArguments*);
};

constexpr size_t kApiWithFutures = offsetof(Api, future_set_error) + sizeof(Api::future_set_error);

enum Stage : int { kExecute = 3 };

struct CallFrame {
  size_t struct_size;
  Extension* extension_start;
  const Api* api;
  void* context;
  Stage stage;
  Arguments arguments;
  Arguments results;
  Attributes attributes;
  /// Set by a handler that goes on after it has returned. Buffers and attributes live until the future is complete.
  Future* future;
};

}  // namespace horo::jax::ffi
