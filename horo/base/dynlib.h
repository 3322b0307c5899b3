// Shared libraries opened at run time, so that one build runs with and without them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "horo/base/status.h"

namespace horo {

/// A row of a table of symbols: the function pointer at `into` is set to the address of `name`.
struct Symbol {
  const char* name;
  void* into;  ///< Address of a function pointer; use symbol() to make one.
  bool required = true;
};

template <class Function>
Symbol symbol(const char* name, Function** into) {
  return {name, static_cast<void*>(into), true};
}
/// Left null when the library does not have it.
template <class Function>
Symbol optional_symbol(const char* name, Function** into) {
  return {name, static_cast<void*>(into), false};
}

/// An open library. It stays loaded until the process ends: the libraries meant here (CUDA, MPI) start threads and
/// register exit handlers, and unloading them is not safe.
class DynamicLibrary {
 public:
  /// Opens the first of `names` that can be opened. kNotFound lists what was tried and the loader's words for each.
  static Result<DynamicLibrary> open(std::span<const std::string> names);
  /// Like open(), but takes only what the process has already loaded.
  static Result<DynamicLibrary> find_loaded(std::span<const std::string> names);

  /// The name under which it was opened.
  const std::string& name() const { return name_; }
  /// Sets every pointer of the table, or none: kNotFound lists all missing required symbols.
  Status bind(std::span<const Symbol> symbols) const;

 private:
  DynamicLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}
  static Result<DynamicLibrary> open(std::span<const std::string> names, int flags);

  std::string name_;
  void* handle_;
};

}  // namespace horo
