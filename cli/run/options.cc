#include "cli/run/options.h"

#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iostream>
#include <system_error>

#include "cli/run/capture.h"
#include "cli/run/config_file.h"
#include "cli/run/discovery.h"

#include "horo/api/horo.h"
#include "horo/api/python_knobs.h"
#include "horo/base/text.h"
#include "horo/net/poller.h"
#include "horo/rendezvous/knobs.h"

namespace horo::cli::launch {

namespace {

constexpr int kMostPort = 65535;

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

/// The flag's value, which was checked when it was read.
double number_of(const FlagValues& flags, std::string_view name, double fallback) {
  const auto value = flags.find(name);
  return value ? std::stod(*value) : fallback;
}

constexpr Duration kLongest = std::chrono::hours(365 * 24);

Duration seconds_of(double seconds) {
  const double most = std::chrono::duration<double>(kLongest).count();
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(seconds, most)));
}

Status refuse_contradictions(const FlagValues& flags) {
  const std::vector<std::string_view> groups[] = {{"--hosts", "--hostfile", "--host-discovery-script"},
                                                  {"--gloo", "--mpi", "--jsrun"},
                                                  {"--log-with-timestamp", "--log-without-timestamp"}};
  for (const auto& group : groups) {
    std::string_view first;
    for (std::string_view name : group) {
      if (!flags.has(name)) continue;
      if (!first.empty()) return invalid(text(first, " and ", name, " exclude each other; give one of them"));
      first = name;
    }
  }
  return {};
}

int64_t slots_of(const std::vector<Host>& hosts) {
  int64_t slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  return slots;
}

Result<std::vector<Host>> discover(const ElasticOptions& elastic) {
  HORO_ASSIGN(const std::string printed,
              capture({"/bin/sh", "-c", elastic.script}, Deadline::after(Discovery::kLimit)));
  return parse_discovered(printed, elastic.script, elastic.slots_per_host);
}

/// Slots may come one after the other. The first run must be a good one: a mistake shows at once.
Result<std::vector<Host>> discover_enough(const ElasticOptions& elastic, int64_t wanted) {
  const Deadline limit = Deadline::after(elastic.timeout);
  HORO_ASSIGN(std::vector<Host> hosts, discover(elastic));
  if (slots_of(hosts) < wanted) {
    std::cerr << "horo run: the hosts offer " << slots_of(hosts) << " slots, -np asks for " << wanted
              << "; waiting for more\n";
  }
  HORO_ASSIGN(net::Poller clock, net::Poller::create());
  while (slots_of(hosts) < wanted && !limit.expired()) {
    // Nothing but Ctrl-C can happen meanwhile.
    HORO_TRY(clock.wait(limit.earlier(Deadline::after(Discovery::kInterval))).status());
    if (auto found = discover(elastic); found.ok()) hosts = std::move(*found);
  }
  return hosts;
}

Result<std::vector<Host>> hosts_of(const FlagValues& flags, const ElasticOptions& elastic) {
  if (const auto list = flags.find("--hosts")) return parse_hosts(*list);
  if (const auto path = flags.find("--hostfile")) {
    HORO_ASSIGN(const std::string contents, contents_of(*path, "--hostfile"));
    return parse_hostfile(contents, *path);
  }
  if (!elastic.script.empty()) {
    const double least = number_of(flags, "--min-num-proc", 1);
    return discover_enough(elastic, static_cast<int64_t>(number_of(flags, "--num-proc", least)));
  }
  return std::vector<Host>{{"localhost", static_cast<int>(number_of(flags, "--num-proc", 1))}};
}

/// An elastic job uses every slot that there is, up to --max-np; -np is how many it needs to begin.
Result<Placement> placement_of(const FlagValues& flags, ElasticOptions& elastic) {
  constexpr double kMostRanks = 1 << 20;
  const double wanted = number_of(flags, "--num-proc", 0);
  if (wanted > kMostRanks) return invalid(text("-np ", wanted, ": at most ", kMostRanks, " ranks"));
  HORO_ASSIGN(elastic.offered, hosts_of(flags, elastic));
  const int64_t slots = slots_of(elastic.offered);
  const bool says_how_many = flags.has("--hosts") || flags.has("--hostfile") || flags.has("--host-discovery-script");
  if (wanted == 0 && !says_how_many) return invalid("-np is missing: how many ranks? (horo run -np 4 python train.py)");
  int64_t ranks = wanted > 0 ? static_cast<int64_t>(wanted) : slots;
  const bool enough = slots >= ranks;
  if (elastic.wanted && enough) ranks = elastic.most > 0 ? std::min<int64_t>(slots, elastic.most) : slots;
  return place_ranks(elastic.offered, static_cast<int>(std::min<int64_t>(ranks, 1 << 20)));
}

