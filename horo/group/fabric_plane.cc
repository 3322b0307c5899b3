#include "horo/group/fabric_plane.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <new>

#include "horo/base/text.h"
#include "horo/group/signature.h"
#include "horo/kernel/reduce.h"

namespace horo::group {

namespace {

using collective::Kind;

/// Elements that this member hands in.
uint64_t input_count(const collective::Operation& operation, int rank) {
  switch (operation.kind) {
    case Kind::kAllgather:
    case Kind::kGather:
      return operation.counts[static_cast<size_t>(rank)];
    default:
      return operation.total();
  }
}

bool overlap(const std::byte* a, uint64_t a_bytes, const std::byte* b, uint64_t b_bytes) {
  const std::less<> before;
  return a != nullptr && b != nullptr && before(a, b + b_bytes) && before(b, a + a_bytes);
}

/// MPI counts in int. What each member sends and gets in an alltoall is its own: the others must hear that it is too
/// much, or they wait in it for ever.
bool is_too_much(const collective::Operation& operation, uint64_t results) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int>::max());
  const uint64_t most = kMost / size_of(operation.dtype);
  return operation.kind == Kind::kAlltoall && (operation.total() > most || results > most);
}

bool works_in_place(Kind kind) {
  return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kBroadcast || kind == Kind::kSendRecv;
}

}  // namespace

Status FabricPlane::run(const Job& job) {
  if (revoked_) return Status(Code::kStopped, "the group has ended").with_operation(job.number);
  const collective::Operation& operation = job.operation;
  kernel::DefaultFloatMode float_mode;
  const uint64_t width = size_of(operation.dtype);
  const uint64_t count = input_count(operation, member_);
  const uint64_t results = operation.result_count(member_);
  const kernel::Scaling before = collective::scaling_before(operation);
  const bool scales = operation.reduces() && !before.none() && count > 0;
  const bool moves = !works_in_place(operation.kind) && overlap(job.in, count * width, job.out, results * width);
  // An allreduce is scaled where its result will be; all others must not touch what they were handed.
  const bool scales_result = scales && operation.kind == Kind::kAllreduce;
  const bool copies = (scales || moves) && !scales_result;
  const bool too_much = is_too_much(operation, results);
  const bool takes = copies && !too_much;
  const std::unique_ptr<std::byte[]> copy(takes ? new (std::nothrow) std::byte[count * width] : nullptr);
  transport::Signature signature = signature_of(operation, 0);
  if (too_much || (copies && copy == nullptr)) signature.kind = Kind::kRefused;
  HORO_TRY(agree(job.number, signature));
  if (signature.kind == Kind::kRefused) return refused_by(member_).with_operation(job.number);  // By all of them alike.
  if (operation.kind == Kind::kBarrier) return {};
  if (scales_result) {
    kernel::scale(operation.dtype)(job.out, job.in, count, before);
    return run_scaled(job, job.out);
  }
  if (!copies) return run_scaled(job, job.in);
  if (scales) {
    kernel::scale(operation.dtype)(copy.get(), job.in, count, before);
  } else {
    kernel::copy(copy.get(), job.in, count * width);
  }
  return run_scaled(job, copy.get());
}

Status FabricPlane::agree(uint64_t number, const transport::Signature& mine) {
  constexpr size_t kWords = 1 + sizeof mine / sizeof(uint64_t);
  // The smallest of a word and of its complement: equal words have no other.
  std::array<uint64_t, 2 * kWords> words{number};
  std::memcpy(&words[1], &mine, sizeof mine);
  for (size_t i = 0; i < kWords; ++i) words[kWords + i] = ~words[i];
  collective::Operation least;
  least.kind = Kind::kAllreduce;
  least.dtype = DType::kU64;
  least.op = ReduceOp::kMin;
  least.count = words.size();
  auto* bytes = reinterpret_cast<std::byte*>(words.data());
  if (Status ran = group_->run(least, bytes, bytes); !ran.ok()) return ran.with_operation(number);
  for (size_t i = 0; i < kWords; ++i) {
    if (words[i] != ~words[kWords + i]) return tell_apart(number, mine).with_operation(number);
  }
  return {};
}

Status FabricPlane::tell_apart(uint64_t number, const transport::Signature& mine) {
  std::vector<transport::Signature> all(ranks_.size());
  collective::Operation gather;
  gather.kind = Kind::kAllgather;
  gather.dtype = DType::kByte;
  gather.counts.assign(ranks_.size(), sizeof mine);
  HORO_TRY(group_->run(gather, reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(all.data())));
  const auto refusing =
      std::find_if(all.begin(), all.end(), [](const auto& one) { return one.kind == Kind::kRefused; });
  if (refusing != all.end()) {
    return refused_by(static_cast<int>(refusing - all.begin()));
  }
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one != all.front(); });
  std::string words = "they have called a different number of operations";
  if (other != all.end()) {
    const bool alike = other->to_string() == all.front().to_string();
    words = text("rank ", ranks_.front(), " calls ", all.front().to_string(), ", rank ",
                 ranks_[static_cast<size_t>(other - all.begin())], " ", other->to_string(),
                 alike ? " with other counts or factors" : "");
  }
  return Status(Code::kMismatch, text("the ranks disagree about operation ", number, ": ", words,
                                      "; call the same operations in the same order on all ranks"));
}

Status FabricPlane::refused_by(int member) const {
  return Status(Code::kUnavailable, text("rank ", ranks_[static_cast<size_t>(member)],
                                         " has no memory for a copy of its input, or more than 2 GiB to "
                                         "send or to get in an alltoall; split it"));
}

Status FabricPlane::run_scaled(const Job& job, const std::byte* in) {
  const collective::Operation& operation = job.operation;
  Status ran = group_->run(operation, in, job.out);
  if (!ran.ok()) return ran.with_operation(job.number);
  const kernel::Scaling after = collective::scaling_after(operation, size_);
  const uint64_t results = operation.result_count(member_);
  const bool has_result = operation.kind != Kind::kReduce || operation.root == member_;
  if (operation.reduces() && !after.none() && has_result && results > 0) {
    kernel::scale(operation.dtype)(job.out, job.out, results, after);
  }
  return {};
}

}  // namespace horo::group
