// One rank's place in a job: its connections, its memory and its groups.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/log.h"
#include "horo/base/system.h"
#include "horo/collective/selector.h"
#include "horo/collective/table.h"
#include "horo/device/loader.h"
#include "horo/group/bell.h"
#include "horo/group/fabric.h"
#include "horo/group/group.h"
#include "horo/group/group_message.h"
#include "horo/group/link.h"
#include "horo/group/memory.h"
#include "horo/net/keeper.h"
#include "horo/net/key.h"
#include "horo/net/listener.h"
#include "horo/rendezvous/bootstrap.h"
#include "horo/rendezvous/host.h"
#include "horo/rendezvous/store.h"
#include "horo/transport/tcp/link.h"

namespace horo::group {

// A file that only uses an engine compiles in half of the time without them.
class Control;
class MeshPlane;

struct EngineOptions {
  int rank = 0;
  int size = 1;
  std::string job = "horo";
  std::shared_ptr<const net::Key> key;       ///< Null: the job has none, and everything stays on loopback.
  std::shared_ptr<rendezvous::Store> store;  ///< Where ranks find each other; not needed for one rank.
  Config config;
  Log::Sink log_sink;
  const horo_device_plugin* device_plugin = nullptr;  ///< For tests: instead of the one that is installed.
  std::shared_ptr<Fabric> fabric;                     ///< Moves the data of groups of several; null: horo itself does.
  rendezvous::GiveUp give_up;                         ///< For those who wait for others to join; may be null.
};

/// Thread-safe. Several engines in one process are fine.
class Engine {
 public:
  /// Joins the job: publishes this rank's card, connects to all others, makes the group of everybody. Waits for all.
  static Result<std::unique_ptr<Engine>> start(EngineOptions options);
  ~Engine();

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  /// Ranks on this rank's host, in order.
  const std::vector<int>& local_ranks() const { return local_ranks_; }
  uint64_t epoch() const;
  /// Ranks of the current epoch. Where a group has just lost a member, waits until the survivors have agreed about it
  /// (at most HORO_TIMEOUT), so that all of them get the same answer after the same failure.
  std::vector<int> members();
  /// Waits until the ranks of the epoch are others than `members`. False at the deadline, or when this rank was
  /// evicted.
  bool members_differ_from(const std::vector<int>& members, Deadline deadline);
  /// Everybody lost so far, and why.
  std::vector<rendezvous::Loss> losses() const;
  /// See Control::leave_group().
  void leave_group(const Group& group);
  /// From now on rank `members[i]` is called rank i in messages and lists of lost ranks, of the groups that are made
  /// from now on and of those that have no other members. The group that the engine began with, world(), is forgotten:
  /// the caller has another.
  void call_ranks(const std::vector<int>& members);
  /// From now on these ranks, this one included, are a job that goes on only where it has a quorum: whoever hears too
  /// few of them evicts nobody else, and is not believed.
  void keep_quorum(const std::vector<int>& members);
  /// Rings when a letter has come (Post), when a group is over, and when somebody on this rank rings it.
  Bell& bell() { return *bell_; }
  Log& log() { return log_; }
  const Config& config() const { return options_.config; }
  /// Memory that is not the host's.
  device::Source& devices() { return *devices_; }
  const std::shared_ptr<device::Source>& devices_handle() const { return devices_; }
  /// Where the user wants this rank's threads (HORO_THREAD_AFFINITY); -1: anywhere.
  int core() const { return core_; }

  Group& world() { return *world_; }
  const std::shared_ptr<Group>& world_handle() const { return world_; }
  /// Called by all of `ranks` (sorted, this one included), in the same order; waits for them.
  Result<std::shared_ptr<Group>> create_group(const std::vector<int>& ranks, Deadline deadline = Deadline::never());
  /// The engine forgets the group; it ends with its last handle.
  void remove_group(const std::shared_ptr<Group>& group);

  /// Memory that peers on this host see, so that an operation on it needs no copy in. Freed by free() or the end.
  Result<std::span<std::byte>> allocate(size_t bytes);
  void free(std::byte* memory);
  /// Whether peers still see it: not what was in an allreduce that failed, where they may have been writing.
  bool shows(std::span<const std::byte> memory) const;

  /// For one that started but that nobody will use: its rank can be taken again, by this process too. Before
  /// shutdown().
  void withdraw();
  /// Says goodbye; everything under way ends with kStopped. Idempotent. Not from a callback: it waits for these.
  void shutdown();

