#include "horo/transport/inproc/mesh.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "horo/base/text.h"

namespace horo::transport {

class InprocMesh final : public Mesh {
 public:
  InprocMesh(InprocFabric& fabric, int rank, int size)
      : fabric_(fabric), rank_(rank), size_(size), receives_(static_cast<size_t>(size)) {}
  ~InprocMesh() override { abandon(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view transport_name() const override { return "inproc"; }
  void begin(uint64_t number, const Signature& signature) override;
  void send(int peer, std::span<const std::byte> data) override;
  void receive(int peer, size_t bytes, const Placement& placement) override;
  Status poke() override;
  Status wait(Deadline deadline) override;
  Status refuse(uint64_t number, const Status& why) override;
  void revoke() override;

 private:
  using Fabric = InprocFabric;
  struct Receive {
    size_t bytes = 0;
    Placement placement;
  };
  struct Sent {
    int peer = 0;
    Fabric::Message message;
  };

  Status progress();
  Status receive_from(int peer);
  Result<Fabric::Message*> take(int peer, const Receive& receive);
  Status refuse(int peer, const Receive& receive, Fabric::Message& message);
  Status check_sends();
  Status check_refusals();
  Status failed(Status status);
  void abandon();
  bool idle() const { return pending_receives_ == 0 && sent_.empty(); }
  Status peer_lost(int peer) const;
  std::string waited_for() const;

  InprocFabric& fabric_;
  const int rank_;
  const int size_;
  uint64_t number_ = 0;
  Signature signature_;
  std::vector<std::deque<Receive>> receives_;  ///< By peer.
  size_t pending_receives_ = 0;
  std::deque<Sent> sent_;  ///< Addresses are stable: the wires point at the messages in here.
  std::atomic<bool> revoked_{false};
};

void InprocMesh::begin(uint64_t number, const Signature& signature) {
  HORO_CHECK(idle(), "begin() while transfers of the last operation are posted");
  number_ = number;
  signature_ = signature;
}

void InprocMesh::send(int peer, std::span<const std::byte> data) {
  HORO_CHECK(peer >= 0 && peer < size_ && peer != rank_, "a message goes to another member");
  std::lock_guard lock(fabric_.mutex_);
  auto& sent = sent_.emplace_back(Sent{peer, {number_, signature_, data, Fabric::State::kPosted, {}}});
  fabric_.wire(rank_, peer).messages.push_back(&sent.message);
  fabric_.ring(peer);
}

void InprocMesh::receive(int peer, size_t bytes, const Placement& placement) {
  HORO_CHECK(peer >= 0 && peer < size_ && peer != rank_, "a message comes from another member");
  receives_[static_cast<size_t>(peer)].push_back({bytes, placement});
  ++pending_receives_;
}

Status InprocMesh::poke() {
  Status status = progress();
  return status.ok() ? status : failed(std::move(status));
}

Status InprocMesh::wait(Deadline deadline) {
  auto& bell = fabric_.bells_[static_cast<size_t>(rank_)];
  while (true) {
    uint64_t seen = 0;
    {
      std::lock_guard lock(fabric_.mutex_);
      seen = bell.rings;
    }
    Status status = progress();
    if (!status.ok()) return failed(std::move(status));
    if (idle()) return {};
    std::unique_lock lock(fabric_.mutex_);
    auto rung = [&] { return bell.rings != seen; };
    bool woken = true;
    if (deadline.is_never()) {
      bell.rung.wait(lock, rung);
    } else {
      woken = bell.rung.wait_until(lock, deadline.at(), rung);
    }
    lock.unlock();
    if (!woken) {
      return failed({Code::kTimeout, text("rank ", rank_, " waited too long for ", waited_for(), " in operation ",
                                          number_, " (", signature_.to_string(), ")")});
    }
  }
}

Status InprocMesh::refuse(uint64_t number, const Status& why) {
  begin(number, signature_);
  const Status told = why.with_operation(number);
  std::lock_guard lock(fabric_.mutex_);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    fabric_.wire(rank_, peer).refused.emplace(number, told);
    fabric_.ring(peer);
  }
  return told;
}

void InprocMesh::revoke() {
  revoked_.store(true);
  std::lock_guard lock(fabric_.mutex_);
  fabric_.ring(rank_);
}

Status InprocMesh::progress() {
  // From the next higher rank around, so that no peer is served first by everybody.
  for (int step = 1; step < size_; ++step) HORO_TRY(receive_from((rank_ + step) % size_));
  if (revoked_.load()) return {Code::kStopped, text("the group was revoked on rank ", rank_)};
  HORO_TRY(check_refusals());
  return check_sends();
}

Status InprocMesh::receive_from(int peer) {
  auto& receives = receives_[static_cast<size_t>(peer)];
  while (!receives.empty()) {
    if (revoked_.load()) return {Code::kStopped, text("the group was revoked on rank ", rank_)};
    const Receive& receive = receives.front();
    HORO_ASSIGN(Fabric::Message * message, take(peer, receive));
    if (message == nullptr) return {};
    const Placement& place = receive.placement;
    if (place.undo != nullptr) place.undo->keep(place.into, receive.bytes);
    if (place.combine != nullptr) {
      place.combine(place.into, place.with, message->data.data(), receive.bytes / place.element_bytes);
    } else if (receive.bytes > 0) {
      kernel::copy(place.into, message->data.data(), receive.bytes);
    }
    std::lock_guard lock(fabric_.mutex_);
    message->state = Fabric::State::kDone;
    fabric_.ring(peer);
    receives.pop_front();
    --pending_receives_;
  }
  return {};
}

/// The message that meets `receive`, now marked as taken; null when it has not been posted yet.
Result<InprocFabric::Message*> InprocMesh::take(int peer, const Receive& receive) {
  std::lock_guard lock(fabric_.mutex_);
  auto& wire = fabric_.wire(peer, rank_);
  if (wire.ended) return peer_lost(peer);
  while (!wire.messages.empty() && wire.messages.front()->number < number_) {
    wire.messages.front()->state = Fabric::State::kDone;
    wire.messages.pop_front();
    fabric_.ring(peer);
  }
  if (wire.messages.empty() || wire.messages.front()->number > number_) {
    return static_cast<Fabric::Message*>(nullptr);
  }
  Fabric::Message* message = wire.messages.front();
  wire.messages.pop_front();
  if (message->signature != signature_ || message->data.size() != receive.bytes) {
    return refuse(peer, receive, *message);
  }
  message->state = Fabric::State::kTaken;
  return message;
}

Status InprocMesh::refuse(int peer, const Receive& receive, Fabric::Message& message) {
  std::string differ = message.signature != signature_
                           ? text("rank ", rank_, " runs ", signature_.beside(message.signature), ", rank ", peer,
                                  " runs ", message.signature.beside(signature_))
                           : text("rank ", rank_, " expects ", receive.bytes, " bytes from rank ", peer,
                                  ", which sent ", message.data.size());
  message.refusal = Status(Code::kMismatch, text("the ranks disagree about operation ", number_, ": ", differ,
                                                 "; call the same operations in the same order on all ranks"))
                        .with_operation(number_);
  message.state = Fabric::State::kRefused;
  fabric_.ring(peer);
  return message.refusal;
}

Status InprocMesh::check_refusals() {
  std::lock_guard lock(fabric_.mutex_);
  for (int peer = 0; peer < size_ && !idle(); ++peer) {
    auto& refused = fabric_.wire(peer, rank_).refused;
    refused.erase(refused.begin(), refused.lower_bound(number_));
    if (const auto found = refused.find(number_); found != refused.end()) return found->second;
  }
  return {};
}

Status InprocMesh::check_sends() {
  std::lock_guard lock(fabric_.mutex_);
  for (const Sent& sent : sent_) {
    if (sent.message.state == Fabric::State::kRefused) return sent.message.refusal;
    if (sent.message.state == Fabric::State::kPosted && fabric_.wire(rank_, sent.peer).ended) {
      return peer_lost(sent.peer);
    }
  }
  while (!sent_.empty() && sent_.front().message.state == Fabric::State::kDone) sent_.pop_front();
  return {};
}

Status InprocMesh::failed(Status status) {
  abandon();
  return status;
}

/// Withdraws what was posted. A message that a peer is copying right now is waited for: the peer reads our memory, and
/// is busy for no longer than that copy takes.
void InprocMesh::abandon() {
  for (auto& receives : receives_) receives.clear();
  pending_receives_ = 0;
  std::unique_lock lock(fabric_.mutex_);
  for (Sent& sent : sent_) {
    if (sent.message.state == Fabric::State::kPosted) {
      auto& messages = fabric_.wire(rank_, sent.peer).messages;
      messages.erase(std::remove(messages.begin(), messages.end(), &sent.message), messages.end());
    }
  }
  auto& bell = fabric_.bells_[static_cast<size_t>(rank_)];
  bell.rung.wait(lock, [&] {
    return std::none_of(sent_.begin(), sent_.end(),
                        [](const Sent& sent) { return sent.message.state == Fabric::State::kTaken; });
  });
  sent_.clear();
}

Status InprocMesh::peer_lost(int peer) const {
  return Status(Code::kPeerLost, text("the wire from rank ", rank_, " to rank ", peer, " ended in operation ", number_))
      .with_lost({peer});
}

std::string InprocMesh::waited_for() const {
  std::vector<int> peers;
  for (int peer = 0; peer < size_; ++peer) {
    bool sending = std::any_of(sent_.begin(), sent_.end(), [&](const Sent& sent) { return sent.peer == peer; });
    if (sending || !receives_[static_cast<size_t>(peer)].empty()) peers.push_back(peer);
  }
  return ranks_text(peers);
}

InprocFabric::InprocFabric(int size)
    : size_(size), wires_(static_cast<size_t>(size * size)), bells_(static_cast<size_t>(size)) {
  HORO_CHECK(size > 0, "a group has members");
  for (int rank = 0; rank < size; ++rank) meshes_.push_back(std::make_unique<InprocMesh>(*this, rank, size));
}

InprocFabric::~InprocFabric() = default;

Mesh& InprocFabric::mesh(int rank) { return *meshes_.at(static_cast<size_t>(rank)); }

void InprocFabric::ring(int rank) {
  Bell& bell = bells_[static_cast<size_t>(rank)];
  ++bell.rings;
  bell.rung.notify_all();
}

void InprocFabric::end_wires(int rank, int peer) {
  std::lock_guard lock(mutex_);
  wire(rank, peer).ended = true;
  wire(peer, rank).ended = true;
  ring(rank);
  ring(peer);
}

void InprocFabric::drop(int rank) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank) end_wires(rank, peer);
  }
}

void InprocFabric::cut(int rank, int peer) { end_wires(rank, peer); }

}  // namespace horo::transport
