#include "horo/group/hierarchy_plane.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "horo/base/text.h"
#include "horo/group/signature.h"
#include "horo/kernel/reduce.h"

namespace horo::group {

using collective::Kind;
using collective::Operation;

namespace {

constexpr std::string_view kName = "hierarchy+direct";

/// What a member brings to the second meeting: how its lane went. The words lie in its keep.
struct Verdict {
  uint32_t code = 0;
  uint32_t words = 0;
};
constexpr uint64_t kMostWords = HostMemory::kWords / 2;

collective::Table table_of_lanes(collective::Table table) {
  table.rank_order_limit = std::numeric_limits<uint32_t>::max();
  return table;
}

/// After these the group goes on: all members fail alike.
bool is_usable(const Status& status) {
  return status.ok() || status.code() == Code::kMismatch || status.code() == Code::kUnavailable;
}

void add_new(std::vector<int>& members, const std::vector<int>& more) {
  for (int member : more) {
    if (std::find(members.begin(), members.end(), member) == members.end()) members.push_back(member);
  }
}

/// Whether every member ends with all of the result in the slots of its host. A reduce does not need to, but then
/// any survivor can serve the root.
bool is_whole_everywhere(const Operation& operation) {
  return operation.replicates() || operation.kind == Kind::kReduce;
}

/// Whether what a host gets of the others proves that all of them came.
bool hears_from_all_hosts(const Levels& levels, const Operation& operation) {
  if (operation.kind != Kind::kAllgather) return true;
  std::vector<uint64_t> given(levels.hosts());
  for (int member = 0; member < levels.shape.ranks(); ++member) {
    given[levels.shape.host_of(member)] += operation.counts[static_cast<size_t>(member)];
  }
  return operation.total() == 0 || std::find(given.begin(), given.end(), 0u) == given.end();
}

}  // namespace

HierarchyPlane::HierarchyPlane(HostMemory host, std::unique_ptr<MeshPlane> mesh, const Levels& levels,
                               const collective::Table& table, const collective::Forced& forced)
    : host_(std::move(host)),
      mesh_(std::move(mesh)),
      levels_(levels),
      table_(table_of_lanes(table)),
      forced_(forced),
      protocol_(std::move(host_.space), collective::direct::Thresholds{}),
      policy_(protocol_.space().policy),
      lane_(mesh_->mesh(), levels_),
      executor_(lane_) {}

bool HierarchyPlane::wants_two_levels(const Operation& operation) const {
  const collective::Algorithm* forced = forced_.of(operation.kind);
  const bool forbidden = forced_.levels(operation.kind) == collective::Forced::Levels::kOne;
  if (forbidden || operation.way.one_level) return false;
  return two_level_refusal(levels_, operation).empty() && (forced == nullptr || forced->name == "hierarchy");
}

Status HierarchyPlane::run(const Job& job) {
  if (over_) return Status(Code::kStopped, "the group was revoked").with_operation(job.number);
  const bool fits = slot_bytes(levels_, job.operation) <= host_.slot_bytes;
  const Call call{job.number, signature_of(job.operation, table_.version), job.deadline};
  protocol_.set_wait_policy(job.may_spin ? policy_ : transport::WaitPolicy::sleeping());
  if (!wants_two_levels(job.operation) || !fits) return noting_lost(run_on_mesh(job, call));
  algorithm_ = kName;
  return noting_lost(pass(job, call));
}

Status HierarchyPlane::pass(const Job& job, const Call& call) {
  Status brought = bring(job, call);
  if (!brought.ok()) return refuse_elsewhere(call, brought);
  Status crossed = levels_.drives() ? cross(job, call) : Status();
  if (!is_usable(crossed)) return crossed;
  HORO_TRY(close(call, crossed));
  keep(job);
  if (!is_whole_everywhere(job.operation) || !hears_from_all_hosts(levels_, job.operation)) {
    Status confirmed = levels_.place == 0 ? confirm(lane_, call.deadline) : Status();
    if (!is_usable(confirmed)) return confirmed;
    HORO_TRY(close(call, confirmed));
  }
  deliver(job, kept_[turn_ & 1]);
  ++turn_;
  return {};
}

// The members of the host fail alike if one of its lanes did, whichever they drive.
Status HierarchyPlane::close(const Call& call, const Status& mine) {
  const uint64_t words_at = (call.number & 1) * kMostWords;
  Verdict verdict;
  if (!mine.ok()) {
    const std::string& words = mine.message();
    verdict.code = static_cast<uint32_t>(mine.code());
    verdict.words = static_cast<uint32_t>(std::min<uint64_t>(words.size(), kMostWords));
    std::memcpy(host_.own_keep.data() + words_at, words.data(), verdict.words);
  }
  HORO_TRY(protocol_.meet(call, std::as_bytes(std::span(&verdict, 1))));
  for (int place = 0; place < protocol_.size(); ++place) {
    Verdict theirs;
    std::memcpy(&theirs, protocol_.payload(place), sizeof theirs);
    if (theirs.code == 0) continue;
    const std::byte* words = host_.keeps[static_cast<size_t>(place)] + words_at;
    const Code code = theirs.code == static_cast<uint32_t>(Code::kUnavailable) ? Code::kUnavailable : Code::kMismatch;
    return Status(code, std::string(reinterpret_cast<const char*>(words), std::min<uint64_t>(theirs.words, kMostWords)))
        .with_operation(call.number);
  }
  return {};
}

// By every member: those elsewhere may wait for any of them, if they run it on the mesh.
Status HierarchyPlane::refuse_elsewhere(const Call& call, const Status& why) {
  return is_usable(why) ? mesh_->mesh().refuse(call.number, why) : why;
}

void HierarchyPlane::keep(const Job& job) {
  Kept& kept = kept_[turn_ & 1];
  kept.operation = job.number;
  kept.whole = is_whole_everywhere(job.operation);
  kept.pieces = pieces_of(job.operation);
  held_.store(job.number, std::memory_order_release);
}

void HierarchyPlane::deliver(const Job& job, const Kept& kept) const {
  if (job.operation.result_count(levels_.member) == 0) return;
  for (const Piece& piece : kept.pieces) {
    if (piece.bytes > 0) kernel::copy(job.out + piece.at, piece.from, piece.bytes);
  }
}

// What is too large for the slots must have the same bits as what is not: the order of a sum may not depend on sizes.
// The mesh has host order for allreduce, and for reducescatter where hosts are equal.
Status HierarchyPlane::with_mesh(const Job& job, const std::function<Status(const Job&)>& act) {
  const bool equal = levels_.shape.fewest_per_host() == levels_.shape.most_per_host();
  const Kind kind = job.operation.kind;
  const bool disguised = wants_two_levels(job.operation) && table_.deterministic &&
                         (kind == Kind::kReduce || (kind == Kind::kReduceScatter && !equal));
  if (!disguised) return act(job);
  Operation all = job.operation;
  all.kind = Kind::kAllreduce;
  all.count = job.operation.total();
  all.counts.clear();
  all.root = 0;
  if (disguised_ == nullptr) disguised_.reset(new (std::nothrow) std::byte[all.total_bytes()]);
  if (disguised_ == nullptr) {
    return mesh_->refuse(job, Status(Code::kUnavailable, text("no memory for ", bytes_text(all.total_bytes()))));
  }
  const Status status = act({job.number, all, job.in, disguised_.get(), job.deadline, job.may_spin});
  if (!status.ok() && !is_usable(status)) return status;  // The survivors may decide that accept() is next.
  const auto result = std::move(disguised_);
  HORO_TRY(status);
  const size_t element = size_of(all.dtype);
  const uint64_t count = job.operation.result_count(levels_.member);
  const auto& counts = job.operation.counts;
  const uint64_t before =
      kind == Kind::kReduce ? 0 : std::accumulate(counts.begin(), counts.begin() + levels_.member, uint64_t{0});
  if (count > 0) kernel::copy(job.out, result.get() + before * element, count * element);
  return {};
}

Status HierarchyPlane::run_on_mesh(const Job& job, const Call& call) {
  if (Status met = protocol_.meet(call, {}); !met.ok()) return refuse_elsewhere(call, met);
  Status status = with_mesh(job, [this](const Job& changed) { return mesh_->run(changed); });
  algorithm_ = mesh_->algorithm_name();
  return status;
}

Status HierarchyPlane::noting_lost(const Status& status) {
  std::lock_guard lock(mutex_);
  add_new(gone_, status.lost());
  over_ |= !is_usable(status) && status.code() != Code::kInvalidArgument;
  return status.code() == Code::kPeerLost ? Status(Code::kStopped, status.message()) : status;
}

void HierarchyPlane::revoke(const std::vector<int>& gone) {
  std::vector<int> near;
  for (int member : gone) {
    if (levels_.shape.host_of(member) == levels_.host) near.push_back(levels_.place_of(member));
  }
  {
    std::lock_guard lock(mutex_);
    add_new(gone_, gone);
  }
  protocol_.space().page.revoke(near);
  mesh_->revoke(gone);
}

std::vector<int> HierarchyPlane::gone() const {
  std::vector<int> all = mesh_->gone();
  for (int place : protocol_.space().page.evicted()) add_new(all, {levels_.local[static_cast<size_t>(place)]});
  std::lock_guard lock(mutex_);
  add_new(all, gone_);
  return all;
}

std::span<const std::byte> HierarchyPlane::retained(uint64_t operation) const {
  std::lock_guard lock(mutex_);
  if (whole_operation_ == operation) return whole_;
  for (const Kept& kept : kept_) {
    if (kept.operation != operation || !kept.whole) continue;
    uint64_t bytes = 0;
    for (const Piece& piece : kept.pieces) bytes = std::max(bytes, piece.at + piece.bytes);
    whole_.resize(bytes);
    for (const Piece& piece : kept.pieces) {
      if (piece.bytes > 0) std::memcpy(whole_.data() + piece.at, piece.from, piece.bytes);
    }
    whole_operation_ = operation;
    return whole_;
  }
  return mesh_->retained(operation);
}

Status HierarchyPlane::accept(const Job& job, std::span<const std::byte> served) {
  const bool fits = slot_bytes(levels_, job.operation) <= host_.slot_bytes;
  if (!wants_two_levels(job.operation) || !fits) {
    return with_mesh(job, [&](const Job& changed) { return mesh_->accept(changed, served); });
  }
  if (held() >= job.number) {
    for (const Kept& kept : kept_) {
      if (kept.operation == job.number) deliver(job, kept);
    }
    return {};
  }
  if (served.size() != job.operation.total_bytes()) {
    return Status(Code::kCorrupt, text("operation ", job.number, " was served with ", served.size(),
                                       " bytes instead of ", job.operation.total_bytes()))
        .with_operation(job.number);
  }
  {
    // Retained here too: this member may be asked for it after a further loss.
    std::lock_guard lock(mutex_);
    whole_.assign(served.begin(), served.end());
    whole_operation_ = job.number;
  }
  held_.store(job.number, std::memory_order_release);
  if (job.operation.result_count(levels_.member) > 0) std::memcpy(job.out, served.data(), served.size());
  return {};
}

}  // namespace horo::group
