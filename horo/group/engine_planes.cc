// How an engine gives a new group its data plane.
#include <algorithm>

#include "horo/base/system.h"
#include "horo/base/text.h"
#include "horo/collective/direct/sliced.h"
#include "horo/collective/selector.h"
#include "horo/group/control.h"
#include "horo/group/direct_plane.h"
#include "horo/group/engine.h"
#include "horo/group/fabric_plane.h"
#include "horo/group/hierarchy_plane.h"
#include "horo/group/knobs.h"
#include "horo/group/mesh_plane.h"
#include "horo/transport/tcp/mesh.h"

namespace horo::group {

namespace {

using Wanted = collective::Forced::Levels;

/// Sizes of staging are equal on all members, whose machines may have pages of different sizes.
constexpr uint64_t kStagingUnit = 4096;

/// Who waits for a peer looks as often whether that is in vain.
constexpr auto kLookAgain = std::chrono::milliseconds(100);

/// Carries what a waiting thread notices to the control thread, in ranks of the job.
class GroupWatcher : public transport::Watcher {
 public:
  enum class OnEnd : uint8_t { kIsDead, kMayHaveLeft };
  GroupWatcher(Control& control, std::vector<int> ranks, OnEnd on_end)
      : control_(control), ranks_(std::move(ranks)), on_end_(on_end) {}

  void found_dead(int member) override {
    const int rank = ranks_[static_cast<size_t>(member)];
    if (on_end_ == OnEnd::kIsDead) {
      control_.found_dead(rank);
    } else {
      control_.stream_ended(rank);
    }
  }
  void waiting_for(int member, Time since) override {
    control_.note_waiting(ranks_[static_cast<size_t>(member)], since);
  }

 private:
  Control& control_;
  const std::vector<int> ranks_;
  const OnEnd on_end_;
};

}  // namespace

uint64_t Engine::staging_bytes(int members) const {
  const collective::direct::Thresholds thresholds;
  const uint64_t units = (options_.config.get(kStaging) + kStagingUnit - 1) / kStagingUnit;
  return units * kStagingUnit + collective::direct::Protocol::kSlots * thresholds.slot_bytes +
         collective::direct::ring_room(thresholds, members);
}

uint64_t Engine::slot_bytes() const { return options_.config.get(kStaging) / 2 / kStagingUnit * kStagingUnit; }

uint64_t Engine::area_bytes(int members) const { return staging_bytes(members) + HostMemory::keep_bytes(slot_bytes()); }

// Members that hold different values would choose different algorithms, cut differently or wait for streams that never
// come: they are told when they make their group.
std::vector<std::string> Engine::common_settings() const {
  const Config& config = options_.config;
  return {text("HORO_ALGORITHM='", config.get(kAlgorithm), "'"),
          text("HORO_DETERMINISTIC=", config.get(kDeterministic) ? 1 : 0),
          text("HORO_STAGING=", config.get(kStaging)),
          text("HORO_STREAMS=", config.get(kStreams)),
          text("HORO_CPU_OPERATIONS=", options_.fabric ? options_.fabric->transport_name() : "horo"),
          text("HORO_HIERARCHICAL_ALLREDUCE=", config.get(kHierarchicalAllreduce)),
          text("HORO_HIERARCHICAL_ALLGATHER=", config.get(kHierarchicalAllgather)),
          text("HORO_DEVICE_PATH=", config.get(kDevicePath))};
}

Result<collective::Forced> Engine::forced() const {
  const auto levels = [&](const ChoiceKnob& knob) {
    const std::string word = options_.config.get(knob);
    return word == "auto" ? Wanted::kFree : word == "0" ? Wanted::kOne : Wanted::kTwo;
  };
  HORO_ASSIGN(collective::Forced forced, collective::Forced::parse(options_.config.get(kAlgorithm)));
  forced.set_levels(collective::Kind::kAllreduce, levels(kHierarchicalAllreduce));
  forced.set_levels(collective::Kind::kAllgather, levels(kHierarchicalAllgather));
  return forced;
}

std::vector<collective::Way> Engine::other_ways(collective::Kind kind, const Plane& plane,
                                                const collective::Shape& shape) const {
  const auto forced = this->forced();
  if (plane.ways() == Plane::Ways::kOne || !forced.ok()) return {};
  std::vector<collective::Way> ways = collective::other_ways(kind, shape, table_, *forced);
  if (plane.ways() == Plane::Ways::kAlgorithms || forced->levels(kind) == Wanted::kOne) return ways;
  // Within a host there is memory: algorithms matter only to what does not use it.
  if (forced->levels(kind) == Wanted::kTwo || forced->of(kind) != nullptr) return {};
  ways.insert(ways.begin(), collective::Way{});
  for (collective::Way& way : ways) way.one_level = true;
  return ways;
}

std::vector<int> Engine::on_this_host(const std::vector<int>& ranks) const {
  const auto host_of = [&](int rank) -> const std::string& { return peers_[static_cast<size_t>(rank)].host; };
  std::vector<int> near;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(near),
               [&](int rank) { return host_of(rank) == host_of(options_.rank); });
  return near;
}

