#include "horo/group/fabric_plane.h"

#include <functional>
#include <new>

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
  if (!scales && !moves) return run_scaled(job, job.in);
  // An allreduce is scaled where its result will be; all others must not touch what they were handed.
  if (scales && operation.kind == Kind::kAllreduce) {
    kernel::scale(operation.dtype)(job.out, job.in, count, before);
    return run_scaled(job, job.out);
  }
  std::unique_ptr<std::byte[]> copy(new (std::nothrow) std::byte[count * width]);
  if (copy == nullptr)
    return Status(Code::kUnavailable, "no memory for a copy of the input").with_operation(job.number);
  if (scales) {
    kernel::scale(operation.dtype)(copy.get(), job.in, count, before);
  } else {
    kernel::copy(copy.get(), job.in, count * width);
  }
  return run_scaled(job, copy.get());
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
