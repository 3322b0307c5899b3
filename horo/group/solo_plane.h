// The plane of a group of one: nobody to talk to.
#pragma once

#include <atomic>

#include "horo/group/plane.h"

namespace horo::group {

class SoloPlane : public Plane, private DeviceBoard {
 public:
  std::string_view transport_name() const override { return "none"; }
  std::string_view algorithm_name() const override { return "none"; }
  Status run(const Job& job) override;
  void revoke(const std::vector<int>&) override { revoked_ = true; }
  std::vector<int> gone() const override { return {}; }
  DeviceBoard* device_board() override { return this; }
  bool decides_alone() const override { return true; }
  uint64_t held() const override { return 0; }
  std::span<const std::byte> retained(uint64_t) const override { return {}; }
  Status accept(const Job&, std::span<const std::byte>) override { return {}; }

 private:
  bool advance(uint64_t count) override {
    if (revoked_) return false;
    count_ = count;
    return true;
  }
  bool all_at(uint64_t count) const override { return count_ >= count; }
  void freeze() override { revoked_ = true; }

  std::atomic<bool> revoked_{false};
  std::atomic<uint64_t> count_{0};  ///< How far the device's queue has come.
};

}  // namespace horo::group
