#include "cli/run/hosts.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

constexpr int kMostSlots = 1 << 16;
constexpr std::string_view kBlank = " \t\r";

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

std::string_view trimmed(std::string_view words) {
  const size_t first = words.find_first_not_of(kBlank);
  if (first == words.npos) return {};
  return words.substr(first, words.find_last_not_of(kBlank) - first + 1);
}

std::optional<int> slots_of(std::string_view digits) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 1 || value > kMostSlots) return {};
  return value;
}

Status check_name(std::string_view name, std::string_view piece) {
  if (name.empty()) return invalid(text("'", piece, "' names no host"));
  // ssh would take it for an option.
  if (name.front() == '-') return invalid(text("'", name, "' is no host name: it begins with '-'"));
  const size_t odd = name.find_first_of(" \t\r\n'\"\\;|&<>()$`/,");
  if (odd != name.npos) return invalid(text("'", name, "' is no host name: it contains '", name.substr(odd, 1), "'"));
  return {};
}

/// "[fd00::1]:2" is "fd00::1" and ":2"; "a:2" is "a" and ":2".
Result<std::pair<std::string_view, std::string_view>> split_name(std::string_view piece) {
  if (!piece.starts_with('[')) {
    const size_t colon = piece.find(':');
    if (colon != piece.npos && piece.find(':', colon + 1) != piece.npos) {
      return invalid(text("'", piece, "' has several colons; write an IPv6 address in brackets: [fd00::1]:2"));
    }
    const size_t at = std::min(colon, piece.size());
    return std::pair(piece.substr(0, at), piece.substr(at));
  }
  const size_t bracket = piece.find(']');
  if (bracket == piece.npos) return invalid(text("'", piece, "' has no closing bracket"));
  return std::pair(piece.substr(1, bracket - 1), piece.substr(bracket + 1));
}

/// `slots` of zero: the piece says none.
Result<Host> parse_host(std::string_view piece) {
  using Halves = std::pair<std::string_view, std::string_view>;
  HORO_ASSIGN(const Halves halves, split_name(piece));
  HORO_TRY(check_name(halves.first, piece));
  Host host{std::string(halves.first), 0};
  if (halves.second.empty()) return host;
  const auto slots = halves.second[0] == ':' ? slots_of(halves.second.substr(1)) : std::nullopt;
  if (!slots) {
    return invalid(
        text("'", piece, "': the number of slots must be between 1 and ", kMostSlots, ", as in ", halves.first, ":2"));
  }
  host.slots = *slots;
  return host;
}

/// Hosts that were named before get more slots.
void add(std::vector<Host>& hosts, Host host, int fallback) {
  if (host.slots == 0) host.slots = fallback;
  const auto same = std::find_if(hosts.begin(), hosts.end(), [&](const Host& old) { return old.name == host.name; });
  if (same == hosts.end()) {
    hosts.push_back(std::move(host));
  } else {
    same->slots += host.slots;
  }
}

/// "a", "a:2", "a slots=2"; others words of the form key=value, as other launchers have them, are passed over.
Result<Host> parse_line(std::string_view line) {
  const size_t end = std::min(line.find_first_of(kBlank), line.size());
  HORO_ASSIGN(Host host, parse_host(line.substr(0, end)));
  std::string_view rest = trimmed(line.substr(end));
  while (!rest.empty()) {
    const size_t space = std::min(rest.find_first_of(kBlank), rest.size());
    const std::string_view word = rest.substr(0, space);
    rest = trimmed(rest.substr(space));
    if (word.find('=') == word.npos) return invalid(text("'", word, "' is not understood; write: host slots=2"));
    if (!word.starts_with("slots=")) continue;
    const auto slots = slots_of(word.substr(6));
    if (!slots) return invalid(text("'", word, "': the number of slots must be between 1 and ", kMostSlots));
    host.slots = *slots;
  }
  return host;
}

Result<std::vector<Host>> parse_lines(std::string_view contents, std::string_view what, int fallback) {
  std::vector<Host> hosts;
  for (int number = 1; !contents.empty(); ++number) {
    const size_t end = std::min(contents.find('\n'), contents.size());
    const std::string_view whole = contents.substr(0, end);
    contents.remove_prefix(std::min(end + 1, contents.size()));
    const std::string_view line = trimmed(whole.substr(0, whole.find('#')));
    if (line.empty()) continue;
    auto host = parse_line(line);
    if (!host.ok()) return host.status().prefixed(text(what, ":", number));
    add(hosts, std::move(*host), fallback);
  }
  if (hosts.empty()) return invalid(text(what, " names no host"));
  return hosts;
}

}  // namespace

Result<std::vector<Host>> parse_hosts(std::string_view list) {
  std::vector<Host> hosts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    auto host = parse_host(trimmed(list.substr(begin, end - begin)));
    if (!host.ok()) return host.status().prefixed(text("-H ", list));
    add(hosts, std::move(*host), 1);
    begin = end + 1;
  }
  return hosts;
}

Result<std::vector<Host>> parse_hostfile(std::string_view contents, std::string_view path) {
  return parse_lines(contents, path, 1);
}

Result<std::vector<Host>> parse_discovered(std::string_view printed, std::string_view script, int slots_per_host) {
  return parse_lines(printed, text("output of ", script), slots_per_host);
}

std::vector<int> Placement::ranks_of(size_t host) const {
  std::vector<int> list;
  for (const RankPlace& place : ranks) {
    if (place.host == host) list.push_back(place.rank);
  }
  return list;
}

Result<Placement> place_ranks(const std::vector<Host>& hosts, int ranks) {
  if (ranks < 1) return invalid(text("-np ", ranks, ": a job has at least one rank"));
  Placement placement;
  std::string offered;
  int left = ranks;
  int64_t slots = 0;
  for (const Host& host : hosts) {
    slots += host.slots;
    offered += text(offered.empty() ? "" : ", ", host.name, ":", host.slots);
    if (left == 0) continue;
    const int here = std::min(host.slots, left);
    for (int local = 0; local < here; ++local) {
      placement.ranks.push_back({ranks - left + local, placement.hosts.size(), local, here, 0, 1});
    }
    placement.hosts.push_back({host.name, here});
    left -= here;
  }
  if (left > 0) {
    return invalid(text("too few slots: -np asks for ", ranks, " ranks, the hosts offer ", slots, " (", offered,
                        "); name more hosts or more slots"));
  }
  for (RankPlace& place : placement.ranks) {
    place.cross_size = static_cast<int>(std::count_if(placement.hosts.begin(), placement.hosts.end(),
                                                      [&](const Host& h) { return h.slots > place.local_rank; }));
    place.cross_rank = static_cast<int>(std::count_if(placement.hosts.begin(),
                                                      placement.hosts.begin() + static_cast<ptrdiff_t>(place.host),
                                                      [&](const Host& h) { return h.slots > place.local_rank; }));
  }
  return placement;
}

}  // namespace horo::cli::launch
