// The plane of a group that spans hosts and has several members on one of them: shared memory within a host, messages
// between hosts (docs/failure.md, "Across hosts").
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "horo/base/text.h"
#include "horo/collective/direct/protocol.h"
#include "horo/collective/executor.h"
#include "horo/collective/selector.h"
#include "horo/group/lane_mesh.h"
#include "horo/group/levels.h"
#include "horo/group/mesh_plane.h"
#include "horo/group/plane.h"
#include "horo/transport/space.h"

namespace horo::group {

/// What the members of this host share.
struct HostMemory {
  transport::Space space;
  std::unique_ptr<transport::Watcher> watcher;  ///< Of the space.
  /// Behind everybody's staging: room for words, then two slots of `slot_bytes`. By place on the host.
  std::vector<const std::byte*> keeps;
  std::span<std::byte> own_keep;
  uint64_t slot_bytes = 0;
  /// Makes the first `bytes` of a part of own_keep real memory, of which `already` are.
  std::function<Status(std::span<std::byte> part, uint64_t bytes, uint64_t already)> commit;

  static constexpr uint64_t kWords = 4096;
  static uint64_t keep_bytes(uint64_t slot_bytes) { return kWords + 2 * slot_bytes; }
};

/// An operation passes through the host (1), the lanes (2) and the host again (3):
///   1. Members bring what they give into shared memory, and meet; sums are made by the drivers of the lanes.
///   2. Drivers exchange with those of the other hosts, into their slots.
///   3. Members meet again. Then the result lies in the slots of this host, in memory that outlives its owners.
/// Results that differ between members are confirmed between hosts before anybody writes the caller's memory (4).
///
/// A slot stays as it is until the next operation but one that succeeded, so that what this host holds can be served to
/// members elsewhere, as with MeshPlane. What cannot pass in two levels runs on the mesh; members of a host meet before
/// that, too, for one of them may think otherwise.
class HierarchyPlane : public Plane {
 public:
  HierarchyPlane(HostMemory host, std::unique_ptr<MeshPlane> mesh, const Levels& levels, const collective::Table& table,
                 const collective::Forced& forced);

  std::string_view transport_name() const override { return "shm+tcp"; }
  std::string_view algorithm_name() const override { return algorithm_; }
  Ways ways() const override { return Ways::kLevelsAndAlgorithms; }
  Status run(const Job& job) override;
  void revoke(const std::vector<int>& gone) override;
  std::vector<int> gone() const override;

  bool decides_alone() const override { return false; }
  uint64_t held() const override { return std::max(held_.load(std::memory_order_acquire), mesh_->held()); }
  std::span<const std::byte> retained(uint64_t operation) const override;
  Status accept(const Job& job, std::span<const std::byte> served) override;

 private:
  using Call = collective::direct::Call;
  /// A part of a result, where it lies on this host.
  struct Piece {
    const std::byte* from = nullptr;
    uint64_t bytes = 0;
    uint64_t at = 0;  ///< In the result.
  };
  struct Kept {
    uint64_t operation = 0;
    bool whole = false;  ///< The pieces are the result of everybody, and not of this member alone.
    std::vector<Piece> pieces;
  };

  bool wants_two_levels(const collective::Operation& operation) const;
  Status pass(const Job& job, const Call& call);
  Status run_on_mesh(const Job& job, const Call& call);
  Status with_mesh(const Job& job, const std::function<Status(const Job&)>& act);

  // Phase 1.
  Status bring(const Job& job, const Call& call);
  Status bring_sums(const Job& job, const Call& call);
  uint64_t own_slot_bytes(const collective::Operation& operation) const;
  Status reduce_in_host(const Call& call, const collective::Operation& operation, collective::Run run,
                        const std::byte* in, std::byte* out);
  /// Tells the other hosts that operation `call` fails here: `why`, unless they cannot be told.
  Status refuse_elsewhere(const Call& call, const Status& why);

  // Phase 2.
  Status cross(const Job& job, const Call& call);
  Status cross_by_plan(const Job& job, int lanes);
  Status cross_blocks(const Job& job);
  Result<const collective::Plan*> plan_for(const collective::Operation& operation, int lanes);

  // Phases 3 and 4.
  Status close(const Call& call, const Status& mine);
  std::vector<Piece> pieces_of(const collective::Operation& operation) const;
  void append_reduced_block(const collective::Operation& operation, std::vector<Piece>& pieces) const;
  void append_blocks(const collective::Operation& operation, std::vector<Piece>& pieces) const;
  void keep(const Job& job);
  void deliver(const Job& job, const Kept& kept) const;

  Status noting_lost(const Status& status);
  /// Elements of what a lane's driver has in hand.
  std::byte* own_slot() const { return host_.own_keep.data() + HostMemory::kWords + (turn_ & 1) * host_.slot_bytes; }
  const std::byte* slot_of(int place) const {
    return host_.keeps[static_cast<size_t>(place)] + HostMemory::kWords + (turn_ & 1) * host_.slot_bytes;
  }
  Status commit_slot(uint64_t bytes);
  Result<const std::byte*> prescaled(const Job& job);
  int lanes_of(const collective::Operation& operation) const { return levels_.lanes_for(operation.total_bytes()); }

  HostMemory host_;  ///< Its space has moved on to the protocol.
  const std::unique_ptr<MeshPlane> mesh_;
  const Levels levels_;
  const collective::Table table_;  ///< For lanes: they reduce in host order, however many there are.
  const collective::Forced forced_;
  collective::direct::Protocol protocol_;
  const transport::WaitPolicy policy_;
  LaneMesh lane_;
  collective::Executor executor_;
  std::string_view algorithm_ = "none";
  std::unique_ptr<std::byte[]> disguised_;  ///< The result of with_mesh() for whom it is an allreduce.

  /// Plans of the last few different operations in the lanes.
  std::deque<std::pair<collective::Operation, collective::Plan>> plans_;
  /// Memory that grows and is written before it is read.
  struct Scratch {
    std::unique_ptr<std::byte[]> memory;
    size_t capacity = 0;
    Status ensure(size_t bytes) {
      if (bytes <= capacity) return {};
      capacity = 0;
      memory.reset();
      memory.reset(new (std::nothrow) std::byte[bytes]);
      if (memory == nullptr) return {Code::kUnavailable, text("no memory for ", bytes_text(bytes))};
      capacity = bytes;
      return {};
    }
  };
  Scratch scratch_, scaled_;
  std::array<uint64_t, 2> committed_{};  ///< Of the slots.
  uint64_t turn_ = 0;                    ///< Operations that passed in two levels: which slot is next.
  std::array<Kept, 2> kept_;
  std::atomic<uint64_t> held_{0};
  bool over_ = false;

  mutable std::mutex mutex_;
  std::vector<int> gone_;
  /// A result in one piece, to be served: put together when it is first asked for, or served to this member.
  mutable std::vector<std::byte> whole_;
  mutable uint64_t whole_operation_ = 0;
};

}  // namespace horo::group
