#include "cli/run/variables.h"

#include <algorithm>
#include <array>

#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

/// Of this host or login. The last two name a key that is not this job's.
constexpr std::array<std::string_view, 19> kOfThisHost{"HOME",
                                                       "USER",
                                                       "LOGNAME",
                                                       "SHELL",
                                                       "PWD",
                                                       "OLDPWD",
                                                       "HOSTNAME",
                                                       "HOST",
                                                       "MAIL",
                                                       "DISPLAY",
                                                       "TMPDIR",
                                                       "TERM",
                                                       "SHLVL",
                                                       "_",
                                                       "TMUX",
                                                       "TTY",
                                                       "_HOROVOD_SECRET_KEY",
                                                       "HORO_KEY_FILE",
                                                       "HORO_KEY_FD"};
constexpr std::array<std::string_view, 5> kPrefixesOfThisHost{"SSH_", "XDG_", "DBUS_", "BASH_FUNC_", "SUDO_"};

}  // namespace

Environment::Variables variables_of(const RankPlace& place, const Placement& placement) {
  Environment::Variables variables;
  const auto set = [&](const std::string& name, const std::string& value) {
    variables["HORO_" + name] = value;
    variables["HOROVOD_" + name] = value;
  };
  set("RANK", text(place.rank));
  set("SIZE", text(placement.ranks.size()));
  set("LOCAL_RANK", text(place.local_rank));
  set("LOCAL_SIZE", text(place.local_size));
  set("CROSS_RANK", text(place.cross_rank));
  set("CROSS_SIZE", text(place.cross_size));
  set("HOSTNAME", placement.hosts[place.host].name);
  return variables;
}

Environment::Variables variables_of_newcomer(int seat, const std::string& host) {
  Environment::Variables variables{{"HORO_SEAT", text(seat)}};
  for (const char* name : {"RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME"}) {
    const std::string value = std::string_view(name) == "HOSTNAME" ? host : "";
    variables[text("HORO_", name)] = value;
    variables[text("HOROVOD_", name)] = value;
  }
  return variables;
}

Environment::Variables variables_of(const JobVariables& job) {
  return {
      {"HORO_JOB_ID", job.job},
      {"HORO_STORE", job.store},
      {"HORO_KEY_FILE", ""},  // HORO_KEY_FD is where the key is.
      // Lines of Python programs come when they are written, and last words are not lost.
      {"PYTHONUNBUFFERED", "1"},
  };
}

bool is_forwarded(std::string_view name) {
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  if (std::find(kOfThisHost.begin(), kOfThisHost.end(), name) != kOfThisHost.end()) return false;
  if (std::any_of(kPrefixesOfThisHost.begin(), kPrefixesOfThisHost.end(), begins)) return false;
  return !name.ends_with("CUDA_VISIBLE_DEVICES");
}

Environment::Variables variables_to_forward(const Environment& environment) {
  Environment::Variables forwarded;
  for (const auto& [name, value] : environment.variables()) {
    if (!name.empty() && is_forwarded(name)) forwarded[name] = value;
  }
  return forwarded;
}

}  // namespace horo::cli::launch
