// How the members of a group find each other's rings.
//
// A rank's area in its own segment is a slot for each member, then a ring for each member. Everybody tells where its
// area lies; the ring from i to j is in i's area at place j, and what j took of it stands in j's area at place i.
#include <new>

#include "horo/base/text.h"
#include "horo/group/control.h"
#include "horo/group/engine.h"
#include "horo/group/post.h"

namespace horo::group {

namespace {

constexpr uint64_t kNowhere = ~uint64_t{0};
constexpr size_t kPage = 4096;

size_t slots_bytes(int members) {
  return (static_cast<size_t>(members) * sizeof(RingSlot) + kPage - 1) / kPage * kPage;
}
size_t area_bytes(int members) { return slots_bytes(members) + static_cast<size_t>(members) * Post::kRingBytes; }

}  // namespace

Result<std::unique_ptr<Post>> Post::open(Engine& engine, const std::shared_ptr<Group>& group, Deadline deadline) {
  if (engine.control_->forked()) return Status(Code::kForked, "a forked child cannot open a post");
  std::unique_ptr<Post> post(new Post(engine, group));
  if (group->size() == 1) return post;
  if (Status status = post->take_area(); !status.ok()) {
    engine.log().info("no shared memory for messages, they go over control connections: ", status);
  }
  // Before anybody can know that this rank has come: letters may arrive from then on.
  engine.control_->add_mailbox(group->id(), post->mailbox_);
  HORO_TRY(post->exchange_places(deadline));
  return post;
}

Status Post::take_area() {
  if (!engine_.memory_) return {};
  Memory* memory = engine_.memory_.get();
  HORO_ASSIGN(auto area, memory->take_area(area_bytes(group_->size())));
  // Others may read it as long as they have the group.
  engine_.control_->when_released(group_->id(), [memory, at = area.data()] { memory->free_area(at); });
  HORO_TRY(memory->commit(area, slots_bytes(group_->size()), 0));
  area_ = area;
  for (int member = 0; member < group_->size(); ++member) new (&slot(member)) RingSlot;
  return {};
}

Status Post::exchange_places(Deadline deadline) {
  const uint64_t mine = area_.empty() ? kNowhere : engine_.memory_->offset(area_.data());
  places_.resize(static_cast<size_t>(group_->size()));
  collective::Operation gather;
  gather.kind = collective::Kind::kAllgather;
  gather.dtype = DType::kU64;
  gather.counts.assign(places_.size(), 1);
  HORO_TRY(group_->run(gather, reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(places_.data()),
                       deadline, false));
  for (int member = 0; member < group_->size(); ++member) {
    const uint64_t place = places_[static_cast<size_t>(member)];
    if (member == group_->member() || place == kNowhere || mine == kNowhere) continue;
    HORO_TRY(connect_ring(member, place));
  }
  return {};
}

Status Post::connect_ring(int member, uint64_t place) {
  const int rank = group_->ranks()[static_cast<size_t>(member)];
  const Link* link = engine_.control_->link(rank);
  if (link == nullptr || !link->memory) return {};
  const std::span<const std::byte> segment = link->memory->segment.memory();
  const size_t bytes = area_bytes(group_->size());
  if (place % kPage != 0 || segment.size() < bytes || place > segment.size() - bytes) {
    return {Code::kCorrupt, text("rank ", rank, " announced rings at ", place, ", outside its segment")};
  }
  const auto self = static_cast<size_t>(group_->member());
  const auto* theirs = reinterpret_cast<const RingSlot*>(segment.data() + place);
  const auto ring = segment.subspan(place + slots_bytes(group_->size()) + self * kRingBytes, kRingBytes);
  pairs_[static_cast<size_t>(member)].in.emplace(theirs[self].head, ring, slot(member).tail,
                                                 link->memory->header().bell);
  local_.push_back(member);
  return {};
}

RingSlot& Post::slot(int member) const { return reinterpret_cast<RingSlot*>(area_.data())[member]; }

std::span<std::byte> Post::ring(int member) const {
  return area_.subspan(slots_bytes(group_->size()) + static_cast<size_t>(member) * kRingBytes, kRingBytes);
}

}  // namespace horo::group
