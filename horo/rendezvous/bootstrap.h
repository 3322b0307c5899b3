// How a process becomes a rank: what its environment says, the store, and everyone's card.
//
//   HORO_ASSIGN(JobPlace place, find_place(config));
//   HORO_ASSIGN(KeyLoan loan, KeyLoan::take(config));
//   HORO_ASSIGN(StoreAccess access, open_store(place, loan.key(), log, deadline));
//   PeerCard mine = local_card(place.rank, place.size, host);   // and its addresses
//   HORO_ASSIGN(std::vector<PeerCard> cards, exchange_cards(*access.store, place.job, mine, deadline));
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/log.h"
#include "horo/net/key.h"
#include "horo/rendezvous/host.h"
#include "horo/rendezvous/store.h"
#include "horo/rendezvous/tcp_store.h"

namespace horo::rendezvous {

struct JobPlace {
  int rank = 0;
  int size = 1;
  std::string job;
  std::string store;  ///< Empty in a job of one.
};

/// From the knobs of knobs.h, whose table the config must have read. Nothing set: a job of one. kInvalidArgument names
/// what is missing or contradicts.
Result<JobPlace> find_place(const Config& config);

struct StoreAccess {
  std::unique_ptr<TcpStoreServer> server;  ///< On the rank that serves. May go once this rank has all cards.
  std::unique_ptr<Store> store;
};

/// Connects to the store; rank 0 serves it if the address is its own and nobody does yet.
Result<StoreAccess> open_store(const JobPlace& place, std::shared_ptr<const net::Key> key, Log* log, Deadline deadline);

/// Asked a few times a second by those who wait for others to join: why they need not wait any longer, if so.
using GiveUp = std::function<Status()>;

/// Publishes `mine` and returns the cards of all ranks, sorted, once all are there. Fails as `give_up` does, if there
/// is one.
///   kInvalidArgument  the rank is taken by another process (which is unaffected), or the sizes differ; names both
///   kTimeout          names the ranks that did not come
///   kPeerLost         names those that declined
Result<std::vector<PeerCard>> exchange_cards(Store& store, const std::string& job, const PeerCard& mine,
                                             Deadline deadline, const GiveUp& give_up = {});

/// Says that this rank will not come, so that those who wait for its card, or will, end once all others are there. A
/// rank that has come is left alone.
Status decline(Store& store, const std::string& job, int rank, int size, Deadline deadline);

/// Takes `mine` out of the store again, so that this process can come once more after it could not join. Cards of other
/// processes are left alone.
void withdraw_card(Store& store, const std::string& job, const PeerCard& mine);

}  // namespace horo::rendezvous
