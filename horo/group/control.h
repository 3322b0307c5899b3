// The control thread of an engine: it owns the connections to all peers, answers probes, notices who is gone, and
// drives the agreement about it. It never runs an operation, never takes a lock that is held during one, and never
// waits for anything but its poller, so it answers whatever the application does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "horo/base/log.h"
#include "horo/base/thread.h"
#include "horo/group/arrivals.h"
#include "horo/group/group.h"
#include "horo/group/group_message.h"
#include "horo/group/link.h"
#include "horo/group/partly_served.h"
#include "horo/net/listener.h"
#include "horo/net/poller.h"
#include "horo/net/wake.h"
#include "horo/rendezvous/bootstrap.h"
#include "horo/rendezvous/membership.h"
#include "horo/rendezvous/suspicion.h"
#include "horo/transport/space.h"

namespace horo::group {

class Mailbox;

/// What a control frame is about, beyond its type.
struct About {
  uint64_t group = 0;
  uint64_t operation = 0;
  uint64_t offset = 0;
  bool last = false;
};

class Control : public GroupHost {
 public:
  struct Options {
    Self self;
    int size = 1;
    Duration timeout = std::chrono::seconds(30);
    Duration freeze_timeout = std::chrono::seconds(10);
    Bell* bell = nullptr;  ///< Rung when something has changed that a loop may wait for. Outlives the control thread.
  };

  Control(Options options, Log& log);
  ~Control() override;

  /// Starts the thread. The listeners are handed over.
  Status start(std::vector<net::Listener> listeners);
  /// Says goodbye to everybody and ends the thread. Groups must have been stopped.
  void stop();

  // From the caller's thread, each waiting for the control thread:
  Status add_link(Link link);
  /// Until there is a link to every other rank. Fails when one is lost before, and as `give_up` does, if there is one.
  Status wait_for_links(Deadline deadline, const rendezvous::GiveUp& give_up = {});
  /// Meets the other members at the first of them. Fails when one of them is lost. Whatever the failure, but for
  /// kMismatch, others may have got the terms, and use what was offered.
  Result<GroupTerms> agree_on_group(const std::vector<int>& ranks, GroupOffer offer, Deadline deadline);
  /// This rank cannot make the group that was agreed on: the others must not wait for it. `release` is called as in
  /// remove_group(); it may be null.
  void refuse_group(uint64_t group, const std::vector<int>& ranks, const Status& why, std::function<void()> release);
  /// A stream that rank `from` attached for a group of `ranks` that was agreed on. Fails when one of them is lost: then
  /// `from` may have given the group up.
  Result<net::AttachedStream> take_stream(uint64_t group, const std::vector<int>& ranks, int from, uint32_t stream,
                                          Deadline deadline);
  /// For who waits itself until `rank` does its part for such a group, every 100 ms: why that is in vain, if it is.
  Status check_coming(uint64_t group, const std::vector<int>& ranks, int rank);
  /// The group needs no more of them.
  void close_streams(uint64_t group);
  Status add_group(const std::shared_ptr<Group>& group);
  /// Tells the other members that this rank comes to no further operation of the group. It must have none under way.
  /// The group stays: others may need what it holds.
  void leave_group(const Group& group);
  /// `release` is called, on the control thread, when no other member uses the group any more either. Until then this
  /// rank answers for what it completed in it. Nothing may be under way.
  void remove_group(const Group& group, std::function<void()> release);

  // Letters between members that share no memory, from any thread. The mailbox gets those of a group.
  void add_mailbox(uint64_t group, std::shared_ptr<Mailbox> mailbox);
  void remove_mailbox(uint64_t group, const Mailbox& mailbox);
  void send_letters(uint64_t group, int rank, uint64_t offset, std::vector<std::byte> bytes);
  void tell_taken(uint64_t group, int rank, uint64_t taken);
  /// `release` is called, on the control thread, when no member uses the group any more; not when the engine ends.
  void when_released(uint64_t group, std::function<void()> release);