Status Engine::offer_memory(const std::vector<int>& ranks, GroupOffer& offer, Holding& holding) {
  const std::vector<int> near = on_this_host(ranks);
  for (int rank : near) {
    if (rank != options_.rank && !control_->link(rank)->memory.has_value()) {
      return {Code::kUnavailable, text("rank ", rank, " shares no memory")};
    }
  }
  HORO_ASSIGN(const auto area, memory_->take_area(area_bytes(static_cast<int>(near.size()))));
  holding.area = area.data();
  offer.area = memory_->offset(area.data());
  if (near.front() == options_.rank) {
    HORO_ASSIGN(holding.page, memory_->take_page(static_cast<int>(near.size())));
    offer.page = *holding.page;
  }
  offer.shares_memory = true;
  return {};
}

// Spinning helps only where every rank of the host has a core of its own.
transport::WaitPolicy Engine::wait_policy() const {
  transport::WaitPolicy policy;
  if (static_cast<int>(local_ranks_.size()) > System().usable_cores()) policy.spin = Duration::zero();
  return policy;
}

collective::Shape Engine::shape_of(const std::vector<int>& ranks) const {
  std::vector<std::string> hosts;
  std::vector<int> host_of;
  for (int rank : ranks) {
    const std::string& host = peers_[static_cast<size_t>(rank)].host;
    auto found = std::find(hosts.begin(), hosts.end(), host);
    host_of.push_back(static_cast<int>(found - hosts.begin()));
    if (found == hosts.end()) hosts.push_back(host);
  }
  return collective::Shape(std::move(host_of));
}

std::unique_ptr<transport::Watcher> Engine::make_watcher(const std::vector<int>& ranks, bool shares_memory) {
  using OnEnd = GroupWatcher::OnEnd;
  return std::make_unique<GroupWatcher>(*control_, ranks, shares_memory ? OnEnd::kIsDead : OnEnd::kMayHaveLeft);
}

Result<std::unique_ptr<Plane>> Engine::make_plane(const std::vector<int>& ranks, const GroupTerms& terms,
                                                  std::byte* area, transport::Watcher& watcher, Deadline deadline) {
  if (options_.fabric != nullptr) return make_fabric_plane(ranks, terms);
  if (terms.shares_memory && !terms.needs_wires) return make_direct_plane(ranks, terms, area, watcher);
  HORO_ASSIGN(auto mesh, make_mesh_plane(ranks, terms, watcher, deadline));
  if (terms.shares_memory) return make_hierarchy_plane(ranks, terms, area, std::move(mesh));
  return std::unique_ptr<Plane>(std::move(mesh));
}

Result<std::unique_ptr<Plane>> Engine::make_fabric_plane(const std::vector<int>& ranks, const GroupTerms& terms) {
  HORO_ASSIGN(auto group, options_.fabric->group(ranks, terms.id));
  const auto member = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), options_.rank) - ranks.begin());
  return std::unique_ptr<Plane>(
      std::make_unique<FabricPlane>(options_.fabric->transport_name(), std::move(group), ranks, member));
}

