// The launcher at the door of an elastic job (horo/rendezvous/door.h): tells ranks to leave, tells that newcomers have
// ended, and looks who has been let in. From a thread of its own, since a store may take its time.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "horo/base/thread.h"
#include "horo/net/wake.h"
#include "horo/rendezvous/tcp_store.h"

namespace horo::cli::launch {

class DoorWatch {
 public:
  static Result<std::unique_ptr<DoorWatch>> start(const net::Address& at, const rendezvous::TcpStoreOptions& options);

  void ask_to_leave(int seat, const std::string& why);
  /// The same for one that may not have been let in yet: the answer tells when it will not be.
  void turn_away(int seat, const std::string& why);
  /// The answer tells whether it had been let in.
  void newcomer_ended(int seat);
  /// Every kInterval, from now on or no more.
  void look_often(bool often);
  /// Now; the next answer but one at the latest is younger than this call.
  void look();

  struct Answer {
    std::optional<std::set<int>> admitted;  ///< Seats that came later and are ranks now. Nothing: it is not known.
    bool looked = false;                    ///< What look() asked for.
    std::map<int, bool> ended;              ///< Newcomers that have: whether they had been let in.
    std::set<int> refused;                  ///< Of those who were turned away; the others leave as ranks do.
  };
  /// Readable when there is an answer.
  int fd() const { return wake_.fd(); }
  Answer take();

  static constexpr Duration kInterval = std::chrono::milliseconds(500);

 private:
  struct Wish {
    enum class Kind : uint8_t { kLeave, kTurnAway, kEnded, kLook } kind;
    int seat = 0;
    std::string why;
  };
  DoorWatch(net::Wake wake, const net::Address& at, rendezvous::TcpStoreOptions options)
      : wake_(std::move(wake)), at_(at), options_(std::move(options)) {}
  void add(Wish wish);
  void work(const std::stop_token& stop);
  /// Whether the store is there.
  bool connect(Deadline limit);
  void fulfil(const std::vector<Wish>& wishes);
  void ask_to_leave(const Wish& wish, Deadline limit);
  void newcomer_ended(int seat, Deadline limit);
  void find_admitted(bool asked);
  /// Nothing: the store does not answer.
  std::optional<std::set<int>> admitted(Deadline limit);

  net::Wake wake_;
  net::Address at_;
  rendezvous::TcpStoreOptions options_;
  std::unique_ptr<rendezvous::TcpStore> store_;  ///< The thread's own.
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Wish> wishes_;
  bool often_ = false;
  Answer answer_;
  Thread thread_;
};

}  // namespace horo::cli::launch
