#include "horo/group/engine.h"

#include <algorithm>

#include "horo/base/failpoint.h"
#include "horo/base/text.h"
#include "horo/group/affinity.h"
#include "horo/group/control.h"
#include "horo/group/fork.h"
#include "horo/group/knobs.h"
#include "horo/group/solo_plane.h"
#include "horo/rendezvous/bootstrap.h"

namespace horo::group {

namespace {

Status check_ranks(const std::vector<int>& ranks, int self, int size) {
  const bool sorted =
      std::is_sorted(ranks.begin(), ranks.end()) && std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end();
  if (ranks.empty() || !sorted || ranks.front() < 0 || ranks.back() >= size) {
    return {Code::kInvalidArgument, text("a group needs different ranks in rising order between 0 and ", size - 1)};
  }
  if (!std::binary_search(ranks.begin(), ranks.end(), self)) {
    return {Code::kInvalidArgument,
            text("rank ", self, " makes a group that it is not a member of: ", ranks_text(ranks))};
  }
  return {};
}

}  // namespace

Engine::Engine(EngineOptions options) : options_(std::move(options)), log_(LogLevel::kWarning, options_.log_sink) {
  log_.set_rank(options_.rank);
  log_.set_level(log_level_named(options_.config.get(kLogLevel)).value_or(LogLevel::kWarning));
  log_.set_hide_time(options_.config.get(kLogHideTime));
  table_.deterministic = options_.config.get(kDeterministic);
  devices_ = options_.device_plugin == nullptr
                 ? std::make_shared<device::Source>(options_.config)
                 : std::make_shared<device::Source>(options_.config, *options_.device_plugin);
}

Engine::~Engine() {
  if (control_ && control_->forked()) {
    // The threads are the parent's. Nothing here may be touched, least of all joined.
    (void)control_.release();
    (void)keeper_.release();
    (void)new (std::nothrow) std::vector<Holding>(std::move(groups_));
    (void)new (std::nothrow) std::shared_ptr<Group>(std::move(world_));
    (void)new (std::nothrow) std::shared_ptr<device::Source>(std::move(devices_));
    return;
  }
  shutdown();
}

Deadline Engine::timeout() const { return Deadline::after(options_.config.get(kTimeout)); }

Result<std::unique_ptr<Engine>> Engine::start(EngineOptions options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return Status(Code::kInvalidArgument, text("rank ", options.rank, " of ", options.size, " ranks does not exist"));
  }
  std::unique_ptr<Engine> engine(new Engine(std::move(options)));
  for (const std::string& warning : engine->options_.config.warnings()) engine->log_.warning(warning);
  for (const std::string& note : engine->options_.config.notes()) engine->log_.info(note);
  for (const std::string& name : engine->options_.config.ignored()) engine->log_.debug("ignored: ", name);
  const Status joined = engine->join();
  if (joined.ok()) return engine;
  engine->withdraw();
  return joined;
}

void Engine::withdraw() {
  if (options_.store && card_) rendezvous::withdraw_card(*options_.store, options_.job, *card_);
  card_.reset();
}

Status Engine::join() {
  const Config& config = options_.config;
  HORO_TRY(core_for(config.get(kThreadAffinity), 0, 1).status());  // Before anybody else hears of it.
  if (config.get(kTransport) != "tcp" && options_.size > 1) {
    auto memory = Memory::create(options_.rank);
    if (memory.ok()) {
      memory_ = std::move(*memory);
    } else {
      log_.info("no shared memory here, ranks of this host use sockets: ", memory.status());
    }
  }
  bell_ = memory_ ? std::make_unique<Bell>(memory_->header().bell) : std::make_unique<Bell>();
  self_.rank = options_.rank;
  self_.job = options_.job;
  self_.memory = memory_.get();
  self_.encrypt = config.get(kEncrypt);
  self_.reads_peers = config.get(kReadPeers);
  HORO_ASSIGN(self_.tls, net::Tls::create());
  self_.key = options_.key;
  if (!self_.key) {
    HORO_ASSIGN(net::Key none, net::Key::none());
    self_.key = std::make_shared<const net::Key>(std::move(none));
  }
  control_ = std::make_unique<Control>(Control::Options{.self = self_,
                                                        .size = options_.size,
                                                        .timeout = config.get(kTimeout),
                                                        .freeze_timeout = config.get(kFreezeTimeout),
                                                        .bell = bell_.get()},
                                       log_);
  track_fork(*control_);
  PeerAddress mine;
  mine.rank = options_.rank;
  std::vector<net::Listener> listeners;
  if (options_.size > 1) HORO_TRY(open_listeners(listeners, mine));
  HORO_TRY(control_->start(std::move(listeners)));
  HORO_FAILPOINT_TRY("join.listening");
  HORO_TRY(meet_peers(mine));
  HORO_FAILPOINT_TRY("join.connected");
  HORO_TRY(choose_core());
  watch_peers();
  keep_memory();
  std::vector<int> everybody(static_cast<size_t>(options_.size));
  for (int rank = 0; rank < options_.size; ++rank) everybody[static_cast<size_t>(rank)] = rank;
  HORO_ASSIGN(world_, create_group(everybody, timeout()));
  options_.give_up = nullptr;  // Nobody is waited for any more; it may hold what is long over.
  return {};
}

