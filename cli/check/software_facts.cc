// What this build can do, and which software it would work with.
#include <openssl/crypto.h>

#include <filesystem>

#include "cli/check/facts.h"
#include "cli/check/frameworks.h"
#include "cli/process.h"

#include "horo/api/horo.h"
#include "horo/api/joining.h"
#include "horo/api/old_variables.h"
#include "horo/base/text.h"
#include "horo/group/knobs.h"
#include "horo/group/memory.h"
#include "horo/net/socket.h"

namespace horo::cli {

namespace {

constexpr const char* kTransports = "transports";
constexpr const char* kSoftware = "software";
constexpr const char* kKnobs = "knobs";

/// What ranks of a job would do: take memory that others can map but not change.
Fact shared_memory() {
  const auto memory = group::Memory::create(0);
  if (memory.ok()) return {kTransports, "shared memory", "within a host"};
  return {kTransports, "shared memory", text("no: ", memory.status().message()), Verdict::kNote,
          "ranks of this host will talk through sockets, which is slower"};
}

Fact tcp() {
  const auto socket = net::ListenSocket::listen(net::Address::loopback());
  if (socket.ok()) return {kTransports, "tcp", "between hosts; encrypted with HORO_ENCRYPT=1"};
  return {kTransports, "tcp", text("no: ", socket.status().message()), Verdict::kProblem,
          "ranks meet through sockets: bring up the loopback interface (ip link set lo up)"};
}

Fact devices() {
  size_t count = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", none)) {
    const std::string name = entry.path().filename().string();
    const std::string number = name.substr(std::min<size_t>(6, name.size()));
    if (name.rfind("nvidia", 0) == 0 && !number.empty() && number.find_first_not_of("0123456789") == number.npos)
      ++count;
  }
  if (count == 0) return {kTransports, "devices", "the host's processors"};
  // In words of one line: what the plugin found, or why there is none.
  int usable = 0;
  std::string words = horo_devices_describe(nullptr, &usable);
  while (!words.empty() && words.back() == '\n') words.pop_back();
  for (size_t at = words.find('\n'); at != std::string::npos; at = words.find('\n', at)) words.replace(at, 1, "; ");
  const std::string value = text("the host's processors, ", count, " NVIDIA; ", words);
  if (usable == 1) return {kTransports, "devices", value};
  return {kTransports, "devices", value, Verdict::kNote, "operations on CUDA tensors will fail: see docs/gpu.md"};
}

Fact python_fact(const std::string& python, const Result<std::map<std::string, std::string>>& found) {
  if (python.empty()) return {kSoftware, "Python", "none", Verdict::kNote, "horo.run() and the package need one"};
  if (!found.ok()) return {kSoftware, "Python", python, Verdict::kNote, found.status().message()};
  if (found->count("horo") > 0) return {kSoftware, "Python", text(python, ", with horo ", found->at("horo"))};
  return {kSoftware, "Python", python, Verdict::kNote, "it has no package horo: pip install horo"};
}

/// "cuda, mpi (Open MPI v4.1.4)".
Fact plugins_fact(const Result<std::map<std::string, std::string>>& found) {
  std::string list;
  for (const auto& [name, said] : found.ok() ? *found : std::map<std::string, std::string>()) {
    if (!name.starts_with(kPluginPrefix)) continue;
    const std::string own = name.substr(kPluginPrefix.size());
    list += text(list.empty() ? "" : ", ", own, said == "here" ? "" : text(" (", said, ")"));
  }
  if (!list.empty()) return {kSoftware, "plugins", list};
  return {kSoftware, "plugins", "none", Verdict::kNote,
          "they come with the Python package: without them there are no devices, no MPI and no graph operations"};
}

Fact duration_fact(const Config& config, const SecondsKnob& knob) {
  const double seconds = std::chrono::duration<double>(config.get(knob)).count();
  return {kKnobs, std::string(knob.row.name), text(seconds, " s", config.is_set(knob) ? "" : " (default)")};
}

}  // namespace

Facts transport_facts() { return {shared_memory(), tcp(), devices()}; }

Facts software_facts(const Environment& environment) {
  const std::string python = find_python(environment, own_folder());
  const auto found = python.empty() ? Result<std::map<std::string, std::string>>(Status(Code::kNotFound, "no Python"))
                                    : frameworks_of(python);
  Facts facts{python_fact(python, found), plugins_fact(found)};
  std::string there, absent;
  for (const std::string& name : framework_names()) {
    if (name == "horo") continue;
    const bool has = found.ok() && found->count(name) > 0;
    std::string& list = has ? there : absent;
    list += text(list.empty() ? "" : ", ", name, has ? " " + found->at(name) : "");
  }
  facts.push_back({kSoftware, "frameworks", there.empty() ? "none" : there});
  facts.push_back({kSoftware, "not installed", absent.empty() ? "none" : absent});
  facts.push_back({kSoftware, "TLS", OpenSSL_version(OPENSSL_VERSION)});
  return facts;
}

Facts knob_facts(const Environment& environment) {
  const auto config = Config::read(api::knob_tables(), environment, api::kOldVariables);
  if (!config.ok()) {
    return {{kKnobs, "environment", "malformed", Verdict::kProblem, config.status().message()}};
  }
  Facts facts;
  for (KnobTable table : api::knob_tables()) {
    for (const Knob* knob : table) {
      if (knob->kind == KnobKind::kSeconds)
        facts.push_back(duration_fact(*config, static_cast<const SecondsKnob&>(*knob)));
    }
  }
  for (const std::string& line : config->warnings()) facts.push_back({kKnobs, "environment", "", Verdict::kNote, line});
  return facts;
}

}  // namespace horo::cli
