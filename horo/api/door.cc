// The door of a job that grows: rank 0 hears there of processes that wait to enter, and of ranks that are to leave.
#include "horo/rendezvous/door.h"

#include <condition_variable>
#include <cstring>
#include <mutex>

#include "horo/api/door.h"
#include "horo/api/handles.h"
#include "horo/base/text.h"
#include "horo/base/thread.h"

namespace {

using horo::Code;
using horo::Deadline;
using horo::Result;
using horo::Status;
using horo::rendezvous::Door;
using horo::rendezvous::Newcomer;
using horo::rendezvous::TcpStore;

constexpr auto kConnectLimit = std::chrono::seconds(5);
/// A launcher that does not answer must not hold up training.
constexpr auto kCallLimit = std::chrono::seconds(2);

/// Counts the news on a connection and a thread of its own.
class Watch {
 public:
  Watch(std::unique_ptr<TcpStore> store, std::string job) : store_(std::move(store)), door_(*store_, std::move(job)) {}

  Status start(horo::Log& log) {
    HORO_ASSIGN(thread_, horo::Thread::start("horo-door", [this, &log](const std::stop_token& stop) {
                  const std::stop_callback wake(stop, [this] { store_->interrupt(); });
                  while (step(stop, log)) {
                  }
                }));
    return {};
  }

  /// 1: more than was looked at; 0: not by then; -1: and there will be none.
  int wait(Deadline deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.at(), [&] { return seen_ > looked_ || gone_; });
    return seen_ > looked_ ? 1 : gone_ ? -1 : 0;
  }

  void looking() {
    const std::lock_guard lock(mutex_);
    looked_ = seen_;
  }

 private:
  /// Whether there may be more.
  bool step(const std::stop_token& stop, horo::Log& log) {
    const Status news = door_.await_news(seen_ + 1, Deadline::never());
    if (stop.stop_requested()) return false;
    const std::lock_guard lock(mutex_);
    if (news.ok()) {
      ++seen_;
    } else {
      gone_ = true;
      log.warning("the launcher is gone: the job goes on, but nobody can enter it any more (", news, ")");
    }
    changed_.notify_all();
    return news.ok();
  }

  std::unique_ptr<TcpStore> store_;
  Door door_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t seen_ = 0, looked_ = 0;  ///< The first is written by the thread alone.
  bool gone_ = false;
  horo::Thread thread_;  ///< Goes first.
};

Status check(const horo_door* door, const char* function) {
  if (door == nullptr) return {Code::kInvalidArgument, horo::text(function, ": the door is null")};
  return {};
}

}  // namespace

struct horo_door {
  horo::api::Process process = horo::api::Process::current();
  std::shared_ptr<horo::engine::Runtime> runtime;  ///< Whose log is used.
  std::unique_ptr<TcpStore> store;
  std::optional<Door> door;
  std::optional<Watch> watch;
  std::vector<Newcomer> newcomers;  ///< Of the last look.
  std::vector<int> newcomer_seats, leavers;
};

horo_status* horo_door_open(horo_runtime* runtime, horo_door** door) {
  return horo::api::guarded([&]() -> Status {
    if (runtime == nullptr || door == nullptr) {
      return {Code::kInvalidArgument, "horo_door_open: the runtime, or the place for the door, is null"};
    }
    HORO_TRY(horo::api::check_process(runtime->process, "horo_door_open"));
    const horo::api::Rejoining& known = runtime->rejoining;
    if (known.store.empty()) return {Code::kNotFound, "the job has no store where others could come to"};
    HORO_ASSIGN(const auto addresses, horo::net::resolve(known.store));
    horo::Log& log = runtime->runtime->engine().log();
    const horo::rendezvous::TcpStoreOptions options{known.job, known.key, &log};
    auto made = std::make_unique<horo_door>();
    HORO_ASSIGN(made->store, TcpStore::connect(addresses, options, Deadline::after(kConnectLimit)));
    HORO_ASSIGN(auto second, TcpStore::connect(addresses, options, Deadline::after(kConnectLimit)));
    made->runtime = runtime->runtime;
    made->door.emplace(*made->store, known.job);
    made->watch.emplace(std::move(second), known.job);
    HORO_TRY(made->watch->start(log));
    *door = made.release();
    return {};
  });
}

int horo_door_news(horo_door* door, double timeout) {
  if (horo::api::is_absent(door, "horo_door_news", "door")) return -1;
  return door->watch->wait(Deadline::after_seconds(timeout));
}

horo_status* horo_door_look(horo_door* door, horo_changes* changes) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(door, "horo_door_look"));
    if (changes == nullptr || changes->struct_size < sizeof(horo_changes)) {
      return {Code::kInvalidArgument, "horo_door_look needs changes made with HORO_CHANGES_INIT"};
    }
    door->watch->looking();
    HORO_ASSIGN(horo::rendezvous::Changes found, door->door->look(Deadline::after(kCallLimit)));
    door->newcomers = std::move(found.newcomers);
    door->leavers = std::move(found.leavers);
    door->newcomer_seats.clear();
    for (const Newcomer& one : door->newcomers) door->newcomer_seats.push_back(one.seat);
    changes->newcomers = door->newcomer_seats.data();
    changes->newcomer_count = door->newcomer_seats.size();
    changes->leavers = door->leavers.data();
    changes->leaver_count = door->leavers.size();
    return {};
  });
}

horo_status* horo_door_begin(horo_door* door, char* name) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(door, "horo_door_begin"));
    if (name == nullptr) return {Code::kInvalidArgument, "horo_door_begin: no place for the name"};
    HORO_ASSIGN(const std::string begun, door->door->begin_generation(Deadline::after(kCallLimit)));
    std::memcpy(name, begun.c_str(), begun.size() + 1);
    return {};
  });
}

namespace {

Status admit(horo_door* door, const char* name, int size, size_t count) {
  if (count > door->newcomers.size() || size < static_cast<int>(count)) {
    return {Code::kInvalidArgument, horo::text("horo_door_admit: ", count, " of ", door->newcomers.size(),
                                               " newcomers cannot enter a generation of ", size)};
  }
  int rank = size - static_cast<int>(count);
  for (size_t i = 0; i < count; ++i) {
    HORO_TRY(door->door->admit(door->newcomers[i], {name, rank++, size}, Deadline::after(kCallLimit)));
  }
  return {};
}

}  // namespace

horo_status* horo_door_admit(horo_door* door, const char* name, int size, size_t count) {
  return horo::api::guarded([&]() -> Status {
    HORO_TRY(check(door, "horo_door_admit"));
    if (name == nullptr) return {Code::kInvalidArgument, "horo_door_admit: the generation has no name"};
    Status admitted = admit(door, name, size, count);
    // The others wait for those who would have come.
    if (!admitted.ok()) door->door->give_up(name, admitted.message(), Deadline::after(kCallLimit));
    return admitted;
  });
}

void horo_door_close(horo_door* door) {
  if (door != nullptr && door->process.is_current()) delete door;
}
