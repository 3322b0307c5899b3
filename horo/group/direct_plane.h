// The plane of a group whose members all share memory.
#pragma once

#include <atomic>

#include "horo/collective/direct/protocol.h"
#include "horo/group/plane.h"
#include "horo/transport/space.h"

namespace horo::group {

class DirectPlane : public Plane, public DeviceBoard {
 public:
  DirectPlane(transport::Space space, const collective::direct::Thresholds& thresholds, uint8_t table_version);

  std::string_view transport_name() const override { return protocol_.space().transport_name; }
  std::string_view algorithm_name() const override { return "direct"; }
  Status run(const Job& job) override;
  void revoke(const std::vector<int>& gone) override { protocol_.space().page.revoke(gone); }
  std::vector<int> gone() const override { return protocol_.space().page.evicted(); }

  DeviceBoard* device_board() override { return this; }
  bool advance(uint64_t count) override;
  bool all_at(uint64_t count) const override;
  void freeze() override { revoke({}); }

  /// Frozen words say the same to everybody.
  bool decides_alone() const override { return true; }
  uint64_t held() const override { return completed_.load(std::memory_order_acquire); }
  std::span<const std::byte> retained(uint64_t) const override { return {}; }
  Status accept(const Job& job, std::span<const std::byte> served) override;

 private:
  collective::direct::Protocol protocol_;
  const transport::WaitPolicy policy_;
  const uint8_t table_version_;
  std::atomic<uint64_t> completed_{0};
  /// After a meeting that not everybody came to, this member must not arrive again: a slower one may still be reading
  /// what was brought to the meeting before, in the place that the next arrival would overwrite.
  bool over_ = false;
};

}  // namespace horo::group
