#include "plugins/cuda/driver.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "horo/base/dynlib.h"
#include "horo/base/text.h"

namespace horo::cuda {

namespace {

namespace fs = std::filesystem;

/// The folder that a package of Python's lies in, for a file of that package: two or three levels up.
void add_packages(const fs::path& file, std::set<std::string>& folders) {
  fs::path folder = file.parent_path();
  for (int up = 0; up < 4 && folder.has_relative_path(); ++up, folder = folder.parent_path()) {
    std::error_code ignored;
    if (fs::is_directory(folder / "nvidia", ignored) || fs::is_directory(folder / "torch" / "lib", ignored)) {
      folders.insert(folder.string());
    }
  }
}

/// Of what is loaded, only what can have CUDA beside it.
int visit_loaded(dl_phdr_info* info, size_t, void* context) {
  const std::string_view name = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  for (const char* part : {"libtorch", "libc10", "/nvidia/", "jaxlib", "libcudart", "libtensorflow"}) {
    if (name.find(part) == std::string_view::npos) continue;
    add_packages(fs::path(name), *static_cast<std::set<std::string>*>(context));
    break;
  }
  return 0;
}

std::vector<std::string> library_folders() {
  std::set<std::string> packages;
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&library_folders), &own) != 0 && own.dli_fname != nullptr) {
    add_packages(fs::path(own.dli_fname), packages);
  }
  dl_iterate_phdr(visit_loaded, &packages);
  std::vector<std::string> folders;
  std::error_code ignored;
  for (const std::string& package : packages) {
    for (const auto& one : fs::directory_iterator(fs::path(package) / "nvidia", ignored)) {
      folders.push_back((one.path() / "lib").string());
    }
    folders.push_back(package + "/torch/lib");
  }
  std::sort(folders.begin(), folders.end());
  folders.insert(folders.end(), {"/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"});
  return folders;
}

#define HORO_CUDA_SYMBOL(name) symbol(#name, &all.name)
#define HORO_CUDA_SYMBOL_AS(name, versioned) symbol(versioned, &all.name)

Result<Driver> open_driver() {
  HORO_ASSIGN(DynamicLibrary library, open_library({"libcuda.so.1", "libcuda.so"}));
  Driver all;
  const Symbol symbols[] = {
      HORO_CUDA_SYMBOL(cuInit),
      HORO_CUDA_SYMBOL(cuDriverGetVersion),
      HORO_CUDA_SYMBOL(cuGetErrorString),
      HORO_CUDA_SYMBOL(cuDeviceGetCount),
      HORO_CUDA_SYMBOL(cuDeviceGet),
      HORO_CUDA_SYMBOL(cuDeviceGetName),
      HORO_CUDA_SYMBOL(cuDeviceGetAttribute),
      HORO_CUDA_SYMBOL_AS(cuDeviceGetUuid, "cuDeviceGetUuid_v2"),
      HORO_CUDA_SYMBOL(cuDeviceGetPCIBusId),
      HORO_CUDA_SYMBOL(cuDevicePrimaryCtxRetain),
      HORO_CUDA_SYMBOL_AS(cuCtxPushCurrent, "cuCtxPushCurrent_v2"),
      HORO_CUDA_SYMBOL_AS(cuCtxPopCurrent, "cuCtxPopCurrent_v2"),
      HORO_CUDA_SYMBOL(cuCtxSynchronize),
      HORO_CUDA_SYMBOL(cuModuleLoadData),
      HORO_CUDA_SYMBOL(cuModuleGetFunction),
      HORO_CUDA_SYMBOL_AS(cuMemAlloc, "cuMemAlloc_v2"),
      HORO_CUDA_SYMBOL_AS(cuMemFree, "cuMemFree_v2"),
      HORO_CUDA_SYMBOL(cuMemHostAlloc),
      HORO_CUDA_SYMBOL(cuMemFreeHost),
      HORO_CUDA_SYMBOL(cuMemcpyAsync),
      HORO_CUDA_SYMBOL(cuIpcGetMemHandle),
      HORO_CUDA_SYMBOL_AS(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2"),
      HORO_CUDA_SYMBOL(cuIpcCloseMemHandle),
      HORO_CUDA_SYMBOL(cuStreamCreateWithPriority),
      HORO_CUDA_SYMBOL(cuCtxGetStreamPriorityRange),
      HORO_CUDA_SYMBOL_AS(cuStreamDestroy, "cuStreamDestroy_v2"),
      HORO_CUDA_SYMBOL(cuStreamWaitEvent),
      HORO_CUDA_SYMBOL(cuStreamIsCapturing),
      HORO_CUDA_SYMBOL(cuEventCreate),
      HORO_CUDA_SYMBOL(cuEventRecord),
      HORO_CUDA_SYMBOL(cuEventQuery),
      HORO_CUDA_SYMBOL(cuEventSynchronize),
      HORO_CUDA_SYMBOL_AS(cuEventDestroy, "cuEventDestroy_v2"),
      HORO_CUDA_SYMBOL(cuLaunchKernel),
      optional_symbol("cuStreamWaitValue32_v2", &all.cuStreamWaitValue32_v2),
      optional_symbol("cuStreamWriteValue32_v2", &all.cuStreamWriteValue32_v2),
  };
  HORO_TRY(library.bind(symbols));
  all.file = library.name();
  if (const CUresult began = all.cuInit(0); began != kSuccess) {
    const char* words = nullptr;
    all.cuGetErrorString(began, &words);
    return Status(Code::kUnavailable, text("the driver says: ", words == nullptr ? "an unknown error" : words));
  }
  return all;
}

Result<Compiler> open_compiler() {
  HORO_ASSIGN(DynamicLibrary library, open_library({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}));
  Compiler all;
  const Symbol symbols[] = {
      HORO_CUDA_SYMBOL(nvrtcVersion),        HORO_CUDA_SYMBOL(nvrtcCreateProgram),
      HORO_CUDA_SYMBOL(nvrtcDestroyProgram), HORO_CUDA_SYMBOL(nvrtcCompileProgram),
      HORO_CUDA_SYMBOL(nvrtcGetCUBINSize),   HORO_CUDA_SYMBOL(nvrtcGetCUBIN),
      HORO_CUDA_SYMBOL(nvrtcGetProgramLog),  HORO_CUDA_SYMBOL(nvrtcGetProgramLogSize),
      HORO_CUDA_SYMBOL(nvrtcGetErrorString),
  };
  HORO_TRY(library.bind(symbols));
  all.file = library.name();
  return all;
}

}  // namespace

std::vector<std::string> places(const std::vector<std::string>& names) {
  std::vector<std::string> all = names;
  std::error_code ignored;
  for (const std::string& folder : library_folders()) {
    for (const std::string& name : names) {
      const fs::path place = fs::path(folder) / name;
      if (fs::exists(place, ignored)) all.push_back(place.string());
    }
  }
  return all;
}

Result<DynamicLibrary> open_library(const std::vector<std::string>& names) {
  if (auto loaded = DynamicLibrary::find_loaded(names); loaded.ok()) return loaded;
  return DynamicLibrary::open(places(names));
}

const Result<Driver>& driver() {
  static const Result<Driver> opened = open_driver();
  return opened;
}

const Result<Compiler>& compiler() {
  static const Result<Compiler> opened = open_compiler();
  return opened;
}

}  // namespace horo::cuda