 private:
  /// What a group uses of this rank's memory, given back when no member uses it any more.
  struct Holding {
    std::shared_ptr<Group> group;
    std::byte* area = nullptr;
    std::optional<uint64_t> page;
  };

  friend class Post;
  explicit Engine(EngineOptions options);
  Status join();
  Status open_listeners(std::vector<net::Listener>& listeners, PeerAddress& mine);
  Status meet_peers(const PeerAddress& mine);
  Status choose_core();
  void watch_peers();
  /// Where peers have nothing but connections to notice the end of this process by.
  void keep_memory();
  Result<std::shared_ptr<Group>> create_group_of_several(const std::vector<int>& ranks, Deadline deadline);
  /// Takes staging, and the control page where this rank is the first of the group on its host.
  Status offer_memory(const std::vector<int>& ranks, GroupOffer& offer, Holding& holding);
  std::vector<std::string> common_settings() const;
  /// What HORO_ALGORITHM and HORO_HIERARCHICAL_* ask for.
  Result<collective::Forced> forced() const;
  std::vector<collective::Way> other_ways(collective::Kind kind, const Plane& plane,
                                          const collective::Shape& shape) const;
  Result<std::unique_ptr<Plane>> make_plane(const std::vector<int>& ranks, const GroupTerms& terms, std::byte* area,
                                            transport::Watcher& watcher, Deadline deadline);
  Result<std::unique_ptr<Plane>> make_fabric_plane(const std::vector<int>& ranks, const GroupTerms& terms);
  Result<transport::Space> make_space(const std::vector<int>& ranks, const GroupTerms& terms, std::byte* area,
                                      transport::Watcher& watcher);
  Result<std::unique_ptr<Plane>> make_direct_plane(const std::vector<int>& ranks, const GroupTerms& terms,
                                                   std::byte* area, transport::Watcher& watcher);
  Result<std::unique_ptr<MeshPlane>> make_mesh_plane(const std::vector<int>& ranks, const GroupTerms& terms,
                                                     transport::Watcher& watcher, Deadline deadline);
  Result<std::unique_ptr<Plane>> make_hierarchy_plane(const std::vector<int>& ranks, const GroupTerms& terms,
                                                      std::byte* area, std::unique_ptr<MeshPlane> mesh);
  Result<net::AttachedStream> attach(const std::vector<int>& ranks, int rank, const net::AttachRequest& about,
                                     Deadline deadline);
  Result<std::vector<std::vector<transport::tcp::Wire>>> connect_streams(const std::vector<int>& ranks,
                                                                         const GroupTerms& terms, Deadline deadline);
  std::unique_ptr<transport::Watcher> make_watcher(const std::vector<int>& ranks, bool shares_memory);
  Result<std::shared_ptr<Group>> add_group(uint64_t id, const std::vector<int>& ranks, std::unique_ptr<Plane> plane,
                                           std::unique_ptr<transport::Watcher> watcher, Holding holding);
  /// Under the lock. Nothing for a group with members that have no name any more.
  void name_members(Group& group) const;
  void retire(const Holding& holding);
  void give_back(const Holding& holding);
  collective::Shape shape_of(const std::vector<int>& ranks) const;
  std::vector<int> on_this_host(const std::vector<int>& ranks) const;
  transport::WaitPolicy wait_policy() const;
  uint64_t staging_bytes(int members) const;
  /// Of the two slots behind the staging of a group that spans hosts.
  uint64_t slot_bytes() const;
  uint64_t area_bytes(int members) const;
  Deadline timeout() const;
  static Status shutdown_status();

  EngineOptions options_;
  Log log_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Bell> bell_;
  Self self_;
  std::vector<PeerAddress> peers_;  ///< By rank.
  std::optional<rendezvous::PeerCard> card_;
  std::vector<int> local_ranks_;
  int core_ = -1;
  collective::Table table_;
  std::shared_ptr<device::Source> devices_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<net::Keeper> keeper_;
  std::mutex mutex_;
  std::vector<Holding> groups_;
  /// Frees memory that is aligned to a page.
  struct FreePages {
    void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t(page_size())); }
  };
  std::vector<int> called_;  ///< By name; empty: everybody has the name that it started with.
  std::map<std::byte*, std::unique_ptr<std::byte, FreePages>> plain_buffers_;  ///< Without shared memory.
  std::shared_ptr<Group> world_;
  std::atomic<uint32_t> solo_groups_ = 0;
  bool ended_ = false;
};

}  // namespace horo::group
