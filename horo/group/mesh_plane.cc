#include "horo/group/mesh_plane.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "horo/base/text.h"
#include "horo/group/lane_mesh.h"
#include "horo/group/signature.h"

namespace horo::group {

namespace {

constexpr size_t kPlansKept = 32;

Status ensure(std::unique_ptr<std::byte[]>& memory, size_t& capacity, size_t bytes) {
  if (bytes <= capacity) return {};
  memory.reset();
  capacity = 0;
  memory.reset(new (std::nothrow) std::byte[bytes]);  // Not zeroed: plans write before they read.
  if (memory == nullptr) return {Code::kUnavailable, text("no memory to stage ", bytes_text(bytes))};
  capacity = bytes;
  return {};
}

uint64_t result_bytes(const Job& job, int member) {
  return job.operation.result_count(member) * size_of(job.operation.dtype);
}

/// Whether the output may be written while the input is still wanted. (Where a broadcast is received the two are often
/// the same memory, and no input.)
bool are_apart(const Job& job, int member) {
  const uint64_t in_bytes = job.operation.input_count(member) * size_of(job.operation.dtype);
  return job.in != job.out && (job.in + in_bytes <= job.out || job.out + result_bytes(job, member) <= job.in);
}

/// Whether a result depends on what every member brought, so that having it proves that all members came.
bool hears_from_all(const collective::Operation& operation) {
  using collective::Kind;
  if (operation.kind == Kind::kAllreduce) return operation.count > 0;
  if (operation.kind == Kind::kAllgather) {
    return std::find(operation.counts.begin(), operation.counts.end(), 0u) == operation.counts.end();
  }
  return operation.kind == Kind::kBarrier;
}

}  // namespace

MeshPlane::MeshPlane(std::unique_ptr<transport::Mesh> mesh, collective::Shape shape, const collective::Table& table,
                     Chooser chooser)
    : mesh_(std::move(mesh)),
      shape_(std::move(shape)),
      table_(table),
      chooser_(std::move(chooser)),
      executor_(*mesh_) {}

Result<const collective::Plan*> MeshPlane::plan_for(const collective::Operation& operation) {
  for (const auto& [known, plan] : plans_) {
    if (known == operation) return &plan;
  }
  HORO_ASSIGN(const collective::Algorithm* algorithm, chooser_(operation));
  HORO_ASSIGN(collective::Plan plan, collective::build_plan(*algorithm, operation, shape_, mesh_->rank(), table_));
  plans_.emplace_front(operation, std::move(plan));
  if (plans_.size() > kPlansKept) plans_.pop_back();
  return &plans_.front().second;
}

Result<collective::Buffers> MeshPlane::buffers(const Job& job, const collective::Plan& plan) {
  const bool apart = are_apart(job, mesh_->rank());
  const bool in_place = job.in == job.out && job.operation.kind == collective::Kind::kAllreduce;
  const bool whole = plan.work_bytes() <= result_bytes(job, mesh_->rank());
  const bool straight = !may_serve(job.operation) && whole && (apart || in_place);
  HORO_TRY(ensure(scratch_, scratch_capacity_, plan.scratch_bytes()));
  collective::Buffers memory{job.in, job.out, job.out, scratch_.get()};
  if (straight && apart) return memory;
  Staging& staging = staging_[turn_ & 1];
  HORO_TRY(ensure(staging.work, staging.capacity, plan.work_bytes()));
  if (straight) {
    memory.kept = staging.work.get();
  } else {
    memory.work = staging.work.get();
    memory.early = apart;
  }
  return memory;
}

Status MeshPlane::refuse(const Job& job, const Status& why) {
  const Status told = mesh_->refuse(
      job.number, Status(Code::kUnavailable, text("rank ", mesh_->rank(), " cannot take part in operation ", job.number,
                                                  ": ", why.message())));
  return told.code() == Code::kUnavailable ? why.with_operation(job.number) : noting_lost(told);
}

Status MeshPlane::run(const Job& job) {
  if (over_) return Status(Code::kStopped, "the group was revoked").with_operation(job.number);
  const Result<const collective::Plan*> planned = plan_for(job.operation);
  if (!planned.ok()) return refuse(job, planned.status());
  const collective::Plan* const plan = *planned;
  algorithm_ = plan->algorithm;
  Staging& staging = staging_[turn_ & 1];
  staging.operation.store(0, std::memory_order_relaxed);
  const Result<collective::Buffers> room = buffers(job, *plan);
  if (!room.ok()) return refuse(job, room.status());
  const collective::Buffers& memory = *room;
  mesh_->begin(job.number, signature_of(job.operation, table_.version));
  HORO_TRY(noting_lost(executor_.run(*plan, memory, job.deadline)));
  staging.result_bytes = may_serve(job.operation) ? job.operation.total_bytes() : 0;
  staging.operation.store(job.number, std::memory_order_release);
  held_.store(job.number, std::memory_order_release);
  // Who has only a part of the result cannot serve a member that a loss kept from getting its own; and who runs ahead
  // (the root of broadcasts, say) would overwrite what it may have to serve. So an operation that does not bring all
  // members together by itself succeeds nowhere before everybody holds what it will deliver.
  if (!hears_from_all(job.operation)) HORO_TRY(noting_lost(confirm(*mesh_, job.deadline)));
  executor_.deliver(*plan, memory);
  ++turn_;
  return {};
}

Status MeshPlane::noting_lost(const Status& status) {
  std::lock_guard lock(mutex_);
  for (int member : status.lost()) {
    if (std::find(gone_.begin(), gone_.end(), member) == gone_.end()) gone_.push_back(member);
  }
  over_ |= !status.ok() && status.code() != Code::kMismatch && status.code() != Code::kUnavailable;
  return status.code() == Code::kPeerLost ? Status(Code::kStopped, status.message()) : status;
}

void MeshPlane::revoke(const std::vector<int>& gone) {
  {
    std::lock_guard lock(mutex_);
    for (int member : gone) {
      if (std::find(gone_.begin(), gone_.end(), member) == gone_.end()) gone_.push_back(member);
    }
  }
  mesh_->revoke();
}

std::vector<int> MeshPlane::gone() const {
  std::lock_guard lock(mutex_);
  return gone_;
}

std::span<const std::byte> MeshPlane::retained(uint64_t operation) const {
  for (const Staging& staging : staging_) {
    if (staging.operation.load(std::memory_order_acquire) == operation)
      return {staging.work.get(), staging.result_bytes};
  }
  return {};
}

Status MeshPlane::accept(const Job& job, std::span<const std::byte> served) {
  HORO_ASSIGN(const collective::Plan* plan, plan_for(job.operation));
  HORO_ASSIGN(const collective::Buffers memory, buffers(job, *plan));
  if (held() < job.number) {
    if (served.size() != job.operation.total_bytes()) {
      return Status(Code::kCorrupt, text("operation ", job.number, " was served with ", served.size(),
                                         " bytes instead of ", job.operation.total_bytes()))
          .with_operation(job.number);
    }
    if (!served.empty()) std::memcpy(memory.work, served.data(), served.size());
    Staging& staging = staging_[turn_ & 1];
    staging.result_bytes = served.size();
    staging.operation.store(job.number, std::memory_order_release);
    held_.store(job.number, std::memory_order_release);
  }
  executor_.deliver(*plan, memory);
  return {};
}

}  // namespace horo::group
