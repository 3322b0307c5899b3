#include "horo/base/dynlib.h"

#include <dlfcn.h>

#include <cstring>
#include <vector>

#include "horo/base/text.h"

namespace horo {

Result<DynamicLibrary> DynamicLibrary::open(std::span<const std::string> names) {
  return open(names, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

Result<DynamicLibrary> DynamicLibrary::find_loaded(std::span<const std::string> names) {
  return open(names, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | RTLD_NOLOAD);
}

Result<DynamicLibrary> DynamicLibrary::open(std::span<const std::string> names, int flags) {
  std::string tried;
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), flags)) return DynamicLibrary(name, handle);
    const char* reason = dlerror();
    tried += text(tried.empty() ? "" : "; ", name, " (", reason != nullptr ? reason : "not loaded", ")");
  }
  return Status(Code::kNotFound, text("no shared library could be opened; tried ", tried.empty() ? "none" : tried));
}

Status DynamicLibrary::bind(std::span<const Symbol> symbols) const {
  std::vector<void*> addresses;
  std::string missing;
  for (const Symbol& symbol : symbols) {
    addresses.push_back(dlsym(handle_, symbol.name));
    if (addresses.back() == nullptr && symbol.required) missing += text(missing.empty() ? "" : ", ", symbol.name);
  }
  if (!missing.empty()) {
    return Status(Code::kNotFound, text(name_, " lacks the symbols ", missing, "; another version of it is needed"));
  }
  static_assert(sizeof(void*) == sizeof(void (*)()));
  for (size_t i = 0; i < symbols.size(); ++i) std::memcpy(symbols[i].into, &addresses[i], sizeof(void*));
  return {};
}

}  // namespace horo
