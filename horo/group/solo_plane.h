// The plane of a group of one: nobody to talk to.
#pragma once

#include <atomic>

#include "horo/group/plane.h"

namespace horo::group {

class SoloPlane : public Plane {
 public:
  std::string_view transport_name() const override { return "none"; }
  std::string_view algorithm_name() const override { return "none"; }
  Status run(const Job& job) override;
  void revoke(const std::vector<int>&) override { revoked_ = true; }
  std::vector<int> gone() const override { return {}; }
  bool decides_alone() const override { return true; }
  uint64_t held() const override { return 0; }
  std::span<const std::byte> retained(uint64_t) const override { return {}; }
  Status accept(const Job&, std::span<const std::byte>) override { return {}; }

 private:
  std::atomic<bool> revoked_{false};
};

}  // namespace horo::group
