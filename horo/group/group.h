// A group of ranks that make the same calls in the same order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "horo/base/log.h"
#include "horo/base/thread.h"
#include "horo/collective/operation.h"
#include "horo/device/device.h"
#include "horo/group/device_host.h"
#include "horo/group/device_path.h"
#include "horo/group/plane.h"
#include "horo/group/request.h"
#include "horo/rendezvous/membership.h"
#include "horo/transport/space.h"

namespace horo::device {
class Source;
}

namespace horo::group {

class DeviceOperations;

/// What a group needs of the engine it lives in. Called from any thread; must not block.
class GroupHost {
 public:
  virtual ~GroupHost() = default;
  /// The group has left its operation after a revocation and reports how far it came.
  virtual void report(uint64_t epoch, const rendezvous::Report& report) = 0;
  /// Everything that was decided to succeed is here.
  virtual void settled(uint64_t epoch, uint64_t group) = 0;
  /// This rank gives up the group (a deadline passed, bytes were damaged): the other members must hear of it.
  virtual void abandon(uint64_t group, const Status& why) = 0;
  /// This process was forked off the one that the engine belongs to.
  virtual bool forked() const = 0;
  /// Everybody lost so far, with reasons: for messages.
  virtual std::vector<rendezvous::Loss> losses() const = 0;
  /// Set when the others went on without this rank.
  virtual std::optional<std::string> fenced() const = 0;
  /// What over() says about the group has changed: wakes the loop.
  virtual void over_changed() = 0;
};

struct GroupOptions {
  uint64_t id = 0;
  std::vector<int> ranks;  ///< In the job; the members in order.
  int member = 0;          ///< This rank's place in `ranks`.
  collective::Shape shape = collective::Shape::on_one_host(1);
  Duration limit = std::chrono::seconds(30);  ///< For what is made between members.
  Duration settle_limit = std::chrono::seconds(60);
  /// What operations of a kind can take besides the usual way. Equal on all members.
  struct Ways {
    std::vector<collective::Way> allreduce, allgather;
  } ways = {};
  int core = -1;                                      ///< Where its thread stays; -1: anywhere.
  std::shared_ptr<device::Source> devices = nullptr;  ///< Null: operations on the host's memory only.
  DevicePath device_path = DevicePath::kAuto;
  bool share_devices = false;
  DeviceHold device_hold = DeviceHold::kAuto;
};

/// Threads. A blocking call with nothing before it takes the execution token (one atomic) and runs on the caller's
/// thread. Everything else runs, one at a time and in order, on the group's own thread, which is started when it is
/// first needed and sleeps when there is nothing to do. revoke(), decide() and serve-related calls come from the
/// control thread and never wait for an operation.
///
/// Failure. When a member is lost the plane is revoked; the operation under way ends; the group reports how far it
/// came. A plane that decides alone fails the operation at once. Otherwise the group waits for the decision of the
/// survivors: an operation that any of them completed succeeds here too. Afterwards every operation fails with the same
/// status.
class Group : private DeviceHost {
 public:
  /// `watcher` is what the plane was given; may be null.
  Group(GroupOptions options, std::unique_ptr<Plane> plane, std::unique_ptr<transport::Watcher> watcher,
        GroupHost& host, Log& log);
  ~Group() override;

  uint64_t id() const { return options_.id; }
  int member() const { return options_.member; }
  int size() const { return static_cast<int>(options_.ranks.size()); }
  const std::vector<int>& ranks() const { return options_.ranks; }
  /// What the members are called in messages and in lists of lost ranks: their ranks, unless call_members() said else.
  std::vector<int> names() const;
  void call_members(std::vector<int> names);
  const collective::Shape& shape() const { return options_.shape; }
  std::string_view transport_name() const { return plane_->transport_name(); }
  std::string_view algorithm_name() const { return plane_->algorithm_name(); }
  /// "nccl", "direct", "staged", "local": how the last operation on a device went. Of the thread that ran it.
  std::string_view device_path_name() const;
  const GroupOptions::Ways& ways() const { return options_.ways; }

  /// Of the last operation that ended here as on all members: it succeeded, or all refused it. Who leaves the job is
  /// missed as a rank: that it comes to no further operation is no news about this group.
  uint64_t passed() const { return leaves_job_.load() ? UINT64_MAX : passed_.load(std::memory_order_acquire); }
  /// How many operations have begun here.
  uint64_t operations() const { return number_.load(std::memory_order_relaxed); }

  /// Ranks in the job of the members that this group has missed in an operation.
  std::vector<int> gone() const;

  /// Why nothing can succeed in this group any more, with the ranks lost so far (a member is gone, left or gave up;
  /// this rank was evicted or stopped): what later operations get, without their number. None while the group lives.
  /// The engine's bell rings when it changes. From any thread; one atomic while there is none.
  ///
  /// Members may find the group revoked before they hear why. So long, but not longer than ask_again(), there is none.
  std::optional<Status> over() const;
  /// Never, unless the group is over and it is not known why.
  Deadline ask_again() const;
  /// This rank gives the group up: it is over, here and, as soon as they hear of it, on the other members.
  void give_up(const Status& why) override;
  /// Somebody here has waited for a word of `member` since then: it is probed, and evicted if it is frozen. To be told
  /// every 100 ms, from 100 ms on.
  void note_waiting(int member, Time since);

