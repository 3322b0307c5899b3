// What the files of the extension module share. One bind_<noun>.cc per noun.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
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

void bind_error(nanobind::module_& module);
void bind_tensor(nanobind::module_& module);
void bind_handle(nanobind::module_& module);
void bind_runtime(nanobind::module_& module);

}  // namespace horo::python
