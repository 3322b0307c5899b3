#include "horo/collective/executor.h"

#include <algorithm>

namespace horo::collective {

namespace {

/// Local work stops after so many bytes to let the mesh move what has arrived meanwhile.
constexpr size_t kBytesBetweenPokes = 256 * 1024;

const std::byte* read_place(const Plan& plan, const Buffers& buffers, Place place) {
  const std::byte* base = place.buffer == Buffer::kInput     ? buffers.input
                          : place.buffer == Buffer::kScratch ? buffers.scratch
                                                             : buffers.work;
  return base == nullptr ? nullptr : base + place.offset * plan.element_bytes();
}

std::byte* write_place(const Plan& plan, const Buffers& buffers, Place place) {
  HORO_CHECK(place.buffer != Buffer::kInput, "a plan never writes to the caller's input");
  std::byte* base = place.buffer == Buffer::kScratch ? buffers.scratch : buffers.work;
  return base == nullptr ? nullptr : base + place.offset * plan.element_bytes();
}

void apply(const Plan& plan, const Work& work, std::byte* into, std::span<const std::byte* const> from, size_t count) {
  const Arithmetic& arithmetic = plan.arithmetic;
  switch (work.action) {
    case WorkAction::kCopy:
      return kernel::copy(into, from[0], count * plan.element_bytes());
    case WorkAction::kScaleBefore:
      return kernel::scale(arithmetic.dtype)(into, from[0], count, arithmetic.before);
    case WorkAction::kScaleAfter:
      return kernel::scale(arithmetic.dtype)(into, from[0], count, arithmetic.after);
    case WorkAction::kCombine:
      break;
  }
  bool scaled = work.scale_after && !arithmetic.after.none();
  if (from.size() == 2 && !scaled) {
    return kernel::combine(arithmetic.dtype, arithmetic.op)(into, from[0], from[1], count);
  }
  kernel::combine_many(arithmetic.dtype, arithmetic.op)(into, from, count,
                                                        scaled ? arithmetic.after : kernel::Scaling{});
}

}  // namespace

Executor::Executor(transport::Mesh& mesh) : mesh_(mesh), sent_bytes_(static_cast<size_t>(mesh.size()), 0) {}

Status Executor::run(const Plan& plan, const Buffers& buffers, Deadline deadline) {
  HORO_CHECK(plan.rank == mesh_.rank(), "this plan was made for another rank");
  kernel::DefaultFloatMode float_mode;
  kept_ = delivered_ = 0;
  undo_.begin({buffers.work, plan.work_bytes()}, buffers.kept);
  Status status = keep(plan, buffers, 0, false);
  for (size_t phase = 0; phase < plan.phases.size() && status.ok(); ++phase) {
    status = run_phase(plan, buffers, phase, deadline);
  }
  if (!status.ok()) {
    undo_.put_back();
    delivered_ = 0;
  }
  return status;
}

Status Executor::run_phase(const Plan& plan, const Buffers& buffers, size_t phase, Deadline deadline) {
  auto transfers = plan.transfers_of(phase);
  const bool poke = !transfers.empty();
  post(plan, buffers, transfers);
  Status status;
  for (const Work& item : plan.works_of(phase)) {
    status = work(plan, buffers, item, poke);
    if (!status.ok()) break;
  }
  if (status.ok()) status = keep(plan, buffers, phase + 1, poke);
  if (status.ok()) status = deliver_complete(plan, buffers, phase, poke);
  // Also after an error: what was posted may be in use until wait() returns.
  Status settled = poke ? mesh_.wait(deadline) : Status();
  HORO_TRY(status);
  return settled;
}

Status Executor::keep(const Plan& plan, const Buffers& buffers, size_t next, bool poke) {
  if (!undo_.keeps()) return {};
  const size_t element = plan.element_bytes();
  for (; kept_ < plan.overwrites.size() && plan.overwrites[kept_].phase <= next; ++kept_) {
    const Range& range = plan.overwrites[kept_].range;
    const std::byte* from = buffers.work + range.place.offset * element;
    const size_t bytes = range.count * element;
    const size_t step = poke ? kBytesBetweenPokes : bytes;
    for (size_t done = 0; done < bytes; done += step) {
      undo_.keep(from + done, std::min(step, bytes - done));
      if (poke) HORO_TRY(mesh_.poke());
    }
  }
  return {};
}

Status Executor::deliver_complete(const Plan& plan, const Buffers& buffers, size_t phase, bool poke) {
  if (!buffers.early) return {};
  const size_t element = plan.element_bytes();
  for (; delivered_ < plan.deliveries.size() && plan.deliveries[delivered_].phase <= phase; ++delivered_) {
    const Delivery& delivery = plan.deliveries[delivered_];
    const std::byte* from = read_place(plan, buffers, delivery.from.place);
    std::byte* into = buffers.output + delivery.offset * element;
    HORO_TRY(copy(into, from, delivery.from.count * element, plan.work_bytes(), poke));
  }
  return {};
}

Status Executor::copy(std::byte* into, const std::byte* from, size_t bytes, size_t whole, bool poke) {
  const size_t step = poke ? kBytesBetweenPokes : bytes;
  for (size_t done = 0; done < bytes; done += step) {
    kernel::copy_piece(into + done, from + done, std::min(step, bytes - done), whole);
    if (poke) HORO_TRY(mesh_.poke());
  }
  return {};
}

void Executor::deliver(const Plan& plan, const Buffers& buffers) {
  for (; delivered_ < plan.deliveries.size(); ++delivered_) {
    const Delivery& delivery = plan.deliveries[delivered_];
    const std::byte* from = read_place(plan, buffers, delivery.from.place);
    std::byte* into = buffers.output + delivery.offset * plan.element_bytes();
    if (from != into) kernel::copy(into, from, delivery.from.count * plan.element_bytes());
  }
  delivered_ = 0;
}

void Executor::post(const Plan& plan, const Buffers& buffers, std::span<const Transfer> transfers) {
  for (const Transfer& transfer : transfers) {
    size_t bytes = transfer.range.count * plan.element_bytes();
    if (transfer.action == TransferAction::kSend) {
      mesh_.send(transfer.peer, {read_place(plan, buffers, transfer.range.place), bytes});
      sent_bytes_[static_cast<size_t>(transfer.peer)] += bytes;
      continue;
    }
    transport::Placement placement;
    placement.into = write_place(plan, buffers, transfer.range.place);
    placement.element_bytes = plan.element_bytes();
    if (transfer.keeps && undo_.keeps()) placement.undo = &undo_;
    if (transfer.action == TransferAction::kReceiveCombine) {
      placement.with = read_place(plan, buffers, transfer.with);
      placement.combine = kernel::combine(plan.arithmetic.dtype, plan.arithmetic.op);
    }
    mesh_.receive(transfer.peer, bytes, placement);
  }
}

Status Executor::work(const Plan& plan, const Buffers& buffers, const Work& work, bool poke) {
  std::byte* into = write_place(plan, buffers, work.into.place);
  sources_.clear();
  for (Place source : plan.sources_of(work)) sources_.push_back(read_place(plan, buffers, source));
  if (work.action == WorkAction::kCopy && sources_[0] == into) return {};
  size_t element = plan.element_bytes();
  uint64_t step = poke ? std::max<size_t>(kBytesBetweenPokes / element, 1) : work.into.count;
  for (uint64_t done = 0; done < work.into.count; done += step) {
    uint64_t count = std::min(step, work.into.count - done);
    apply(plan, work, into, sources_, count);
    into += count * element;
    for (const std::byte*& source : sources_) source += count * element;
    if (poke) HORO_TRY(mesh_.poke());
  }
  return {};
}

}  // namespace horo::collective
