// One lane between hosts as a mesh of its own: its members are the lane's drivers, in host order.
#pragma once

#include "horo/group/levels.h"
#include "horo/transport/mesh.h"

namespace horo::group {

/// A view of the group's mesh, which outlives it. What it reports as lost are members of the group.
class LaneMesh final : public transport::Mesh {
 public:
  LaneMesh(transport::Mesh& mesh, const Levels& levels) : mesh_(mesh), levels_(levels) {}

  int rank() const override { return static_cast<int>(levels_.host); }
  int size() const override { return static_cast<int>(levels_.hosts()); }
  std::string_view transport_name() const override { return mesh_.transport_name(); }
  void begin(uint64_t number, const transport::Signature& signature) override { mesh_.begin(number, signature); }
  void send(int host, std::span<const std::byte> data) override { mesh_.send(peer(host), data); }
  void receive(int host, size_t bytes, const transport::Placement& placement) override {
    mesh_.receive(peer(host), bytes, placement);
  }
  Status poke() override { return mesh_.poke(); }
  Status wait(Deadline deadline) override { return mesh_.wait(deadline); }
  /// On all members of the group.
  Status refuse(uint64_t number, const Status& why) override { return mesh_.refuse(number, why); }
  void revoke() override { mesh_.revoke(); }

 private:
  int peer(int host) const { return levels_.driver(static_cast<size_t>(host), levels_.place); }

  transport::Mesh& mesh_;
  const Levels& levels_;
};

/// Rounds in which member r tells r + 1, r + 2, r + 4, ...: who passes has heard, by way of others, from everybody.
inline Status confirm(transport::Mesh& mesh, Deadline deadline) {
  const int size = mesh.size();
  for (int distance = 1; distance < size; distance *= 2) {
    const std::byte told{1};
    std::byte heard{};
    mesh.send((mesh.rank() + distance) % size, {&told, 1});
    mesh.receive((mesh.rank() + size - distance) % size, 1, {.into = &heard});
    HORO_TRY(mesh.wait(deadline));
  }
  return {};
}

}  // namespace horo::group