std::vector<std::string> interfaces_of(const FlagValues& flags) {
  std::vector<std::string> list;
  for (const char* name : {"--network-interfaces", "--network-interface"}) {
    const auto place = flags.values.find(name);
    if (place == flags.values.end()) continue;
    for (const std::string& value : place->second) {
      std::istringstream pieces(value);
      for (std::string piece; std::getline(pieces, piece, ',');) {
        if (!piece.empty()) list.push_back(piece);
      }
    }
  }
  return list;
}

Result<SshOptions> ssh_of(const FlagValues& flags, Duration start_timeout) {
  SshOptions ssh;
  ssh.command = flags.find("--ssh-command").value_or(ssh.command);
  ssh.identity_file = flags.find("--ssh-identity-file").value_or("");
  ssh.port = static_cast<int>(number_of(flags, "--ssh-port", 0));
  if (ssh.port > kMostPort) return invalid(text("--ssh-port ", ssh.port, " is no port: at most ", kMostPort));
  const double seconds = std::chrono::duration<double>(start_timeout).count();
  ssh.connect_timeout_seconds = static_cast<int>(std::clamp(std::ceil(seconds), 1.0, 3600.0));
  return ssh;
}

/// By the ranks' own variable if there is no flag: they wait as long.
Result<Duration> elastic_timeout_of(const FlagValues& flags, const Environment& environment) {
  if (flags.has("--elastic-timeout")) return seconds_of(number_of(flags, "--elastic-timeout", 0));
  const Knob* only[] = {&api::kElasticTimeout};
  HORO_ASSIGN(const Config config, Config::read({KnobTable(only)}, environment));
  return seconds_of(static_cast<double>(config.get(api::kElasticTimeout)));
}

/// What the flags say; the hosts come later. As Horovod has it: --min-np is -np if it is not given.
Result<ElasticOptions> elastic_of(const FlagValues& flags, const Environment& environment) {
  ElasticOptions elastic;
  elastic.script = flags.find("--host-discovery-script").value_or("");
  elastic.wanted = flags.has("--min-num-proc") || flags.has("--max-num-proc") || !elastic.script.empty();
  elastic.slots_per_host = static_cast<int>(number_of(flags, "--slots-per-host", 1));
  HORO_ASSIGN(elastic.timeout, elastic_timeout_of(flags, environment));
  const auto wanted = static_cast<int>(number_of(flags, "--num-proc", 0));
  elastic.least = static_cast<int>(number_of(flags, "--min-num-proc", std::max(wanted, 1)));
  elastic.most = static_cast<int>(number_of(flags, "--max-num-proc", 0));
  const int begins = wanted > 0 ? wanted : elastic.least;
  if (elastic.least > begins) {
    return invalid(text("--min-np ", elastic.least, " with ", begins, " ranks; give -np ", elastic.least, " or more"));
  }
  if (elastic.most > 0 && elastic.most < begins) {
    return invalid(text("--max-np ", elastic.most, " with ", begins, " ranks; give -np ", elastic.most, " or fewer"));
  }
  const auto range = flags.values.find("--blacklist-cooldown-range");
  if (range == flags.values.end()) return elastic;
  const Cooldown cooldown{seconds_of(std::stod(range->second.front())), seconds_of(std::stod(range->second.back()))};
  if (cooldown.least > cooldown.most || cooldown.least == Duration::zero()) {
    return invalid(text("--blacklist-cooldown-range ", range->second.front(), " ", range->second.back(),
                        ": the first number of seconds must be above 0 and not above the second"));
  }
  elastic.cooldown = cooldown;
  return elastic;
}

/// What the ranks of an elastic job find.
void add_elastic_variables(const ElasticOptions& elastic, Environment::Variables& variables) {
  if (!elastic.wanted) return;
  variables["HOROVOD_ELASTIC"] = "1";
  variables["HORO_ELASTIC_MIN_RANKS"] = std::to_string(elastic.least);
  variables["HORO_ELASTIC_MAX_RANKS"] = elastic.most > 0 ? std::to_string(elastic.most) : "";
}

Status check_elastic(const FlagValues& flags, const RunOptions& options) {
  const ElasticOptions& elastic = options.elastic;
  if (elastic.cooldown && !elastic.wanted) {
    return invalid("--blacklist-cooldown-range is for elastic jobs; give --min-np, too");
  }
  if (elastic.wanted && flags.is_on("--mpi")) return invalid("an elastic job with --mpi: mpirun starts no ranks later");
  return {};
}

