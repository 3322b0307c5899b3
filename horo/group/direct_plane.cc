#include "horo/group/direct_plane.h"

#include "horo/collective/direct/collectives.h"
#include "horo/group/signature.h"

namespace horo::group {

DirectPlane::DirectPlane(transport::Space space, const collective::direct::Thresholds& thresholds,
                         uint8_t table_version)
    : protocol_(std::move(space), thresholds), policy_(protocol_.space().policy), table_version_(table_version) {}

Status DirectPlane::run(const Job& job) {
  if (over_) return Status(Code::kStopped, "the group was revoked").with_operation(job.number);
  const collective::direct::Call call{job.number, signature_of(job.operation, table_version_), job.deadline};
  protocol_.set_wait_policy(job.may_spin ? policy_ : transport::WaitPolicy::sleeping());
  Status status = collective::direct::run(protocol_, call, job.operation, job.in, job.out);
  if (status.ok()) {
    completed_.store(job.number, std::memory_order_release);
  } else if (status.code() != Code::kMismatch && status.code() != Code::kUnavailable) {
    over_ = true;
  }
  return status;
}

bool DirectPlane::advance(uint64_t count) {
  const transport::Space& space = protocol_.space();
  return space.page[space.rank].device.word.advance(count);
}

bool DirectPlane::all_at(uint64_t count) const {
  const transport::ControlPage& page = protocol_.space().page;
  for (int member = 0; member < page.size(); ++member) {
    if (page[member].device.word.read().count() < count) return false;
  }
  return true;
}

Status DirectPlane::accept(const Job& job, std::span<const std::byte>) {
  return Status(Code::kInternal, "results in shared memory are never served").with_operation(job.number);
}

}  // namespace horo::group
