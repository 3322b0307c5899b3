// For tests: a mesh that belongs to somebody else, with something that happens before its waits.
#pragma once

#include <functional>
#include <utility>

#include "horo/transport/mesh.h"

namespace horo::transport {

class Interrupted final : public Mesh {
 public:
  /// `before_wait` gets the number of the wait, from 0 on; it may be empty.
  using BeforeWait = std::function<void(int wait)>;
  explicit Interrupted(Mesh& mesh, BeforeWait before_wait = {}) : mesh_(mesh), before_wait_(std::move(before_wait)) {}

  int rank() const override { return mesh_.rank(); }
  int size() const override { return mesh_.size(); }
  std::string_view transport_name() const override { return mesh_.transport_name(); }
  void begin(uint64_t number, const Signature& signature) override { mesh_.begin(number, signature); }
  void send(int peer, std::span<const std::byte> data) override { mesh_.send(peer, data); }
  void receive(int peer, size_t bytes, const Placement& placement) override { mesh_.receive(peer, bytes, placement); }
  Status poke() override { return mesh_.poke(); }
  Status wait(Deadline deadline) override {
    if (before_wait_) before_wait_(waits_);
    ++waits_;
    return mesh_.wait(deadline);
  }
  Status refuse(uint64_t number, const Status& why) override { return mesh_.refuse(number, why); }
  void revoke() override { mesh_.revoke(); }

  int waits() const { return waits_; }

 private:
  Mesh& mesh_;
  const BeforeWait before_wait_;
  int waits_ = 0;
};

}  // namespace horo::transport
