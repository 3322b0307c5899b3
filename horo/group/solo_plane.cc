#include "horo/group/solo_plane.h"

#include <cstring>

#include "horo/kernel/reduce.h"

namespace horo::group {

Status SoloPlane::run(const Job& job) {
  if (revoked_) return Status(Code::kStopped, "the group has ended").with_operation(job.number);
  const collective::Operation& operation = job.operation;
  const uint64_t count = operation.result_count(0);
  if (count == 0) return {};
  if (!operation.reduces()) {
    if (job.in != job.out) std::memmove(job.out, job.in, count * size_of(operation.dtype));
    return {};
  }
  kernel::DefaultFloatMode float_mode;
  const std::byte* from = job.in;
  for (const kernel::Scaling& scaling :
       {collective::scaling_before(operation), collective::scaling_after(operation, 1)}) {
    if (scaling.none()) continue;
    kernel::scale(operation.dtype)(job.out, from, count, scaling);
    from = job.out;
  }
  if (from != job.out) std::memmove(job.out, from, count * size_of(operation.dtype));
  return {};
}

}  // namespace horo::group
