#include "cli/run/orders.h"

#include <algorithm>
#include <filesystem>

#include "cli/run/variables.h"

#include "horo/base/text.h"

namespace horo::cli::launch {

StartOrder Orders::base(const HostLink& host, const Meeting& meeting) const {
  StartOrder order;
  std::copy(key_->secret().begin(), key_->secret().end(), order.key.begin());
  std::error_code ignored;
  order.folder = std::filesystem::current_path(ignored).string();
  order.command = options_.command;
  if (!host.is_here()) order.environment = variables_to_forward(Environment::of_process());
  for (const auto& [name, value] : variables_of(JobVariables{job_, meeting.store})) {
    order.environment.insert_or_assign(name, value);
  }
  for (const auto& [name, value] : options_.variables) order.environment.insert_or_assign(name, value);
  order.grace = options_.grace;
  order.interfaces = options_.interfaces;
  order.peers = meeting.peers;
  order.wants_results = !options_.result_folder.empty();
  order.gpus_per_rank = options_.gpus_per_rank;
  order.share_gpus = options_.share_gpus;
  order.elastic = options_.elastic.wanted;
  order.far = !host.is_here();
  order.may_grow = !options_.elastic.script.empty();
  return order;
}

RankOrder Orders::first(const RankPlace& place, const std::string& output) const {
  RankOrder order{place.rank, place.local_rank, variables_of(place, options_.placement), output};
  if (options_.elastic.wanted) order.environment["HORO_SEAT"] = text(place.rank);
  return order;
}

RankOrder Orders::newcomer(int seat, int slot, const std::string& host, const std::string& output) const {
  RankOrder order{seat, slot, variables_of_newcomer(seat, host), output};
  return order;
}

}  // namespace horo::cli::launch
