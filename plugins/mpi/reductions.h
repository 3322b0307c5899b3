// What MPI reduces with: its own operations where they are horo's too, else horo's kernels as operations of MPI.
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "plugins/mpi/functions.h"

namespace horo::mpi {

template <class Abi>
struct Reducing {
  typename Abi::Datatype type;
  typename Abi::Op op;
};

/// As MPI calls it: the type is one of the same width, since MPI does not know all of horo's.
template <class Abi, horo_dtype kType, horo_reduce_op kOp>
void combine(void* in, void* inout, int* count, typename Abi::Datatype*) {
  horo_combine(kType, kOp, in, inout, static_cast<uint64_t>(*count));
}

template <class Abi, horo_dtype kType>
Reduction<Abi>* combine_of(horo_reduce_op op) {
  switch (op) {
    case HORO_SUM:
      return &combine<Abi, kType, HORO_SUM>;
    case HORO_PRODUCT:
      return &combine<Abi, kType, HORO_PRODUCT>;
    case HORO_MIN:
      return &combine<Abi, kType, HORO_MIN>;
    case HORO_MAX:
      return &combine<Abi, kType, HORO_MAX>;
    case HORO_AND:
      return &combine<Abi, kType, HORO_AND>;
    case HORO_OR:
      return &combine<Abi, kType, HORO_OR>;
    case HORO_XOR:
      return &combine<Abi, kType, HORO_XOR>;
    default:
      return nullptr;
  }
}

/// Types whose reductions differ from MPI's, or that it does not have: NaN wins here.
template <class Abi>
Reduction<Abi>* own_reduction(horo_dtype dtype, horo_reduce_op op) {
  switch (dtype) {
    case HORO_F16:
      return combine_of<Abi, HORO_F16>(op);
    case HORO_BF16:
      return combine_of<Abi, HORO_BF16>(op);
    case HORO_BOOL:
      return combine_of<Abi, HORO_BOOL>(op);
    case HORO_F32:
      return combine_of<Abi, HORO_F32>(op);
    case HORO_F64:
      return combine_of<Abi, HORO_F64>(op);
    default:
      return nullptr;
  }
}

/// Operations of horo's are made at their first use and kept. Thread-safe.
template <class Abi>
class Reductions {
 public:
  Reductions(const Functions<Abi>& functions, const Constants<Abi>& constants)
      : functions_(functions), constants_(constants) {}

  Result<Reducing<Abi>> find(horo_dtype dtype, horo_reduce_op op) {
    if (op == HORO_AVERAGE) op = HORO_SUM;
    const bool is_float = dtype == HORO_F32 || dtype == HORO_F64;
    const bool orders = op == HORO_MIN || op == HORO_MAX;
    const bool own = dtype == HORO_F16 || dtype == HORO_BF16 || dtype == HORO_BOOL || (is_float && orders);
    if (!own) return native(dtype, op);
    Reduction<Abi>* function = own_reduction<Abi>(dtype, op);
    if (function == nullptr) return Status(Code::kInvalidArgument, "MPI cannot reduce these elements so");
    const std::lock_guard lock(mutex_);
    const auto [found, fresh] = made_.try_emplace({dtype, op});
    if (fresh && functions_.op_create(function, 1, &found->second) != 0) {
      made_.erase(found);
      return Status(Code::kInternal, "MPI_Op_create failed");
    }
    return Reducing<Abi>{carrier(dtype), found->second};
  }

 private:
  /// A type of the same width.
  typename Abi::Datatype carrier(horo_dtype dtype) const {
    if (dtype == HORO_BOOL) return constants_.types[HORO_U8];
    if (dtype == HORO_F16 || dtype == HORO_BF16) return constants_.types[HORO_U16];
    return constants_.types[static_cast<size_t>(dtype)];
  }

  Result<Reducing<Abi>> native(horo_dtype dtype, horo_reduce_op op) const {
    const typename Abi::Datatype type = constants_.types[static_cast<size_t>(dtype)];
    const auto with = [&](typename Abi::Op found) { return Reducing<Abi>{type, found}; };
    if (type == typename Abi::Datatype{}) return Status(Code::kInvalidArgument, "MPI cannot reduce these elements");
    switch (op) {
      case HORO_SUM:
        return with(constants_.sum);
      case HORO_PRODUCT:
        return with(constants_.product);
      case HORO_MIN:
        return with(constants_.min);
      case HORO_MAX:
        return with(constants_.max);
      case HORO_AND:
        return with(constants_.bit_and);
      case HORO_OR:
        return with(constants_.bit_or);
      case HORO_XOR:
        return with(constants_.bit_xor);
      default:
        return Status(Code::kInvalidArgument, "MPI cannot reduce elements so");
    }
  }

  const Functions<Abi>& functions_;
  const Constants<Abi>& constants_;
  std::mutex mutex_;
  std::map<std::pair<horo_dtype, horo_reduce_op>, typename Abi::Op> made_;
};

}  // namespace horo::mpi