  /// Its thread runs on that core alone; -1: anywhere.
  Status stay_on(int core) { return thread_.stay_on(core); }

  // From any thread:
  Status admit_stream(const net::AttachRequest& about) const;
  const Link* link(int rank) const;  ///< Stays valid; only memory and keys may be used by other threads.
  void note_waiting(int rank, Time since);
  void found_dead(int rank);    ///< Its process is certainly gone.
  void stream_ended(int rank);  ///< Its data stream ended: it is dead, or cut off, or has left; it will show.
  uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }
  /// Ranks of the installed view, once none of `gone` is among them, or at the deadline.
  std::vector<int> members_without(const std::vector<int>& gone, Deadline deadline);
  /// Waits until the installed view is another than `members`. False at the deadline, or when this rank was evicted.
  bool members_differ_from(const std::vector<int>& members, Deadline deadline);
  /// Evicting somebody, and believing that somebody was, takes a quorum of these from now on.
  void keep_quorum(const std::vector<int>& ranks);
  void mark_forked();

  void report(uint64_t epoch, const rendezvous::Report& report) override;
  void settled(uint64_t epoch, uint64_t group) override;
  void abandon(uint64_t group, const Status& why) override;
  bool forked() const override { return forked_.load(std::memory_order_relaxed); }
  std::vector<rendezvous::Loss> losses() const override;
  std::optional<std::string> fenced() const override;
  void over_changed() override;

 private:
  using Join = std::map<int, GroupOffer>;  ///< Who has come.
  struct Serving {
    uint64_t group, operation;
    int to;
    uint64_t offset;
  };

  /// Somebody waits for these ranks as long as it lives: whoever says goodbye counts as lost at once. Made and ended
  /// without the mutex.
  class Wanted {
   public:
    Wanted(Control& control, const std::vector<int>& ranks) : control_(control), ranks_(ranks) { tell(true); }
    ~Wanted() { tell(false); }
    Wanted(const Wanted&) = delete;
    Wanted& operator=(const Wanted&) = delete;

   private:
    void tell(bool wanted) {
      control_.post([&control = control_, ranks = ranks_, wanted] { control.want(ranks, wanted); });
    }
    Control& control_;
    const std::vector<int> ranks_;
  };

  /// False when the control thread has ended, and the task will not be run.
  bool post(std::function<void()> task);
  /// Waits until the control thread has run the task. Why it has ended, if it has.
  Status run(const std::function<void()>& task);
  void loop(const std::stop_token& stop);
  void say_goodbye();
  Deadline next_deadline() const;
  void run_tasks();
  void run_last_tasks();
  void on_event(const net::Event& event);
  void on_listener(size_t index);
  void on_channel(Link& link);
  /// All that have come. kStopped when the peer has ended the connection in order.
  Status read_messages(Link& link);
  void hear_out(Link& link);
  void on_message(Link& link, const net::Message& message);
  void tick(Time now);

  void step(const rendezvous::Input& input);
  void carry_out(const rendezvous::Output& output);
  void watch(const rendezvous::watch::Input& input);
  void update_waits(Time now);
  void lose(int rank, rendezvous::LossReason reason);
  void evict(const rendezvous::watch::Evict& evict);
  /// Under the lock: why a group of `ranks` cannot be, if one of them is lost or this one cannot go on.
  Status check_members(const std::vector<int>& ranks) const;
  /// Under the lock: the same of a group that was agreed on, which a member may have given up.
  Status check_group(uint64_t group, const std::vector<int>& ranks) const;
  /// Under the lock: until something may have changed, or the deadline (then false). Whoever is waited for is probed,
  /// and evicted if it is frozen.
  bool wait_for_news(std::unique_lock<std::mutex>& lock, const std::vector<int>& from, Deadline deadline);
  void fade(int rank);
  void want(const std::vector<int>& ranks, bool wanted);

