#include "horo/transport/tcp/mesh.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "horo/base/pause.h"
#include "horo/base/text.h"

namespace horo::transport::tcp {

namespace {

constexpr auto kProbeAfter = std::chrono::milliseconds(100);
/// What poll_many() takes, less the wake-up.
constexpr size_t kMostWatched = 255;
/// With more streams than that a part is watched at a time.
constexpr auto kTurn = std::chrono::milliseconds(1);
/// For those to whom much is under way to take it, and the word that it is in vain behind it. Else the group ends.
constexpr auto kTellLimit = std::chrono::seconds(10);

Status check(const Seat& seat, const std::vector<std::vector<Wire>>& streams, const MeshOptions& options) {
  auto invalid = [](std::string why) { return Status(Code::kInvalidArgument, "a tcp mesh: " + std::move(why)); };
  if (seat.size < 1 || seat.rank < 0 || seat.rank >= seat.size) {
    return invalid(text("rank ", seat.rank, " of ", seat.size));
  }
  if (streams.size() != static_cast<size_t>(seat.size)) {
    return invalid(text(streams.size(), " lists of streams for ", seat.size, " members"));
  }
  if (options.chunk == 0 || options.chunk % 64 != 0 || options.chunk > kMostChunk) {
    return invalid(text("a chunk of ", options.chunk, " bytes; it must be a multiple of 64 and at most ", kMostChunk));
  }
  for (int peer = 0; peer < seat.size; ++peer) {
    const auto& sockets = streams[static_cast<size_t>(peer)];
    if (sockets.empty() != (peer == seat.rank)) {
      return invalid(text(sockets.size(), " streams from rank ", seat.rank, " to rank ", peer));
    }
    for (const Wire& wire : sockets) {
      if (!wire.socket.valid()) return invalid(text("a closed stream to rank ", peer));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Mesh>> Mesh::create(const Seat& seat, std::vector<std::vector<Wire>> streams,
                                           const MeshOptions& options) {
  HORO_TRY(check(seat, streams, options));
  HORO_ASSIGN(net::Wake wake, net::Wake::create());
  std::unique_ptr<Mesh> mesh(new Mesh(seat, options, std::move(wake)));
  for (int peer = 0; peer < seat.size; ++peer) {
    if (peer == seat.rank) continue;
    const auto at = static_cast<size_t>(peer);
    HORO_ASSIGN(mesh->links_[at], Link::create(mesh->common_, peer, std::move(streams[at])));
  }
  return mesh;
}

Mesh::Mesh(const Seat& seat, const MeshOptions& options, net::Wake wake)
    : seat_(seat), options_(options), reported_(static_cast<size_t>(seat.size)), wake_(std::move(wake)) {
  common_.rank = seat.rank;
  common_.epoch = seat.epoch;
  common_.group = seat.group;
  common_.chunk = options.chunk;
  common_.checksum = options.checksum;
  links_.resize(static_cast<size_t>(seat.size));
}

Link& Mesh::link(int peer) {
  HORO_CHECK(peer >= 0 && peer < seat_.size && peer != seat_.rank, "messages are between two members");
  return *links_[static_cast<size_t>(peer)];
}

void Mesh::begin(uint64_t number, const Signature& signature) {
  HORO_CHECK(idle(), "begin() while transfers of the last operation are posted");
  HORO_CHECK(number >= common_.number, "operations are numbered upwards");
  common_.number = number;
  common_.signature = signature;
  common_.refused_by_peer = common_.failed = false;
  for (auto& link : links_) {
    if (link != nullptr) link->begin();
  }
}

void Mesh::send(int peer, std::span<const std::byte> data) { link(peer).send(data); }

void Mesh::receive(int peer, size_t bytes, const Placement& placement) {
  HORO_CHECK(placement.combine == nullptr || bytes % placement.element_bytes == 0, "whole elements are combined");
  link(peer).receive(bytes, placement);
}

bool Mesh::idle() const {
  return std::all_of(links_.begin(), links_.end(), [](auto& link) { return link == nullptr || link->idle(); });
}

Status Mesh::progress(bool& moved) {
  if (revoked_.load(std::memory_order_acquire)) {
    return {Code::kStopped, text("the group was revoked on rank ", seat_.rank)};
  }
  // From the next higher rank around, so that no peer is served first by everybody.
  for (int step = 1; step < seat_.size; ++step) {
    HORO_TRY(links_[static_cast<size_t>((seat_.rank + step) % seat_.size)]->progress(moved));
  }
  return {};
}

Status Mesh::poke() {
  bool moved = false;
  Status status = progress(moved);
  return status.ok() ? status : failed(std::move(status));
}

Status Mesh::wait(Deadline deadline) {
  Time quiet_since{};
  bool quiet = false;
  while (true) {
    bool moved = false;
    Status status = progress(moved);
    if (!status.ok()) return failed(std::move(status));
    if (idle()) return {};
    const Time now = Clock::now();
    if (deadline.expired(now)) {
      return failed(
          Status(Code::kTimeout, text("rank ", seat_.rank, " waited too long for ", waited_for(), " in operation ",
                                      common_.number, " (", common_.signature.to_string(), ")"))
              .with_operation(common_.number));
    }
    if (moved) {
      quiet = false;
      continue;
    }
    if (!std::exchange(quiet, true)) quiet_since = now;
    if (now - quiet_since < options_.policy.spin) {
      cpu_pause();
    } else if (now - quiet_since < options_.policy.awake) {
      sched_yield();
    } else if (status = sleep(now, deadline); !status.ok()) {
      return failed(std::move(status));
    }
  }
}

Status Mesh::refuse(uint64_t number, const Status& why) {
  begin(number, common_.signature);
  return failed(why.with_operation(number));
}

void Mesh::revoke() {
  revoked_.store(true, std::memory_order_release);
  wake_.signal();
}

/// Nobody drives the wires when the operation is over, so what others wait for must have left by then. False when it
/// has not at the deadline, or when the group ends.
bool Mesh::flush(Deadline deadline) {
  while (true) {
    bool moved = false;
    items_.clear();
    for (auto& link : links_) {
      if (link != nullptr && !link->flush(moved)) link->watch(items_);
    }
    if (items_.empty()) return true;
    if (deadline.expired() || revoked_.load(std::memory_order_acquire)) return false;
    if (moved) continue;
    Deadline look = deadline;
    if (items_.size() > kMostWatched) {
      items_.resize(kMostWatched);
      look = look.earlier(Deadline::after(kTurn));
    }
    items_.push_back({wake_.fd(), net::Interest::kRead});
    if (!net::poll_many(items_, look).ok()) return false;
  }
}

/// Forgets what is posted, and tells those who must know.
Status Mesh::failed(Status status) {
  const bool concerns_all = status.code() == Code::kMismatch || status.code() == Code::kUnavailable;
  const bool tell = (concerns_all || status.code() == Code::kCorrupt) && !common_.refused_by_peer;
  common_.failed = true;
  for (auto& link : links_) {
    if (link == nullptr) continue;
    link->abandon();
    if (tell) link->refuse(status);
  }
  const bool flushed = flush(tell ? Deadline::after(kTellLimit) : Deadline::after_seconds(0));
  if (tell && !flushed) {
    // Of a group that is revoked somebody else knows why.
    const Code why = revoked_.load(std::memory_order_acquire) ? Code::kStopped : Code::kTimeout;
    status = Status(why, text("rank ", seat_.rank, " cannot tell all others: ", status.message()))
                 .with_operation(common_.number);
  }
  for (int peer : status.lost()) {
    if (options_.watcher == nullptr || reported_[static_cast<size_t>(peer)]) continue;
    reported_[static_cast<size_t>(peer)] = true;
    options_.watcher->found_dead(peer);
  }
  return status;
}

Status Mesh::sleep(Time now, Deadline deadline) {
  deadline = deadline.earlier(probe(now));
  items_.clear();
  for (auto& link : links_) {
    if (link != nullptr && !link->idle()) link->watch(items_);
  }
  for (auto& link : links_) {
    if (link != nullptr && link->idle()) link->watch(items_);
  }
  if (items_.size() > kMostWatched) {
    first_item_ = (first_item_ + kMostWatched) % items_.size();
    std::rotate(items_.begin(), items_.begin() + static_cast<ptrdiff_t>(first_item_), items_.end());
    items_.resize(kMostWatched);
    deadline = deadline.earlier(Deadline(now + kTurn));
  }
  items_.push_back({wake_.fd(), net::Interest::kRead});
  HORO_TRY(net::poll_many(items_, deadline, options_.on_signal).status());
  // Also when nothing is ready: what came encrypted, together with what was read last, shows in no descriptor.
  for (auto& link : links_) {
    if (link != nullptr && link->idle()) HORO_TRY(link->listen());
  }
  return {};
}

/// Names the peers that have not moved for long to the watcher. Until when there is nothing more to tell.
Deadline Mesh::probe(Time now) {
  Deadline next;
  for (int peer = 0; peer < seat_.size; ++peer) {
    Link* link = links_[static_cast<size_t>(peer)].get();
    if (link == nullptr || link->idle()) continue;
    if (std::exchange(link->moved_since_look, false)) {
      link->quiet_since = now;
      link->probe_at = now + kProbeAfter;
    }
    if (now >= link->probe_at) {
      link->probe_at = now + kProbeAfter;
      if (options_.watcher != nullptr) options_.watcher->waiting_for(peer, link->quiet_since);
    }
    next = next.earlier(Deadline(link->probe_at));
  }
  return next;
}

std::string Mesh::waited_for() const {
  std::vector<int> peers;
  for (int peer = 0; peer < seat_.size; ++peer) {
    const Link* link = links_[static_cast<size_t>(peer)].get();
    if (link != nullptr && !link->idle()) peers.push_back(peer);
  }
  return ranks_text(peers);
}

}  // namespace horo::transport::tcp
