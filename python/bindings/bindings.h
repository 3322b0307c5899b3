// What the files of the extension module share. One bind_<noun>.cc per noun.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "horo/api/horo.hpp"

namespace horo::python {

/// A horo_tensor that owns what it points to, but for the memory of the array.
struct Tensor {
  std::string name;
  int kind, dtype, op, root;
  double prescale, postscale;
  std::vector<int64_t> shape;
  uintptr_t input, output;  ///< Addresses; 0: none.
  std::vector<uint64_t> splits;

  horo_tensor view() const;
};

/// Tensors that were handed in one by one, to be waited for together.
struct Batch {
  Batch() = default;
  Batch(Batch&&) = default;
  Batch(const Batch&) = delete;

  std::vector<Handle> handles;
  std::exception_ptr refused;  ///< Why the rest could not be handed in.

  bool done() const;
  /// False when not all of them are done by then. Throws the first failure, after the end of all.
  bool wait_for(double seconds);
};

void bind_error(nanobind::module_& module);
void bind_tensor(nanobind::module_& module);
void bind_handle(nanobind::module_& module);
void bind_runtime(nanobind::module_& module);

}  // namespace horo::python