  void send(int rank, ControlType type, std::span<const std::byte> payload, const About& about = {});
  void serve_more();
  /// None if no member uses the group any more.
  std::optional<std::span<const std::byte>> retained(uint64_t group, uint64_t operation) const;
  void on_join(int from, JoinGroup wish);
  void on_withdraw(int from, const JoinGroup& wish);
  void send_to_first(ControlType type, const JoinGroup& wish);
  void send_abandon(uint64_t group, const std::vector<int>& ranks, const Status& why);
  std::optional<uint64_t> new_group_id();
  void announce(const std::vector<int>& ranks, const Join& join);
  void on_ready(GroupReady ready);
  void tell_what_happened(Group& group);
  void say_left(uint64_t group, const std::vector<int>& ranks, uint64_t passed, ControlType how);
  bool may_wake_up(int lost_rank) const;
  void release_groups();
  void release_more(uint64_t group);
  void on_letters(int rank, const net::Message& message);
  void update_interest(Link& link);
  Status add_link_here(Link link);
  void decided(const rendezvous::output::Decide& decide);

  const Options options_;
  Log& log_;
  std::atomic<bool> forked_{false};
  std::atomic<uint64_t> epoch_{0};

  // Owned by the control thread once it runs.
  std::optional<net::Poller> poller_;
  std::vector<net::Listener> listeners_;
  std::set<size_t> deaf_;  ///< Listeners that are broken.
  rendezvous::Membership membership_;
  rendezvous::Suspicion suspicion_;
  std::map<int, Time> waits_;   ///< Ranks that some group waits for, and when that was last said.
  std::vector<int> watched_;    ///< Whom the suspicion watches.
  std::multiset<int> wanted_;   ///< Ranks that some caller waits for, and that need not fade if they have left.
  std::map<int, Time> fading_;  ///< Ranks that said goodbye or whose stream ended, and when they count as lost.
  std::map<uint64_t, std::shared_ptr<Group>> groups_;
  std::map<std::vector<int>, std::vector<Join>> joins_;  ///< Groups that this rank is the first member of.
  uint64_t groups_made_ = 0;
  struct Retired {
    std::set<int> others;  ///< Members that may still read what this rank put into the group, or lack a result of it.
    std::function<void()> release;
    rendezvous::Report progress;           ///< Of this rank, which comes to nothing more.
    std::shared_ptr<const Plane> results;  ///< May be null.
  };
  std::map<uint64_t, Retired> retired_;  ///< Groups that ended here, or were refused.
  Retired& retire(uint64_t group, const std::vector<int>& ranks);
  struct Departure {
    uint64_t after = 0;  ///< The last operation that it took part in.
    bool ended = false;  ///< And uses the group no more.
  };
  std::map<uint64_t, std::map<int, Departure>> departed_;  ///< Who has left which group.
  std::vector<Serving> serving_;
  PartlyServed partly_served_;

  // Shared with callers.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> tasks_;
  bool ended_ = false;                          ///< Nobody runs tasks any more; broken_ says why.
  std::map<int, std::unique_ptr<Link>> links_;  ///< Links are added once and stay until the end.
  std::map<std::vector<int>, std::vector<GroupTerms>> terms_;
  uint64_t attempts_ = 0;  ///< Groups that this rank has offered something to.
  /// Groups that a member gave up before this rank had them ready.
  std::map<uint64_t, Status> given_up_;
  static constexpr size_t kMostGivenUp = 256;
  Arrivals arrivals_;
  std::map<uint64_t, std::shared_ptr<Mailbox>> mailboxes_;
  std::multimap<uint64_t, std::function<void()>> releases_;
  std::vector<rendezvous::Loss> losses_;
  std::vector<int> members_;
  std::optional<std::string> fenced_;
  std::optional<Status> broken_;  ///< Why the control thread cannot go on.

  std::optional<net::Wake> wake_;
  Thread thread_;
};

}  // namespace horo::group