uint64_t Engine::epoch() const { return control_->epoch(); }
std::vector<rendezvous::Loss> Engine::losses() const { return control_->losses(); }
void Engine::leave_group(const Group& group) { control_->leave_group(group); }
void Engine::keep_quorum(const std::vector<int>& members) { control_->keep_quorum(members); }

std::vector<int> Engine::members() {
  if (control_->forked()) return {};
  std::vector<int> gone;
  {
    std::lock_guard lock(mutex_);
    for (const Holding& holding : groups_) {
      const std::vector<int> ranks = holding.group->gone();
      gone.insert(gone.end(), ranks.begin(), ranks.end());
    }
  }
  return control_->members_without(gone, timeout());
}

bool Engine::members_differ_from(const std::vector<int>& members, Deadline deadline) {
  return !control_->forked() && control_->members_differ_from(members, deadline);
}

void Engine::call_ranks(const std::vector<int>& members) {
  std::lock_guard lock(mutex_);
  called_ = members;
  world_.reset();
  for (const Holding& holding : groups_) name_members(*holding.group);
}

void Engine::name_members(Group& group) const {
  if (called_.empty()) return;
  std::vector<int> names;
  for (int rank : group.ranks()) {
    const auto found = std::lower_bound(called_.begin(), called_.end(), rank);
    if (found == called_.end() || *found != rank) return;
    names.push_back(static_cast<int>(found - called_.begin()));
  }
  group.call_members(std::move(names));
}

Status Engine::shutdown_status() { return {Code::kStopped, "the engine was shut down"}; }

void Engine::shutdown() {
  if (control_ && control_->forked()) return;
  std::vector<Holding> groups;
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    groups.swap(groups_);
  }
  for (Holding& holding : groups) holding.group->stop(shutdown_status(), Group::Leaving::kWholeRank);
  // MPI ends its operations when it likes.
  for (Holding& holding : groups) {
    if (options_.fabric == nullptr) holding.group->join();
  }
  if (!control_) return;
  HORO_FAILPOINT("shutdown.stopped");
  for (const Holding& holding : groups) retire(holding);
  control_->stop();
  untrack_fork(*control_);
}

void Engine::retire(const Holding& holding) {
  Holding memory{.area = holding.area, .page = holding.page};
  control_->remove_group(*holding.group, [this, memory] { give_back(memory); });
}

void Engine::give_back(const Holding& holding) {
  if (holding.area != nullptr) memory_->free_area(holding.area);
  if (holding.page) memory_->free_page(*holding.page);
}

Result<std::span<std::byte>> Engine::allocate(size_t bytes) {
  if (control_->forked()) return Status(Code::kForked, "a forked child cannot allocate buffers");
  if (memory_) return memory_->allocate(bytes);
  std::lock_guard lock(mutex_);
  // As with shared memory, what cannot be there is an error now and not an end by the system later.
  const auto room = System().memory();
  const bool fits = !room.ok() || bytes <= room->available();
  void* pages = fits ? ::operator new(bytes, std::align_val_t(page_size()), std::nothrow) : nullptr;
  std::unique_ptr<std::byte, FreePages> memory(static_cast<std::byte*>(pages));
  if (!memory) return Status(Code::kUnavailable, text("no memory for a buffer of ", bytes_text(bytes)));
  std::span<std::byte> span(memory.get(), bytes);
  plain_buffers_[span.data()] = std::move(memory);
  return span;
}

void Engine::free(std::byte* memory) {
  if (control_->forked()) return;
  if (memory_) return memory_->free(memory);
  std::lock_guard lock(mutex_);
  plain_buffers_.erase(memory);
}

bool Engine::shows(std::span<const std::byte> memory) const {
  return !memory_ || memory_->shows(memory.data(), memory.size());
}

