#include "cli/run/agent_rank.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cli/run/interfaces.h"

#include "horo/base/system.h"
#include "horo/base/text.h"
#include "horo/net/route.h"
#include "horo/net/system_error.h"

namespace horo::cli::launch {

namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

/// The key in a pipe whose end is already closed: who reads it has all of it.
Result<net::UniqueFd> pipe_with(const net::Key& key) {
  HORO_ASSIGN(Pipe pipe, Pipe::create());
  const auto secret = key.secret();
  if (write(pipe.to.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size())) {
    return net::system_error("handing the key to a rank", errno);
  }
  return std::move(pipe.from);
}

Result<Pipe> output_pipe() {
  HORO_ASSIGN(Pipe pipe, Pipe::create());
  if (fcntl(pipe.from.get(), F_SETFL, O_NONBLOCK) != 0) return net::system_error("a pipe for output", errno);
  return pipe;
}

/// The user's own choice of interface stands, unless a flag says otherwise.
Result<std::string> interface_for(const StartOrder& order, const Environment& environment) {
  if (!order.interfaces.empty()) {
    HORO_ASSIGN(const net::Address chosen, first_interface(order.interfaces));
    return net::ip_text(chosen);
  }
  for (const char* name : {"HORO_INTERFACE", "HOROVOD_GLOO_IFACE"}) {
    if (auto set = environment.find(name)) return *set;
  }
  if (order.may_grow && order.peers.empty()) return net::ip_text(address_for_others());
  HORO_ASSIGN(const net::Address routed, address_towards(order.peers));
  return net::ip_text(routed);
}

}  // namespace

std::string threads_per_rank(int cores, size_t ranks) {
  return text(std::max(1, cores / std::max(1, static_cast<int>(ranks))));
}

/// Numerical libraries start a thread per core in every process: with a rank per core, ranks would fight for them.
void RankTerms::share_cores(size_t ranks) {
  if (environment.find("OMP_NUM_THREADS")) return;
  const int cores = System().usable_cores();
  const std::string threads = threads_per_rank(cores, ranks);
  environment = environment.with({{"OMP_NUM_THREADS", threads}});
  // A single rank has what there is: nothing that needs words.
  if (ranks == 1) return;
  notes.push_back(text("OMP_NUM_THREADS is not set: it is ", threads, " for each rank (usable cores: ", cores,
                       ", ranks on the host: ", ranks, ")"));
}

Result<RankTerms> RankTerms::of(const StartOrder& order) {
  RankTerms terms;
  terms.command = order.command;
  terms.environment = Environment::of_process().with(order.environment);
  HORO_ASSIGN(std::string interface, interface_for(order, terms.environment));
  terms.environment = terms.environment.with({{"HORO_INTERFACE", interface}});
  terms.share_cores(static_cast<size_t>(order.slots));
  HORO_ASSIGN(net::Key key, net::Key::from_bytes(order.key));
  terms.key = std::make_shared<const net::Key>(std::move(key));
  terms.wants_results = order.wants_results;
  terms.slots = order.slots;
  terms.gpus = {order.gpus_per_rank, order.share_gpus, terms.environment.find(kVisible).value_or(""), count_gpus()};
  std::error_code ignored;
  if (std::filesystem::is_directory(order.folder, ignored)) {
    terms.folder = order.folder;
  } else {
    terms.folder = std::filesystem::current_path(ignored).string();
    terms.notes.push_back(
        order.folder.empty()
            ? "the folder that this command was started in is gone; ranks are in none"
            : text("host ", host_name(), " has no folder ", order.folder, "; its ranks run in ", terms.folder));
  }
  return terms;
}

/// Opened once more, so that each rank reads at a place of its own.
Result<net::UniqueFd> RankTerms::input_for_one() const {
  if (input < 0) return net::UniqueFd();
  net::UniqueFd own(open(text("/proc/self/fd/", input).c_str(), O_RDONLY | O_CLOEXEC));
  if (!own) return net::system_error("opening the input for a rank", errno);
  return own;
}

Result<Environment> RankTerms::environment_of(const RankOrder& order) const {
  Environment all = environment.with(order.environment)
                        .with({{"HORO_KEY_FD", text(kKeyDescriptor)},
                               {"HORO_RESULT_FD", wants_results ? text(kResultDescriptor) : ""}});
  if (gpus.each == 0) return all;
  auto visible = gpus_of(gpus, order.slot, slots);
  if (!visible.ok()) return visible.status().prefixed(text("host ", host_name()));
  return all.with({{kVisible, *visible}});
}

Result<Rank> RankTerms::start(const RankOrder& order) const {
  HORO_ASSIGN(const Environment all, environment_of(order));
  auto program = find_program(command[0], all.find("PATH").value_or(""));
  if (!program.ok()) return program.status().prefixed(text("host ", host_name()));
  HORO_ASSIGN(net::UniqueFd secret, pipe_with(*key));
  HORO_ASSIGN(Pipe output, output_pipe());
  HORO_ASSIGN(Pipe error, output_pipe());
  HORO_ASSIGN(Pipe result, wants_results ? output_pipe() : Result<Pipe>(Pipe{}));
  HORO_ASSIGN(const net::UniqueFd own_input, input_for_one());
  SpawnOptions options;
  options.program = *program;
  options.arguments = command;
  options.environment = all.variables();
  // To many programs an empty variable of ours is one that is set.
  std::erase_if(options.environment, [](const auto& variable) {
    return variable.second.empty() && (variable.first.starts_with("HORO_") || variable.first.starts_with("HOROVOD_"));
  });
  options.folder = folder;
  options.output = output.to.get();
  options.error = error.to.get();
  options.input = own_input.get();
  options.kept = {{secret.get(), kKeyDescriptor}};
  if (wants_results) options.kept.push_back({result.to.get(), kResultDescriptor});
  options.death_signal = SIGKILL;
  Rank rank;
  rank.rank = order.rank;
  rank.command = command[0];
  rank.output_folder = order.output;
  HORO_ASSIGN(rank.child, spawn(options));
  rank.output = std::move(output.from);
  rank.error = std::move(error.from);
  rank.result = std::move(result.from);
  return rank;
}

}  // namespace horo::cli::launch