// Of the members on this host.
Result<transport::Space> Engine::make_space(const std::vector<int>& ranks, const GroupTerms& terms, std::byte* area,
                                            transport::Watcher& watcher) {
  const std::vector<int> near = on_this_host(ranks);
  const auto size = static_cast<int>(near.size());
  const auto member_of = [&](int rank) {
    return static_cast<size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
  };
  transport::Space space;
  space.transport_name = "shm";
  space.size = size;
  space.names = near;
  space.own = {area, staging_bytes(size)};
  space.own_buffers = memory_.get();
  space.policy = wait_policy();
  space.commit = [this, own = space.own, already = uint64_t{0}](size_t bytes) mutable -> Status {
    HORO_TRY(memory_->commit(own, bytes, already));
    already = std::max<uint64_t>(already, bytes);
    return {};
  };
  const bool read = std::all_of(near.begin(), near.end(), [&](int rank) {
    return rank == options_.rank || control_->link(rank)->memory->unshared.has_value();
  });
  log_.debug("memory that ", ranks_text(near), " do not share can", read ? "" : "not", " be read by this rank");
  for (int place = 0; place < size; ++place) {
    const int rank = near[static_cast<size_t>(place)];
    if (rank == options_.rank) space.rank = place;
    const Link* link = rank == options_.rank ? nullptr : control_->link(rank);
    const std::span<const std::byte> segment =
        link == nullptr ? memory_->segment().memory() : link->memory->segment.memory();
    const uint64_t offset = terms.areas[member_of(rank)];
    if (segment.size() < area_bytes(size) || offset > segment.size() - area_bytes(size)) {
      return Status(Code::kCorrupt, text("rank ", rank, " announced staging outside its segment"));
    }
    space.segments.push_back(segment);
    space.buffers.push_back(link == nullptr ? memory_->buffers().memory() : link->memory->buffers.memory());
    space.areas.push_back(segment.data() + offset);
    space.lives.push_back(link == nullptr ? nullptr : &link->memory->header().life);
    if (read) space.processes.push_back(link == nullptr ? nullptr : &*link->memory->unshared);
  }
  std::span<std::byte> region = near.front() == options_.rank ? memory_->region().memory()
                                                              : control_->link(near.front())->memory->region.memory();
  const uint64_t page = terms.pages[member_of(near.front())];
  if (region.size() < transport::ControlPage::bytes(size) ||
      page > region.size() - transport::ControlPage::bytes(size)) {
    return Status(Code::kCorrupt, text("rank ", near.front(), " announced a control page outside its region"));
  }
  space.page = transport::ControlPage(region.data() + page, size);
  space.watcher = &watcher;
  return space;
}

Result<std::unique_ptr<Plane>> Engine::make_direct_plane(const std::vector<int>& ranks, const GroupTerms& terms,
                                                         std::byte* area, transport::Watcher& watcher) {
  HORO_ASSIGN(transport::Space space, make_space(ranks, terms, area, watcher));
  return std::unique_ptr<Plane>(
      std::make_unique<DirectPlane>(std::move(space), collective::direct::Thresholds{}, table_.version));
}

Result<std::unique_ptr<Plane>> Engine::make_hierarchy_plane(const std::vector<int>& ranks, const GroupTerms& terms,
                                                            std::byte* area, std::unique_ptr<MeshPlane> mesh) {
  HostMemory host;
  host.watcher = make_watcher(on_this_host(ranks), true);
  HORO_ASSIGN(host.space, make_space(ranks, terms, area, *host.watcher));
  const uint64_t staging_bytes = this->staging_bytes(host.space.size);
  for (const std::byte* staging : host.space.areas) host.keeps.push_back(staging + staging_bytes);
  host.slot_bytes = slot_bytes();
  host.own_keep = {area + staging_bytes, HostMemory::keep_bytes(host.slot_bytes)};
  HORO_TRY(memory_->commit(host.own_keep, HostMemory::kWords, 0));
  host.commit = [this](std::span<std::byte> part, uint64_t bytes, uint64_t already) {
    return memory_->commit(part, bytes, already);
  };
  const auto member = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), options_.rank) - ranks.begin());
  HORO_ASSIGN(const collective::Forced forced, this->forced());
  return std::unique_ptr<Plane>(std::make_unique<HierarchyPlane>(std::move(host), std::move(mesh),
                                                                 Levels(shape_of(ranks), member), table_, forced));
}

