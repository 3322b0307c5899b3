// What is asked of a group, and what the group looks like: all that a plan depends on.
#pragma once

#include <cstdint>
#include <vector>

#include "horo/base/dtype.h"
#include "horo/base/status.h"
#include "horo/device/device.h"
#include "horo/kernel/reduce.h"
#include "horo/transport/signature.h"

namespace horo::collective {

using transport::Kind;

/// Which of several ways an operation takes, where whoever runs it has found one to be better than the usual. Equal on
/// all members, who notice if it is not (Signature). Never changes the bits that HORO_DETERMINISTIC promises.
struct Way {
  bool one_level = false;  ///< Over the wires between members, also where the members of a host share memory.
  uint8_t algorithm = 0;   ///< registry()[algorithm - 1], where it can run; 0: as the selector says.
  bool is_usual() const { return !one_level && algorithm == 0; }
  friend bool operator==(const Way&, const Way&) = default;
};

/// One collective operation as one member sees it. Counts are elements of `dtype`.
///
/// | kind          | input                  | output                 | count | counts                  |
/// |---------------|------------------------|------------------------|-------|-------------------------|
/// | allreduce     | count                  | count                  | yes   |                         |
/// | reduce        | count                  | count at the root      | yes   |                         |
/// | broadcast     | count at the root      | count                  | yes   |                         |
/// | reducescatter | sum of counts          | counts[rank]           |       | of every member         |
/// | allgather     | counts[rank]           | sum of counts          |       | of every member         |
/// | gather        | counts[rank]           | sum of counts at root  |       | of every member         |
/// | scatter       | sum of counts at root  | counts[rank]           |       | of every member         |
/// | alltoall      | sum of counts          | sum of receive_counts  |       | sent to every member    |
/// | sendrecv      | count at the root      | count at `target`      | yes   |                         |
/// | barrier       |                        |                        |       |                         |
struct Operation {
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kByte;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;    ///< Rooted kinds; the sender of a sendrecv.
  int target = 0;  ///< The receiver of a sendrecv.
  uint64_t count = 0;
  std::vector<uint64_t> counts;
  std::vector<uint64_t> receive_counts;  ///< Alltoall: received from every member.
  double prescale = 1.0;                 ///< Multiplies every input element before the reduction.
  double postscale = 1.0;                ///< Multiplies every reduced element.
  Way way;
  device::Where where = {};  ///< Of input and output. Planes only see operations on the host's memory.
  bool for_device = false;   ///< On the host's memory, as a step of an operation on devices.

  bool reduces() const { return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter; }
  /// Whether every member ends with the same data, so that any of them can serve it again to another.
  bool replicates() const {
    return kind == Kind::kAllreduce || kind == Kind::kBroadcast || kind == Kind::kAllgather || kind == Kind::kBarrier;
  }
  /// Elements of this member's result.
  uint64_t result_count(int rank) const;
  /// Elements of this member's input.
  uint64_t input_count(int rank) const;
  /// All elements of the operation; for an alltoall, those this member sends.
  uint64_t total() const;
  uint64_t total_bytes() const { return total() * size_of(dtype); }

  friend bool operator==(const Operation&, const Operation&) = default;
};

/// Where the members of a group are. Equal on all members.
class Shape {
 public:
  /// `host_of`: an index of the host of each rank.
  explicit Shape(std::vector<int> host_of);
  static Shape on_one_host(int ranks) { return Shape(std::vector<int>(static_cast<size_t>(ranks), 0)); }

  int ranks() const { return static_cast<int>(host_of_.size()); }
  /// Ranks of each host in rising order; hosts in the order of their lowest rank, whatever their index.
  const std::vector<std::vector<int>>& hosts() const { return hosts_; }
  /// Place of a rank's host in hosts().
  size_t host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  int most_per_host() const { return most_per_host_; }
  int fewest_per_host() const { return fewest_per_host_; }

 private:
  std::vector<size_t> host_of_;
  std::vector<std::vector<int>> hosts_;
  int most_per_host_ = 0;
  int fewest_per_host_ = 0;
};

/// Says what is wrong with a call, before anything is planned.
Status validate(const Operation& operation, const Shape& shape, int rank);

/// What is done to the inputs and to the reduced elements; average is a division here.
kernel::Scaling scaling_before(const Operation& operation);
kernel::Scaling scaling_after(const Operation& operation, int ranks);

/// Whether the order of combination shows in the bits: sums and products of floats and complex numbers.
bool order_matters(const Operation& operation);
/// Whether a op b and b op a are the same bits. Not so for min and max of floats, where the zeros have signs.
bool commutes(DType dtype, ReduceOp op);

}  // namespace horo::collective
