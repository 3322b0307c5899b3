#include "cli/run/check_build.h"

#include "cli/check/frameworks.h"
#include "cli/process.h"

#include "horo/base/build.h"
#include "horo/base/dynlib.h"
#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

std::string line(bool there, std::string_view name) { return text("    [", there ? "X" : " ", "] ", name, "\n"); }

bool has_library(const std::string& name) { return DynamicLibrary::open(std::span(&name, 1)).ok(); }

}  // namespace

std::string check_build_text() {
  const std::string python = find_python(Environment::of_process(), own_folder());
  const auto found = frameworks_of(python.empty() ? "python3" : python);
  const auto has = [&](const std::string& name) { return found.ok() && found->count(name) > 0; };
  std::string out = text("horo ", build_info().version, ":\n\nAvailable Frameworks:\n");
  out += line(has("tensorflow"), "TensorFlow") + line(has("torch"), "PyTorch") + line(has("keras"), "Keras") +
         line(has("jax"), "JAX");
  out += text("\nAvailable Controllers:\n", line(true, "horo"), line(false, "MPI"), line(false, "Gloo"));
  out += text("\nAvailable Tensor Operations:\n", line(true, "shared memory"), line(true, "tcp"),
              line(has_library("libnccl.so.2"), "NCCL library found"), line(false, "DDL"), line(false, "CCL"),
              line(false, "MPI"), line(false, "Gloo"));
  return out;
}

}  // namespace horo::cli::launch
