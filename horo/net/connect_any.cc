// One host with several addresses, of which some may lead nowhere.
#include <algorithm>

#include "horo/base/text.h"
#include "horo/net/poller.h"
#include "horo/net/socket.h"

namespace horo::net {
namespace {

struct Attempt {
  const Address* to = nullptr;
  Result<Socket> socket;  ///< Or why it failed.
};

/// Why each failed; `late` for those that have not.
std::string reasons(const std::vector<Attempt>& attempts) {
  std::string all;
  for (const Attempt& attempt : attempts) {
    if (!all.empty()) all += "; ";
    all += text(attempt.to->to_string(), ": ",
                attempt.socket.ok() ? "no answer before the deadline" : attempt.socket.status().message());
  }
  return all;
}

}  // namespace

Result<Socket> Socket::connect_any(std::span<const Address> to, Deadline deadline, const SocketOptions& options) {
  if (to.empty()) return Status(Code::kInvalidArgument, "connecting to no address");
  if (to.size() == 1) return connect(to.front(), deadline, options);
  std::vector<Attempt> attempts;
  for (const Address& address : to) attempts.push_back({&address, start_connect(address, options)});
  while (true) {
    std::vector<PollItem> items;
    for (const Attempt& attempt : attempts) {
      items.push_back({attempt.socket.ok() ? attempt.socket->fd() : -1, Interest::kWrite});
    }
    if (std::all_of(items.begin(), items.end(), [](const PollItem& item) { return item.fd < 0; })) {
      return Status(Code::kUnavailable, text("no address answers: ", reasons(attempts)));
    }
    HORO_ASSIGN(size_t ready, poll_many(items, deadline));
    if (ready == 0) return Status(Code::kTimeout, text("no address answers: ", reasons(attempts)));
    for (size_t i = 0; i < items.size(); ++i) {
      if (!items[i].writable) continue;
      Status outcome = attempts[i].socket->connected();
      if (outcome.ok()) return std::move(*attempts[i].socket);
      attempts[i].socket = std::move(outcome);
    }
  }
}

}  // namespace horo::net
