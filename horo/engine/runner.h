// Runs one batch: puts tensors together, runs the operation, hands the results out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "horo/base/status.h"
#include "horo/engine/adasum.h"
#include "horo/engine/carrier.h"
#include "horo/engine/mover.h"
#include "horo/engine/observation.h"
#include "horo/engine/submission.h"
#include "horo/engine/tensor.h"
#include "horo/engine/tuning.h"

namespace horo::engine {

/// One tensor of a batch. `call` and `output` are null where this rank has joined and gives nothing.
struct Piece {
  const Tensor* tensor = nullptr;
  Call* call = nullptr;
  TensorResult* output = nullptr;
};

/// What a batch is made of: the agreed units, and this rank's submissions for them (null: joined).
struct Work {
  std::vector<UnitPtr> units;
  std::vector<Handle> submissions;
  /// Without units: what the submissions are told once every member has come so far. A rank that is told may end, and
  /// the others would find it gone before they hear the same.
  Status verdict;
  int64_t answer = 0;
  bool ends = false;    ///< Without units: the verdict ends the set.
  uint64_t number = 0;  ///< Counts the batches of the set, the same on all members.
  Ways ways = {};
};

/// Used by one thread at a time.
class Runner {
 public:
  Runner(Carrier& carrier, Scratch& scratch, const Observation& observation = {},
         std::shared_ptr<device::Source> devices = nullptr)
      : carrier_(carrier), scratch_(scratch), observation_(observation), mover_(std::move(devices)) {}

  /// One status per unit. What cannot be put together (a group of several dtypes) is run one after the other, the same
  /// way on all members.
  std::vector<Status> run(Work& work);

  /// For a batch on a device that is run in one piece.
  struct Flying {
    /// The results have their shapes and places, and will be there when the event has happened. May come before the
    /// end.
    std::function<void(const device::EventHandle& results)> promised;
    /// The outcome of all units, on another thread; must not wait.
    std::function<void(const Status&)> landed;
  };
  /// The same, but what is on a device may be under way still when this returns nothing.
  std::optional<std::vector<Status>> start(Work& work, const Flying& flying);
  /// Until every member has come here.
  Status meet();

 private:
  using Pieces = std::vector<Piece>;
  Status run_pieces(Pieces& pieces);
  Status dispatch(Pieces& pieces);
  /// Finds out where the batch is, and lets the mover wait until it may be used.
  Status begin_moving(const Pieces& pieces);
  /// What devices have no kernels for: copied to the host, run there, and copied back.
  Status through_host(Pieces& pieces);
  /// Of a tensor that is not put together with others.
  Status carry_alone(collective::Operation operation, const Piece& piece, const std::byte* in);
  /// What was added to the mover is there. Like make_output(): if it fails this rank ends what the others run.
  Status moved();
  Status pack_summand(const Piece& piece, std::byte* to);
  Status allreduce(Pieces& pieces);
  Status allreduce_together(Pieces& pieces, const collective::Operation& operation);
  Status adasum(Pieces& pieces);
  Status combine_slices(const Pieces& pieces, Range slice, const std::vector<uint64_t>& counts,
                        std::span<std::byte> mine);
  Status broadcast(Pieces& pieces);
  Status allgather(Pieces& pieces);
  Status allgather_together(Pieces& pieces, const std::vector<uint64_t>& rows);
  Status alltoall(Piece& piece);
  Status reducescatter(Pieces& pieces);
  Status reducescatter_together(Pieces& pieces, const collective::Operation& operation);
  /// Scratch memory. Like make_output(): without it this rank ends what the others run.
  Result<std::span<std::byte>> room(int slot, uint64_t bytes);
  Status make_output(Piece& piece, std::vector<int64_t> shape);
  /// With what lies in memory of the mover, or of a tensor that may be used.
  Status carry(const collective::Operation& operation, const std::byte* in, std::byte* out,
               const device::Sequel& sequel = {});
  /// The same, of the last operation of a batch.
  Status carry_last(const collective::Operation& operation, const std::byte* in, std::byte* out,
                    const device::Sequel& sequel = {});
  /// Packs so that the operation waits for it, and this thread does not.
  Status packed(collective::Operation& operation);

  Status carry_observed(const collective::Operation& operation, const std::byte* in, std::byte* out);
  Observation::Doing packing() const { return {batch_, part_, "MEMCPY_IN_FUSION_BUFFER"}; }
  Observation::Doing unpacking() const { return {batch_, part_, "MEMCPY_OUT_FUSION_BUFFER"}; }

  /// What start() takes a batch apart with. Kept for the next one: small operations feel every allocation.
  struct Sorting {
    Pieces pieces;
    std::vector<size_t> owners;
    std::vector<bool> taken;
    std::vector<bool> overwritten;  ///< Units with an input that has its result now.
    Pieces together;                ///< Of the pieces, what is run now;
    std::vector<size_t> whose;      ///< their owners,
    std::vector<uint32_t> places;   ///< and places in the batch.
  };

  Carrier& carrier_;
  Scratch& scratch_;
  const Observation observation_;
  Mover mover_;
  const Flying* flying_ = nullptr;   ///< Set while a batch is run in one piece that may be under way at the end.
  bool is_under_way_ = false;        ///< It is.
  device::EventHandle before_ = {};  ///< When the last one that was has left the mover's memory.
  int last_device_ = 0;              ///< For what this rank has joined and has no tensor of.
  uint64_t batch_ = 0;               ///< The batch that is run.
  std::vector<uint32_t> part_;       ///< The places of it that are, if not all.
  Sorting sorting_;
};

/// Rows of each member when `rows` are scattered: the first ones have one more where they cannot be equal.
std::vector<uint64_t> shares(uint64_t rows, int members);

/// Fills memory with the element that changes nothing: 0 for a sum, 1 for a product, the largest for a minimum.
void fill_identity(std::byte* memory, uint64_t count, DType dtype, Reduction reduction);

}  // namespace horo::engine
