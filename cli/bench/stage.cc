#include "cli/bench/stage.h"

#include <unistd.h>

#include <cstdio>

#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::bench {

ProgressLine::ProgressLine(bool verbose) : terminal_(isatty(2) == 1), verbose_(verbose) {}

void ProgressLine::show(const std::string& line) const {
  if (terminal_) std::fprintf(stderr, "\r\033[K%s", line.c_str());
  if (!terminal_ && verbose_) std::fprintf(stderr, "%s\n", line.c_str());
}

void ProgressLine::clear() const {
  if (terminal_) std::fputs("\r\033[K", stderr);
}

namespace {

Status start_contenders(const BenchOptions& options, const Field& field, const ProgressLine& progress, Stage& stage) {
  progress.show("starting horo");
  HORO_ASSIGN(auto horo, Contender::start_horo(field));
  stage.contenders.push_back(std::move(horo));
  for (size_t i = 0; i < options.variants.size(); ++i) {
    Field varied = field;
    varied.variant = options.variants[i];
    varied.number = static_cast<int>(i) + 1;
    HORO_ASSIGN(auto variant, Contender::start_horo(varied));
    stage.contenders.push_back(std::move(variant));
  }
  for (const std::string& name : options.peers) {
    progress.show("starting " + name);
    auto peer = Contender::start_peer(name, field);
    if (peer.ok()) {
      stage.contenders.push_back(std::move(*peer));
    } else {
      stage.left_out.emplace_back(name, peer.status().message());
    }
  }
  return {};
}

}  // namespace

Result<Stage> set_stage(const BenchOptions& options, const ProgressLine& progress) {
  Stage stage;
  HORO_ASSIGN(stage.janitor, cli::Janitor::start());
  HORO_ASSIGN(const std::string folder, stage.janitor->make_folder());
  if (options.hosts > 1) {
    HORO_ASSIGN(stage.network,
                Network::make({.hosts = options.hosts, .bits_per_second = options.bits_per_second}, *stage.janitor));
  }
  const Field field{.ranks = options.ranks,
                    .transport = options.hosts > 1 ? "tcp" : options.transport,
                    .network = stage.network.get(),
                    .folder = folder,
                    .oversubscribed = options.ranks > System().usable_cores(),
                    .verbose = options.verbose};
  HORO_TRY(start_contenders(options, field, progress, stage));
  return stage;
}

}  // namespace horo::bench
