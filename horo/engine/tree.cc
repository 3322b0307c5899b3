#include "horo/engine/tree.h"

#include <algorithm>
#include <bit>

namespace horo::engine {

namespace {

using Hosts = std::vector<std::vector<int>>;

/// Hosts under host `host` of a binomial tree over `hosts` of them.
std::vector<size_t> hosts_under(size_t host, size_t hosts) {
  std::vector<size_t> under;
  const size_t limit = host == 0 ? std::bit_ceil(hosts) : host & (~host + 1);  // The lowest bit that is set.
  for (size_t step = 1; step < limit && host + step < hosts; step *= 2) under.push_back(host + step);
  return under;
}

void collect(const Hosts& hosts, size_t host, std::vector<int>& members) {
  members.insert(members.end(), hosts[host].begin(), hosts[host].end());
  for (size_t under : hosts_under(host, hosts.size())) collect(hosts, under, members);
}

}  // namespace

int Tree::index_of(int member) const {
  auto found = std::find(children.begin(), children.end(), member);
  return found == children.end() ? -1 : static_cast<int>(found - children.begin());
}

Tree Tree::of(const collective::Shape& shape, int member) {
  const Hosts& hosts = shape.hosts();
  const size_t host = shape.host_of(member);
  Tree tree;
  tree.self = member;
  if (hosts[host].front() != member) {
    tree.parent = hosts[host].front();
    return tree;
  }
  if (host > 0) tree.parent = hosts[host & (host - 1)].front();
  for (size_t i = 1; i < hosts[host].size(); ++i) {
    tree.children.push_back(hosts[host][i]);
    tree.below.push_back({hosts[host][i]});
  }
  for (size_t under : hosts_under(host, hosts.size())) {
    tree.children.push_back(hosts[under].front());
    collect(hosts, under, tree.below.emplace_back());
    std::sort(tree.below.back().begin(), tree.below.back().end());
  }
  return tree;
}

}  // namespace horo::engine