Result<net::AttachedStream> Engine::attach(const std::vector<int>& ranks, int rank, const net::AttachRequest& about,
                                           Deadline deadline) {
  const net::Address& at = peers_[static_cast<size_t>(rank)].tcp;
  const auto failed = [&](const Status& why) {
    return why.prefixed(
        text("rank ", options_.rank, " cannot open a data stream to rank ", rank, " at ", at.to_string()));
  };
  auto socket = net::Socket::connect(at, deadline);
  if (!socket.ok()) return failed(socket.status());
  net::AttachConnector connector(std::move(*socket), *control_->link(rank)->outgoing, about, deadline);
  while (true) {
    if (const Status moved = connector.progress(); !moved.ok()) return failed(moved);
    if (connector.done()) return connector.take();
    const Deadline look = deadline.earlier(Deadline::after(kLookAgain));
    const Status ready = net::wait_ready(connector.fd(), connector.interest(), look, "attaching a stream");
    if (ready.ok()) continue;
    if (ready.code() != Code::kTimeout || deadline.expired()) return failed(ready);
    HORO_TRY(control_->check_coming(about.group, ranks, rank));
  }
}

// The higher rank of a pair opens its streams.
Result<std::vector<std::vector<transport::tcp::Wire>>> Engine::connect_streams(const std::vector<int>& ranks,
                                                                               const GroupTerms& terms,
                                                                               Deadline deadline) {
  const auto streams = static_cast<uint32_t>(options_.config.get(kStreams));
  std::vector<std::vector<transport::tcp::Wire>> wires(ranks.size());
  for (size_t member = 0; member < ranks.size(); ++member) {
    const int rank = ranks[member];
    for (uint32_t stream = 0; rank != options_.rank && stream < streams; ++stream) {
      if (rank < options_.rank) {
        net::AttachRequest about;
        about.protection = control_->link(rank)->protection;
        about.epoch = terms.epoch;
        about.group = static_cast<uint32_t>(terms.id);
        about.stream = stream;
        HORO_ASSIGN(auto attached, attach(ranks, rank, about, deadline));
        wires[member].emplace_back(std::move(attached.socket), std::move(attached.keys));
      } else {
        HORO_ASSIGN(auto attached, control_->take_stream(terms.id, ranks, rank, stream, deadline));
        wires[member].emplace_back(std::move(attached.socket), std::move(attached.keys));
      }
    }
  }
  return wires;
}

Result<std::unique_ptr<MeshPlane>> Engine::make_mesh_plane(const std::vector<int>& ranks, const GroupTerms& terms,
                                                           transport::Watcher& watcher, Deadline deadline) {
  const Config& config = options_.config;
  auto wires = connect_streams(ranks, terms, deadline);
  control_->close_streams(terms.id);
  if (!wires.ok()) return wires.status();
  const transport::tcp::Seat seat{
      .rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), options_.rank) - ranks.begin()),
      .size = static_cast<int>(ranks.size()),
      .epoch = terms.epoch,
      .group = static_cast<uint32_t>(terms.id)};
  transport::tcp::MeshOptions mesh_options;
  mesh_options.checksum = config.get(kChecksum);
  mesh_options.policy = wait_policy();
  mesh_options.watcher = &watcher;
  HORO_ASSIGN(auto mesh, transport::tcp::Mesh::create(seat, std::move(*wires), mesh_options));
  collective::Shape shape = shape_of(ranks);
  HORO_ASSIGN(const collective::Forced forced, this->forced());
  Chooser chooser = [shape, table = table_, forced](const collective::Operation& operation) {
    return collective::select(operation, shape, table, forced);
  };
  return std::make_unique<MeshPlane>(std::move(mesh), std::move(shape), table_, std::move(chooser));
}

}  // namespace horo::group