Result<std::shared_ptr<Group>> Engine::create_group(const std::vector<int>& ranks, Deadline deadline) {
  if (control_->forked()) return Status(Code::kForked, "a forked child cannot make groups");
  HORO_TRY(check_ranks(ranks, options_.rank, options_.size));
  if (ranks.size() == 1) {
    // No frame carries it: beyond the 32 bits of those that travel.
    const uint64_t id = uint64_t{1} << 32 | solo_groups_.fetch_add(1, std::memory_order_relaxed);
    return add_group(id, ranks, std::make_unique<SoloPlane>(), nullptr, {});
  }
  return create_group_of_several(ranks, deadline);
}

Result<std::shared_ptr<Group>> Engine::create_group_of_several(const std::vector<int>& ranks, Deadline deadline) {
  const collective::Shape shape = shape_of(ranks);
  const bool own_plane = options_.fabric == nullptr;
  GroupOffer offer{.needs_wires = own_plane && shape.hosts().size() > 1, .settings = common_settings()};
  Holding holding;
  if (own_plane && shape.most_per_host() > 1 && memory_ != nullptr) {
    if (Status offered = offer_memory(ranks, offer, holding); !offered.ok()) {
      log_.info("a group of ", ranks_text(ranks), " uses sockets: ", offered);
    }
  }
  auto terms = control_->agree_on_group(ranks, offer, deadline);
  // What was offered stays taken when there is no group after all: others may have begun to use it, and whoever finds
  // out that it is over later than this rank revokes its page, which must not be another group's by then.
  if (!terms.ok()) {
    if (terms.status().code() == Code::kMismatch) give_back(holding);
    return terms.status();
  }
  HORO_FAILPOINT("group.agreed");
  auto watcher = make_watcher(ranks, terms->shares_memory && !terms->needs_wires);
  auto plane = make_plane(ranks, *terms, holding.area, *watcher, timeout().earlier(deadline));
  if (!plane.ok()) {
    control_->refuse_group(terms->id, ranks, plane.status(), [this, holding] { give_back(holding); });
    return plane.status();
  }
  HORO_FAILPOINT("group.plane");
  return add_group(terms->id, ranks, std::move(*plane), std::move(watcher), holding);
}

Result<std::shared_ptr<Group>> Engine::add_group(uint64_t id, const std::vector<int>& ranks,
                                                 std::unique_ptr<Plane> plane,
                                                 std::unique_ptr<transport::Watcher> watcher, Holding holding) {
  GroupOptions group_options;
  group_options.id = id;
  group_options.ranks = ranks;
  group_options.member = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), options_.rank) - ranks.begin());
  group_options.shape = shape_of(ranks);
  // The members that do not answer are given up after one of these, and the agreement begins anew.
  group_options.limit = options_.config.get(kTimeout);
  group_options.settle_limit = 2 * group_options.limit;
  group_options.ways = {other_ways(collective::Kind::kAllreduce, *plane, group_options.shape),
                        other_ways(collective::Kind::kAllgather, *plane, group_options.shape)};
  group_options.core = core_;
  group_options.devices = devices_;
  const std::string path = options_.config.get(kDevicePath);
  group_options.device_path = path == "nccl"     ? DevicePath::kFabric
                              : path == "direct" ? DevicePath::kDirect
                              : path == "staged" ? DevicePath::kStaged
                                                 : DevicePath::kAuto;
  group_options.share_devices = options_.config.get(kShareDevices);
  const std::string hold = options_.config.get(kDeviceHold);
  group_options.device_hold = hold == "always"  ? DeviceHold::kAlways
                              : hold == "never" ? DeviceHold::kNever
                                                : DeviceHold::kAuto;
  auto group = std::make_shared<Group>(std::move(group_options), std::move(plane), std::move(watcher), *control_, log_);
  log_.info("group ", id, " of ", ranks_text(ranks), " over ", group->transport_name());
  if (Status added = control_->add_group(group); !added.ok()) {
    group->stop(added);
    return added;
  }
  holding.group = group;
  std::lock_guard lock(mutex_);
  if (ended_) return shutdown_status();
  name_members(*group);
  groups_.push_back(std::move(holding));
  return group;
}

void Engine::remove_group(const std::shared_ptr<Group>& group) {
  if (control_->forked()) return;  // Somebody may hold the lock there for ever.
  Holding holding;
  {
    std::lock_guard lock(mutex_);
    auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Holding& one) { return one.group == group; });
    if (found == groups_.end()) return;
    holding = std::move(*found);
    groups_.erase(found);
  }
  group->stop(Status(Code::kStopped, "the group was destroyed"));
  group->join();
  retire(holding);
}

}  // namespace horo::group
