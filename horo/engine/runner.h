// Runs one batch: puts tensors together, runs the operation, hands the results out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "horo/base/status.h"
#include "horo/engine/adasum.h"
#include "horo/engine/carrier.h"
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
  std::vector<Unit> units;
  std::vector<Handle> submissions;
  Ways ways = {};
  /// Without units: what the submissions are told once every member has come so far. A rank that is told may end, and
  /// the others would find it gone before they hear the same.
  Status verdict;
  int64_t answer = 0;
};

/// Told what a runner does, for the timeline and the metrics. Called on the runner's thread.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin(const std::vector<Piece>& pieces, std::string_view activity) = 0;
  virtual void end(const std::vector<Piece>& pieces) = 0;
};

/// Used by one thread at a time.
class Runner {
 public:
  Runner(Carrier& carrier, Scratch& scratch, Observer* observer = nullptr)
      : carrier_(carrier), scratch_(scratch), observer_(observer) {}

  /// One status per unit. What cannot be put together (a group of several dtypes) is run one after the other, the same
  /// way on all members.
  std::vector<Status> run(Work& work);
  /// Until every member has come here.
  Status meet();

 private:
  using Pieces = std::vector<Piece>;
  Status run_class(Pieces& pieces);
  Status run_pieces(Pieces& pieces);
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
  Status carry(const Pieces& pieces, const collective::Operation& operation, const std::byte* in, std::byte* out);

  Carrier& carrier_;
  Scratch& scratch_;
  Observer* observer_;
};

/// Rows of each member when `rows` are scattered: the first ones have one more where they cannot be equal.
std::vector<uint64_t> shares(uint64_t rows, int members);

/// Fills memory with the element that changes nothing: 0 for a sum, 1 for a product, the largest for a minimum.
void fill_identity(std::byte* memory, uint64_t count, DType dtype, Reduction reduction);

}  // namespace horo::engine
