#include "cli/run/door_watch.h"

#include <algorithm>
#include <utility>

#include "horo/rendezvous/door.h"

namespace horo::cli::launch {

namespace {

/// The store is ours: it answers at once, or something is very wrong.
constexpr Duration kLimit = std::chrono::seconds(5);

}  // namespace

Result<std::unique_ptr<DoorWatch>> DoorWatch::start(const net::Address& at,
                                                    const rendezvous::TcpStoreOptions& options) {
  HORO_ASSIGN(net::Wake wake, net::Wake::create());
  std::unique_ptr<DoorWatch> watch(new DoorWatch(std::move(wake), at, options));
  HORO_ASSIGN(watch->thread_,
              Thread::start("horo-door", [self = watch.get()](const std::stop_token& stop) { self->work(stop); }));
  return watch;
}

void DoorWatch::add(Wish wish) {
  const std::lock_guard lock(mutex_);
  wishes_.push_back(std::move(wish));
  changed_.notify_all();
}

void DoorWatch::ask_to_leave(int seat, const std::string& why) { add({Wish::Kind::kLeave, seat, why}); }
void DoorWatch::turn_away(int seat, const std::string& why) { add({Wish::Kind::kTurnAway, seat, why}); }
void DoorWatch::newcomer_ended(int seat) { add({Wish::Kind::kEnded, seat, {}}); }
void DoorWatch::look() { add({Wish::Kind::kLook, 0, {}}); }

void DoorWatch::look_often(bool often) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(often_, often) != often) changed_.notify_all();
}

DoorWatch::Answer DoorWatch::take() {
  wake_.drain();
  const std::lock_guard lock(mutex_);
  return std::exchange(answer_, {});
}

void DoorWatch::work(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<Wish> wishes;
    bool often = false;
    {
      std::unique_lock lock(mutex_);
      const auto waits_for = [&] { return !wishes_.empty() || (often_ && !often); };
      if (often_) {
        changed_.wait_for(lock, stop, kInterval, [&] { return !wishes_.empty(); });
      } else {
        changed_.wait(lock, stop, waits_for);
      }
      if (stop.stop_requested()) return;
      wishes = std::exchange(wishes_, {});
      often = often_;
    }
    fulfil(wishes);
    const auto is_look = [](const Wish& wish) { return wish.kind == Wish::Kind::kLook; };
    const bool asked = std::any_of(wishes.begin(), wishes.end(), is_look);
    if (often || asked) find_admitted(asked);
  }
}

bool DoorWatch::connect(Deadline limit) {
  if (store_) return true;
  auto store = rendezvous::TcpStore::connect(at_, options_, limit);
  if (store.ok()) store_ = std::move(*store);
  return store_ != nullptr;
}

void DoorWatch::fulfil(const std::vector<Wish>& wishes) {
  const Deadline limit = Deadline::after(kLimit);
  for (const Wish& wish : wishes) {
    if (wish.kind == Wish::Kind::kEnded) newcomer_ended(wish.seat, limit);
    if (wish.kind == Wish::Kind::kLeave || wish.kind == Wish::Kind::kTurnAway) ask_to_leave(wish, limit);
  }
}

// Without an answer the rank stays, and is ended at its limit.
void DoorWatch::ask_to_leave(const Wish& wish, Deadline limit) {
  if (!connect(limit)) return;
  if (!rendezvous::Door(*store_, options_.job).ask_to_leave(wish.seat, wish.why, limit).ok()) return store_.reset();
  if (wish.kind != Wish::Kind::kTurnAway) return;
  // From now on it is not let in: who is not in will not be.
  std::optional<std::set<int>> in = admitted(limit);
  if (!in) return;
  const std::lock_guard lock(mutex_);
  if (!in->contains(wish.seat)) answer_.refused.insert(wish.seat);
  answer_.admitted = std::move(in);
  wake_.signal();
}

std::optional<std::set<int>> DoorWatch::admitted(Deadline limit) {
  if (!connect(limit)) return {};
  auto found = rendezvous::Door(*store_, options_.job).admitted(limit);
  if (found.ok()) return std::move(*found);
  store_.reset();
  return {};
}

void DoorWatch::newcomer_ended(int seat, Deadline limit) {
  std::optional<std::set<int>> in = admitted(limit);
  if (in) rendezvous::Door(*store_, options_.job).newcomer_ended(seat, limit);
  const std::lock_guard lock(mutex_);
  answer_.ended[seat] = in && in->contains(seat);
  // Others may have been let in with it: how many ranks are left is told when it is lost.
  if (in) answer_.admitted = std::move(in);
  wake_.signal();
}

void DoorWatch::find_admitted(bool asked) {
  std::optional<std::set<int>> in = admitted(Deadline::after(kLimit));
  const std::lock_guard lock(mutex_);
  if (in) answer_.admitted = std::move(in);
  answer_.looked |= asked;
  wake_.signal();
}

}  // namespace horo::cli::launch
