#include "cli/run/check_build.h"

#include "cli/run/capture.h"

#include "horo/base/build.h"
#include "horo/base/dynlib.h"
#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

constexpr Duration kPatience = std::chrono::seconds(10);

std::string line(bool there, std::string_view name) { return text("    [", there ? "X" : " ", "] ", name, "\n"); }

/// Names of modules that python3 would find, one per line. Nothing is imported.
std::string frameworks_found() {
  const std::string script =
      "import importlib.util as u\n"
      "for n in ('horo', 'torch', 'tensorflow', 'keras', 'jax'):\n"
      "    print(n if u.find_spec(n) else '')\n";
  const auto said = capture({"python3", "-c", script}, Deadline::after(kPatience));
  return said.ok() ? *said : std::string();
}

bool has_library(const std::string& name) { return DynamicLibrary::open(std::span(&name, 1)).ok(); }

}  // namespace

std::string check_build_text() {
  const std::string found = frameworks_found();
  const auto has = [&](std::string_view name) { return found.find(text(name, "\n")) != found.npos; };
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
