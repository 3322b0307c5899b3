// Kernels become machine code: by NVRTC at first use, and from files afterwards.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "plugins/cuda/context.h"
#include "plugins/cuda/kernels_text.h"

#include "horo/base/text.h"

namespace horo::cuda {

namespace {

namespace fs = std::filesystem;

std::mutex& cache_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::string& cache_folder() {
  static std::string folder;
  return folder;
}

/// FNV-1a, twice with different beginnings: 128 bits that name what was compiled, and with what.
std::string name_of(std::string_view text) {
  std::ostringstream name;
  for (uint64_t hash : {0xcbf29ce484222325ULL, 0x84222325cbf29ce4ULL}) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    name << std::hex << hash;
  }
  return name.str();
}

std::vector<std::string> options_for(const std::string& defines, const std::string& architecture) {
  std::vector<std::string> options = {text("--gpu-architecture=", architecture), "--std=c++17", "--fmad=false",
                                      text("-DTHREADS=", kThreads), text("-DCHUNK=", kChunk)};
  std::istringstream words(defines);
  for (std::string word; words >> word;) options.push_back("-D" + word);
  return options;
}

Result<std::string> compile(const std::vector<std::string>& options) {
  const Result<Compiler>& opened = compiler();
  if (!opened.ok()) return opened.status().prefixed("kernels cannot be compiled without NVRTC");
  const Compiler& nvrtc = *opened;
  Compiler::Program program = nullptr;
  const auto said = [&](int code, const char* what) {
    return Status(Code::kUnavailable, text(what, " failed: ", nvrtc.nvrtcGetErrorString(code)));
  };
  if (int code = nvrtc.nvrtcCreateProgram(&program, kKernelsText, "horo.cu", 0, nullptr, nullptr); code != 0) {
    return said(code, "nvrtcCreateProgram");
  }
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());
  Result<std::string> outcome = std::string();
  if (int code = nvrtc.nvrtcCompileProgram(program, static_cast<int>(words.size()), words.data()); code != 0) {
    size_t bytes = 0;
    nvrtc.nvrtcGetProgramLogSize(program, &bytes);
    std::string log(bytes, '\0');
    nvrtc.nvrtcGetProgramLog(program, log.data());
    outcome = Status(Code::kUnavailable, text(said(code, "nvrtcCompileProgram").message(), ": ", log.substr(0, 300)));
  } else {
    size_t bytes = 0;
    nvrtc.nvrtcGetCUBINSize(program, &bytes);
    std::string machine(bytes, '\0');
    nvrtc.nvrtcGetCUBIN(program, machine.data());
    outcome = std::move(machine);
  }
  nvrtc.nvrtcDestroyProgram(&program);
  return outcome;
}

/// Only from a folder that nobody else can write to: what lies there runs on the device.
bool is_own_folder(const std::string& folder) {
  struct stat facts {};
  return stat(folder.c_str(), &facts) == 0 && facts.st_uid == geteuid() && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

void keep(const std::string& folder, const std::string& file, const std::string& machine) {
  static std::atomic<int> turn{0};
  const std::string unfinished = text(file, ".", getpid(), ".", turn++);
  {
    std::ofstream out(unfinished, std::ios::binary);
    out.write(machine.data(), static_cast<std::streamsize>(machine.size()));
    if (!out) return;
  }
  std::error_code ignored;
  if (is_own_folder(folder)) fs::rename(unfinished, file, ignored);
  if (fs::exists(unfinished, ignored)) fs::remove(unfinished, ignored);
}

}  // namespace

void set_cache_folder(std::string folder) {
  std::lock_guard lock(cache_mutex());
  cache_folder() = std::move(folder);
}

Result<std::string> machine_code(const std::string& defines, const std::string& architecture, bool fresh) {
  const std::vector<std::string> options = options_for(defines, architecture);
  int major = 0, minor = 0;
  if (const Result<Compiler>& nvrtc = compiler(); nvrtc.ok()) nvrtc->nvrtcVersion(&major, &minor);
  std::string all = text(kKernelsText, "\n", major, ".", minor);
  for (const std::string& option : options) all += text("\n", option);
  std::string folder;
  {
    std::lock_guard lock(cache_mutex());
    folder = cache_folder();
  }
  std::error_code ignored;
  if (!folder.empty() && !fs::exists(folder, ignored)) {
    fs::create_directories(fs::path(folder).parent_path(), ignored);
    mkdir(folder.c_str(), 0700);
  }
  const bool cached = !folder.empty() && is_own_folder(folder);
  const std::string file = text(folder, "/", name_of(all), ".cubin");
  if (cached && !fresh) {
    std::ifstream in(file, std::ios::binary);
    std::ostringstream contents;
    if (in && contents << in.rdbuf()) return contents.str();
  }
  HORO_ASSIGN(std::string machine, compile(options));
  if (cached) keep(folder, file, machine);
  return machine;
}

}  // namespace horo::cuda
