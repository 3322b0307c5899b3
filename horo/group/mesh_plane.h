// The plane of a group whose members exchange messages.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "horo/collective/algorithm.h"
#include "horo/collective/executor.h"
#include "horo/collective/table.h"
#include "horo/group/plane.h"
#include "horo/transport/mesh.h"

namespace horo::group {

/// Chooses the algorithm of an operation: a pure function, equal on all members.
using Chooser = std::function<Result<const collective::Algorithm*>(const collective::Operation&)>;

/// Results stay in staging until the next operation but one that succeeds, so that a member that a loss kept from
/// finishing can be served: completing operation k + 1 proves that all members completed k. Operations whose result
/// does not prove that all members came are confirmed by all before anybody succeeds.
class MeshPlane : public Plane {
 public:
  MeshPlane(std::unique_ptr<transport::Mesh> mesh, collective::Shape shape, const collective::Table& table,
            Chooser chooser);

  std::string_view transport_name() const override { return mesh_->transport_name(); }
  std::string_view algorithm_name() const override { return algorithm_; }
  Ways ways() const override { return Ways::kAlgorithms; }
  Status run(const Job& job) override;
  void revoke(const std::vector<int>& gone) override;
  std::vector<int> gone() const override;

  /// The wires, for a plane that is built on this one.
  transport::Mesh& mesh() { return *mesh_; }
  /// In place of run(), where this member cannot: the operation fails on all of them.
  Status refuse(const Job& job, const Status& why);

  bool decides_alone() const override { return false; }
  uint64_t held() const override { return held_.load(std::memory_order_acquire); }
  std::span<const std::byte> retained(uint64_t operation) const override;
  Status accept(const Job& job, std::span<const std::byte> served) override;

 private:
  struct Staging {
    std::atomic<uint64_t> operation{0};  ///< The control thread looks here while the next operation begins there.
    size_t result_bytes = 0;             ///< Of a replicated result, at the beginning of `work`.
    std::unique_ptr<std::byte[]> work;
    size_t capacity = 0;
  };
  /// A member that a loss leaves without a result can be served by another that the loss leaves and that has the same;
  /// of two it leaves one.
  bool may_serve(const collective::Operation& operation) const { return mesh_->size() > 2 && operation.replicates(); }
  Result<const collective::Plan*> plan_for(const collective::Operation& operation);
  /// Results that may have to be served are staged. Others are made in the output: after a failure that means nothing
  /// if it is not the input, and if it is, what it held is put back.
  /// kUnavailable when there is no memory.
  Result<collective::Buffers> buffers(const Job& job, const collective::Plan& plan);
  Status noting_lost(const Status& status);

  const std::unique_ptr<transport::Mesh> mesh_;
  const collective::Shape shape_;
  const collective::Table table_;
  const Chooser chooser_;
  collective::Executor executor_;
  std::string_view algorithm_ = "none";

  /// Plans of the last few different operations.
  std::deque<std::pair<collective::Operation, collective::Plan>> plans_;
  std::array<Staging, 2> staging_;
  uint64_t turn_ = 0;  ///< Operations that succeeded: which staging is next.
  std::unique_ptr<std::byte[]> scratch_;
  size_t scratch_capacity_ = 0;
  std::atomic<uint64_t> held_{0};
  bool over_ = false;  ///< What is retained must stay: a slower member may still need it.

  mutable std::mutex mutex_;
  std::vector<int> gone_;
};

}  // namespace horo::group
