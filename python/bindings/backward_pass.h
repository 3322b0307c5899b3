// Which backward pass of torch is going on.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace horo::python {

/// Asks torch's library, without being compiled against it: every hook asks, and this is cheaper than a call through
/// Python. The library is believed once it has said the same as Python in a pass; where it does
/// not, or has no such function, Python is asked. Under the interpreter's lock.
class BackwardPass {
 public:
  /// `ask` gives the number to Python code.
  explicit BackwardPass(nanobind::object ask);

  /// The same for all hooks of one pass, and another one for the next; negative outside of any.
  int64_t number();

 private:
  using Function = int (*)();

  const nanobind::object ask_;
  Function function_;
  bool believed_ = false;
};

}  // namespace horo::python
