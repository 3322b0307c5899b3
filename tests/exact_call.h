// Collectives of every kind and element type whose results are known exactly: elements are small integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "horo/collective/operation.h"

namespace horo::test {

/// What all members of a group agree on.
struct ExactCase {
  collective::Kind kind = collective::Kind::kBarrier;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  uint64_t count = 0;  ///< Of each member, about: where members may differ, they do.
  bool uneven = true;
  int root = 0;
  bool in_place = false;
  uint64_t salt = 0;  ///< Tells the values of one case from those of another.

  std::string to_string() const;
};

/// Whether this kind of operation can be done to this element type.
bool is_possible(collective::Kind kind, DType dtype, ReduceOp op);

/// One member's part: its operation, its memory, and what must be in it afterwards.
class ExactCall {
 public:
  ExactCall(const ExactCase& of, int members, int member);

  const collective::Operation& operation() const { return operation_; }
  const std::byte* in() const { return in_.data(); }
  std::byte* out() { return of_.in_place ? in_.data() : out_.data(); }
  /// Empty, or what is wrong after a success.
  std::string wrong() const;

 private:
  int input_value(int member, uint64_t index) const;
  uint64_t input_count(int member) const;
  uint64_t sent(int from, int to) const;
  /// The value of element `index` of this member's result.
  int expected(uint64_t index) const;
  int reduced(uint64_t index) const;

  const ExactCase of_;
  const int members_;
  const int member_;
  collective::Operation operation_;
  std::vector<std::byte> in_, out_;
};

}  // namespace horo::test
