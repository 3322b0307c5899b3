// The plane of a group whose operations run on somebody else's fabric: scaling here, the rest there.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "horo/group/fabric.h"
#include "horo/group/plane.h"

namespace horo::group {

/// What horo promises about lost members does not hold here: an operation that waits for one ends when the fabric's own
/// launcher ends the job.
class FabricPlane : public Plane {
 public:
  FabricPlane(std::string_view transport, std::unique_ptr<FabricGroup> group, std::vector<int> ranks, int member)
      : transport_(transport),
        group_(std::move(group)),
        ranks_(std::move(ranks)),
        member_(member),
        size_(static_cast<int>(ranks_.size())) {}

  std::string_view transport_name() const override { return transport_; }
  std::string_view algorithm_name() const override { return transport_; }
  Status run(const Job& job) override;
  void revoke(const std::vector<int>&) override { revoked_ = true; }
  std::vector<int> gone() const override { return {}; }
  bool decides_alone() const override { return true; }
  uint64_t held() const override { return 0; }
  std::span<const std::byte> retained(uint64_t) const override { return {}; }
  Status accept(const Job&, std::span<const std::byte>) override { return {}; }

 private:
  /// kMismatch on all members where they came with different calls: a fabric would hang then, or mix up bytes. Costs a
  /// reduction of a few words, and is a barrier.
  Status agree(uint64_t number, const transport::Signature& mine);
  Status tell_apart(uint64_t number, const transport::Signature& mine);
  Status refused_by(int member) const;
  Status run_scaled(const Job& job, const std::byte* in);

  const std::string transport_;
  const std::unique_ptr<FabricGroup> group_;
  const std::vector<int> ranks_;
  const int member_;
  const int size_;
  std::atomic<bool> revoked_{false};
};

}  // namespace horo::group