  /// Runs one operation and returns its outcome. Threads of the library do not spin: they would steal from the
  /// application. `sequel` is of an operation on a device that no other comes before.
  Status run(const collective::Operation& operation, const std::byte* in, std::byte* out,
             Deadline deadline = Deadline::never(), bool may_spin = true, const device::Sequel& sequel = {});
  /// The same, but an operation on a device may be under way still when this returns nothing. `landed` is told the
  /// outcome then, on a thread of the group's; it may submit operations, and must not wait.
  std::optional<Status> start(const collective::Operation& operation, const std::byte* in, std::byte* out,
                              const device::Sequel& sequel, Callback landed);
  /// Queues one operation. The call itself fails only for what is wrong with the call.
  Result<RequestHandle> submit(collective::Operation operation, const std::byte* in, std::byte* out,
                               Deadline deadline = Deadline::never(), Callback callback = {});
  /// Ends everything queued and to come with kStopped. Called by the engine before the group goes. With kWholeRank the
  /// other members find this one gone; otherwise it has left this group only.
  enum class Leaving : uint8_t { kGroup, kWholeRank };
  void stop(const Status& why, Leaving leaving = Leaving::kGroup);
  /// After stop(): waits until its own thread has left the operation it was in. Not from a callback.
  void join();

  // From the control thread:
  void revoke(const rendezvous::output::Revoke& revoke);
  void decide(const rendezvous::output::Decide& decision);
  /// A member gave the group up.
  void abandoned(const Status& why);
  /// A member has left the group in order after operation `passed`. What it brought to that and earlier ones counts; it
  /// comes to no later one, so that those fail everywhere.
  void member_left(int rank, uint64_t passed);
  /// A retained result, for a member that lacks it.
  std::span<const std::byte> retained(uint64_t operation) const { return plane_->retained(operation); }
  /// What others may need of this member when it has ended the group: how far it came, and where results are retained
  /// (null: nowhere, nobody can lack one).
  rendezvous::Report progress() const;
  std::shared_ptr<const Plane> results() const { return plane_->decides_alone() ? nullptr : plane_; }
  void accept_served(uint64_t operation, std::vector<std::byte> result);

 private:
  Status check(const collective::Operation& operation, const std::byte* in, const std::byte* out) const;
  bool take_token();
  void leave_token();
  /// Under the token.
  Status execute(const collective::Operation& operation, const std::byte* in, std::byte* out, Deadline deadline,
                 bool may_spin, const device::Sequel& sequel);
  /// As start().
  std::optional<Status> execute_on_device(const collective::Operation& operation, const std::byte* in, std::byte* out,
                                          Deadline deadline, const device::Sequel& sequel, Callback landed);
  std::optional<Status> execute(const RequestHandle& request);
  OnHost steps_on_host(Deadline deadline);
  Status execute_on_host(const collective::Operation& operation, const std::byte* in, std::byte* out, Deadline deadline,
                         bool may_spin);
  Status out_of_memory(uint64_t number);
  Status end(const Job& job, Status status);
  Status settle(const Job& job, const Status& cause);
  Status failure(const Job& job, const Status& cause) const;
  /// Why the group is over, as far as it is known; `what` failed because of it.
  std::optional<Status> reason(std::string_view what) const;
  void note_over();
  // For operations on devices.
  bool is_over() const override { return is_over_.load(std::memory_order_acquire); }
  Status why_over(std::string_view what) override;
  void wait_over(Duration span) override;
  void note_waiting(Time since) override;
  void warn(const std::string& words) override { log_.warning(words); }
  void await_reason();
  /// Members, by their places.
  std::vector<int> gone_of(const rendezvous::LostSet& lost) const;
  void answer_revocation();
  void settle_when_complete();
  Status ensure_worker();
  void work(const std::stop_token& stop);

  const GroupOptions options_;
  const std::unique_ptr<transport::Watcher> watcher_;  ///< Of the plane, as long as the plane runs.
  const std::shared_ptr<Plane> plane_;
  GroupHost& host_;
  Log& log_;
  const std::unique_ptr<DeviceOperations> on_devices_;  ///< Null where there are none.

  /// The execution token: true while somebody executes an operation.
  std::atomic<bool> token_{false};
  std::atomic<uint64_t> queued_{0};      ///< Size of queue_, to be read without the lock.
  std::atomic<uint64_t> number_{0};      ///< Of the operation that runs or ran last. Written under the token.
  std::atomic<uint64_t> completed_{0};   ///< Of the last that succeeded.
  std::atomic<uint64_t> passed_{0};      ///< See passed().
  std::atomic<bool> leaves_job_{false};  ///< Not in passed_, which an operation that ends at this moment still writes.
  std::atomic<uint64_t> left_after_{~uint64_t{0}};  ///< The last that all members come to.
  std::atomic<bool> must_answer_{false};            ///< A revocation waits for this group's report.
  std::atomic<bool> is_over_{false};                ///< over() has something to say.

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RequestHandle> queue_;
  std::vector<int> names_;      ///< By member.
  std::optional<Status> over_;  ///< Why nothing can succeed any more, if it is not a lost member.
  std::optional<Status> left_;  ///< Why nothing after left_after_ can.
  Time over_since_{};           ///< When is_over_ was set.
  bool stopped_ = false;        ///< stop() was called.
  uint64_t revoked_epoch_ = 0;
  std::optional<rendezvous::output::Decide> decision_;
  std::map<uint64_t, std::vector<std::byte>> served_;
  Thread worker_;
};

}  // namespace horo::group
