// Messages between two ranks of a job, in no order with its collectives: matched by group, sender and tag.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "horo/base/thread.h"
#include "horo/group/engine.h"
#include "horo/group/matching.h"
#include "horo/group/post.h"
#include "horo/group/request.h"

namespace horo::group {

/// Thread-safe. One thread, which is started by the first message, owns the post and the matching; it sleeps on the
/// engine's bell. Ranks may be lost or leave: messages with them fail, all others go on. Must be gone before the
/// engine.
class Courier {
 public:
  /// Called by all ranks of the job, in the order of the world's operations.
  static Result<std::unique_ptr<Courier>> open(Engine& engine, Deadline deadline = Deadline::never());
  ~Courier();

  /// To a member of `group`. Done once all of it has left this rank; the memory must stay as it is until then.
  Result<RequestHandle> send(const Group& group, int to, uint64_t tag, std::span<const std::byte> data,
                             Deadline deadline, Callback callback = {});
  /// From a member of `group`, or none: from the first that sends one. source() of the request tells from whom.
  Result<RequestHandle> receive(const Group& group, std::optional<int> from, uint64_t tag, std::span<std::byte> memory,
                                Deadline deadline, Callback callback = {});
  /// Everything under way ends with this. Idempotent.
  void stop(const Status& why);

 private:
  struct Entry {
    RequestHandle request;
    std::vector<int> ranks;  ///< Of the group.
    std::variant<OutgoingMessage, ExpectedMessage> message;
  };

  Courier(Engine& engine, std::unique_ptr<Post> post);
  Result<RequestHandle> enter(Entry entry);
  void work(const std::stop_token& stop);
  void take_entries();
  void take_letters();
  void notice_losses();
  void send_letters();
  void finish_ended();
  void watch_silence(Time now);
  Deadline wake_at(Time now) const;

  Engine& engine_;
  const std::shared_ptr<Group> world_;
  const uint32_t forks_;

  std::mutex mutex_;
  std::vector<std::pair<Matching::Id, Entry>> entries_;  ///< New ones.
  Matching::Id last_ = 0;
  std::optional<Status> stopped_;
  Thread thread_;

  // Of the thread alone, and after it:
  std::unique_ptr<Post> post_;
  Matching matching_;
  std::map<Matching::Id, Entry> under_way_;
  std::optional<Time> waiting_since_;
  Time noted_{};
};

}  // namespace horo::group