MpiOptions mpi_of(const FlagValues& flags, std::vector<std::string>& notes) {
  MpiOptions mpi{flags.is_on("--mpi"), flags.find("--mpi-args").value_or(""),
                 flags.find("--binding-args").value_or("")};
  if (mpi.wanted && (flags.has("--input") || flags.has("--result-folder"))) {
    mpi.wanted = false;
    notes.emplace_back(
        "--mpi changes nothing: what ranks read and hand back goes through those that horo starts itself");
  }
  const std::vector<const char*> of_mpi = {"--mpi-args", "--binding-args"},
                                 of_horo = {"--ssh-port",        "--ssh-identity-file",
                                            "--ssh-command",     "--output-filename",
                                            "--end-with-parent", "--prefix-output-with-timestamp",
                                            "--grace-period",    "--store-port"};
  for (const char* name : mpi.wanted ? of_horo : of_mpi) {
    if (!flags.has(name)) continue;
    notes.push_back(text(name, " changes nothing: ",
                         mpi.wanted ? "mpirun starts the ranks; --mpi-args takes flags of its own"
                                    : "horo starts the ranks itself, not mpirun"));
  }
  return mpi;
}

Result<Duration> start_timeout_of(const FlagValues& flags, const Environment& environment) {
  if (flags.has("--start-timeout")) return seconds_of(number_of(flags, "--start-timeout", 0));
  const Knob* only[] = {&rendezvous::kStartTimeout};
  HORO_ASSIGN(const Config config, Config::read({KnobTable(only)}, environment));
  return std::min(config.get(rendezvous::kStartTimeout), kLongest);
}

}  // namespace

Result<std::string> contents_of(const std::string& path, std::string_view flag) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string contents;
  std::array<char, 4096> block;
  // Not by iterators, which throw what cannot be read: a folder, for one.
  while (file.read(block.data(), block.size()) || file.gcount() > 0) {
    contents.append(block.data(), static_cast<size_t>(file.gcount()));
  }
  if (file.is_open() && !file.bad()) return contents;
  return invalid(text(flag, ": cannot read ", path, ": ", std::generic_category().message(errno)));
}

Result<RunOptions> make_options(FlagValues flags, const Environment& environment) {
  if (const auto path = flags.find("--config-file")) {
    HORO_ASSIGN(const std::string contents, contents_of(*path, "--config-file"));
    HORO_TRY(add_settings(contents, *path, flags));
  }
  HORO_TRY(refuse_contradictions(flags));
  RunOptions options;
  options.command = flags.command;
  if (options.command.empty())
    return invalid("no command: what are the ranks to run? (horo run -np 4 python train.py)");
  HORO_ASSIGN(options.elastic, elastic_of(flags, environment));
  HORO_TRY(check_elastic(flags, options));
  HORO_ASSIGN(options.placement, placement_of(flags, options.elastic));
  options.variables = variables_of(flags, horo_knobs_markdown());
  options.interfaces = interfaces_of(flags);
  options.output_folder = flags.find("--output-filename").value_or("");
  options.input_file = flags.find("--input").value_or("");
  options.result_folder = flags.find("--result-folder").value_or("");
  options.parent = static_cast<int>(number_of(flags, "--end-with-parent", 0));
  options.gpus_per_rank = static_cast<int>(number_of(flags, "--gpus-per-rank", 0));
  options.share_gpus = flags.is_on("--share-gpus");
  options.timestamps = flags.is_on("--prefix-output-with-timestamp");
  options.verbose = flags.is_on("--verbose");
  HORO_ASSIGN(options.start_timeout, start_timeout_of(flags, environment));
  options.grace = seconds_of(number_of(flags, "--grace-period", 5));
  HORO_ASSIGN(options.ssh, ssh_of(flags, options.start_timeout));
  const double port = number_of(flags, "--store-port", 0);
  if (port > kMostPort) return invalid(text("--store-port ", port, " is no port: at most ", kMostPort));
  options.store_port = static_cast<uint16_t>(port);
  options.notes = notes_of(flags);
  options.mpi = mpi_of(flags, options.notes);
  if (options.mpi.wanted && options.gpus_per_rank > 0) {
    return invalid(
        "--gpus-per-rank with --mpi: mpirun starts the ranks; they take torch.cuda.set_device(hvd.local_rank())");
  }
  add_elastic_variables(options.elastic, options.variables);
  return options;
}

}  // namespace horo::cli::launch
