#include "horo/rendezvous/bootstrap.h"

#include <iomanip>
#include <utility>

#include "horo/base/text.h"
#include "horo/net/address.h"
#include "horo/net/route.h"
#include "horo/net/socket.h"
#include "horo/rendezvous/knobs.h"

namespace horo::rendezvous {

namespace {

/// What is left of the deadline is used to find out who is missing.
constexpr Duration kToAskWhoCame = std::chrono::seconds(2);

constexpr Duration kToWithdraw = std::chrono::seconds(2);

constexpr Duration kPause = std::chrono::milliseconds(100);

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

std::string card_prefix(const std::string& job) { return text(job, "/card/"); }

/// Padded, so that entries are sorted by rank.
std::string card_name(int rank) { return text(std::setw(7), std::setfill('0'), rank); }

/// Cards without an address are of ranks that declined.
Status check_all_come(const std::vector<PeerCard>& cards, const std::string& job) {
  std::vector<int> gone;
  for (const PeerCard& card : cards) {
    if (card.addresses.empty()) gone.push_back(card.rank);
  }
  if (gone.empty()) return {};
  const PeerCard& first = cards[static_cast<size_t>(gone.front())];
  return Status(Code::kPeerLost, text(gone.size() == 1 ? first.to_string() : ranks_text(gone), " of ", first.size,
                                      " ended without joining job '", job, "'; what it said tells why"))
      .with_lost(std::move(gone));
}

Result<std::vector<PeerCard>> decode_cards(const Entries& entries, int size) {
  std::vector<PeerCard> cards;
  for (const auto& [key, value] : entries) {
    HORO_ASSIGN(PeerCard card, decode_card(value));
    if (card.rank != static_cast<int>(cards.size()) || card.size != size) {
      return Status(Code::kCorrupt, text("the store holds ", card.to_string(), " of ", card.size, " under ", key,
                                         ", in a job of ", size));
    }
    cards.push_back(std::move(card));
  }
  return cards;
}

/// Whose card the store holds, and who is missing.
Status describe_missing(Store& store, const std::string& job, const PeerCard& mine, const Status& timeout) {
  auto present = store.list(card_prefix(job), Deadline::after(kToAskWhoCame));
  if (!present.ok()) return timeout;
  std::vector<int> missing;
  for (int rank = 0; rank < mine.size; ++rank) {
    if (!present->contains(card_prefix(job) + card_name(rank))) missing.push_back(rank);
  }
  return Status(
      Code::kTimeout,
      text(ranks_text(missing), " of ", mine.size, " did not join job '", job,
           "' in time; check that they were started with the same HORO_SIZE, HORO_STORE, HORO_JOB_ID and key, "
           "or raise HORO_TIMEOUT"));
}

/// The first to come fixes the size of the job.
Status agree_on_size(Store& store, const std::string& job, const PeerCard& mine, Deadline deadline) {
  HORO_ASSIGN(Bytes first, store.claim(text(job, "/first"), encode(mine), deadline));
  HORO_ASSIGN(PeerCard holder, decode_card(first));
  if (holder.size == mine.size) return {};
  return invalid(text("the job's size is ", mine.size, " for ", mine.to_string(), " but ", holder.size, " for ",
                      holder.to_string(), "; start all ranks with the same HORO_SIZE, or choose another HORO_JOB_ID"));
}

/// With pauses, if there is somebody to ask whether it is still worth it: who meets again is the same.
Result<Meeting> meet_all(Store& store, const std::string& job, const PeerCard& mine, Deadline deadline,
                         const GiveUp& give_up) {
  while (true) {
    const Deadline pause = give_up ? deadline.earlier(Deadline::after(kPause)) : deadline;
    auto meeting =
        store.meet(card_prefix(job), card_name(mine.rank), encode(mine), static_cast<size_t>(mine.size), pause);
    if (meeting.ok() || meeting.status().code() != Code::kTimeout || deadline.expired()) return meeting;
    HORO_TRY(give_up());
  }
}

/// Whether `held` is this process's own card.
Status check_mine(const Bytes& held, const std::string& job, const PeerCard& mine) {
  HORO_ASSIGN(PeerCard holder, decode_card(held));
  if (holder.incarnation == mine.incarnation) return {};
  return invalid(
      text("rank ", mine.rank, " of job '", job, "' is taken: pid ", holder.pid, " on ", holder.host_name,
           " holds it, pid ", mine.pid, " on ", mine.host_name,
           " claims it too; give each process its own HORO_RANK (children of a rank inherit its variables)"));
}

}  // namespace

Result<JobPlace> find_place(const Config& config) {
  JobPlace place;
  place.job = config.get(kJobId);
  place.store = config.get(kStore);
  int64_t rank = config.get(kRank);
  int64_t size = config.get(kSize);
  if (rank < 0 && size < 0) return place;
  if (rank < 0) return invalid(text("HORO_SIZE is ", size, " but HORO_RANK is not set; start ranks with `horo run`"));
  if (size < 0) return invalid(text("HORO_RANK is ", rank, " but HORO_SIZE is not set; start ranks with `horo run`"));
  if (rank >= size) return invalid(text("HORO_RANK is ", rank, ", beyond HORO_SIZE ", size, "; ranks count from 0"));
  if (size > 1 && place.store.empty()) {
    return invalid(text("HORO_SIZE is ", size, " but HORO_STORE is not set: the ranks need a host:port to meet at"));
  }
  if (place.job.size() > net::Identity::kMostJobBytes) {
    return invalid(text("HORO_JOB_ID has ", place.job.size(), " characters, more than ", net::Identity::kMostJobBytes));
  }
  place.rank = static_cast<int>(rank);
  place.size = static_cast<int>(size);
  return place;
}

namespace {

constexpr Duration kLookForStore = std::chrono::milliseconds(500);

/// Whether a store could be served there at all: an address of another host is none of our mistakes.
bool is_of_this_host(const net::Address& address) {
  if (address.is_loopback() || address.is_any() || address.is_unix()) return true;
  const auto source = net::source_address(address);
  return source.ok() && net::ip_text(*source) == net::ip_text(address);
}

/// At the first address that is this host's and free; none where all are taken or another host's: then somebody else
/// serves there, or nobody, and connecting will tell.
Result<std::unique_ptr<TcpStoreServer>> serve_store(const std::vector<net::Address>& addresses,
                                                    const TcpStoreOptions& options) {
  // Of one address binding tells whether it is taken. Of several a free one says nothing about the others, and a second
  // store beside the launcher's would split the job.
  if (addresses.size() > 1 && net::Socket::connect_any(addresses, Deadline::after(kLookForStore)).ok()) {
    return std::unique_ptr<TcpStoreServer>();
  }
  Status refused;
  for (const net::Address& address : addresses) {
    auto server = TcpStoreServer::start(address, options);
    if (server.ok()) return server;
    if (server.status().code() == Code::kInvalidArgument && is_of_this_host(address)) refused = server.status();
  }
  if (!refused.ok()) return refused;
  return std::unique_ptr<TcpStoreServer>();
}

}  // namespace

Result<StoreAccess> open_store(const JobPlace& place, std::shared_ptr<const net::Key> key, Log* log,
                               Deadline deadline) {
  HORO_ASSIGN(auto addresses, net::resolve(place.store));
  if (addresses.empty()) return invalid(text("HORO_STORE ", place.store, " has no address"));
  TcpStoreOptions options{place.job, std::move(key), log};
  StoreAccess access;
  if (place.rank == 0) {
    HORO_ASSIGN(access.server, serve_store(addresses, options));
  }
  // A port that was taken may have been so for a moment only: whoever connects to somewhere gets a port, too, and it
  // may be this one.
  const auto serve_again = [&]() -> Status {
    if (place.rank == 0 && !access.server) {
      HORO_ASSIGN(access.server, serve_store(addresses, options));
    }
    return {};
  };
  HORO_ASSIGN(access.store, TcpStore::connect(addresses, options, deadline, serve_again));
  return access;
}

Result<std::vector<PeerCard>> exchange_cards(Store& store, const std::string& job, const PeerCard& mine,
                                             Deadline deadline, const GiveUp& give_up) {
  HORO_TRY(agree_on_size(store, job, mine, deadline));
  auto meeting = meet_all(store, job, mine, deadline, give_up);
  if (!meeting.ok()) {
    if (meeting.status().code() != Code::kTimeout) return meeting.status();
    return describe_missing(store, job, mine, meeting.status());
  }
  HORO_TRY(check_mine(meeting->held, job, mine));
  HORO_ASSIGN(std::vector<PeerCard> cards, decode_cards(meeting->entries, mine.size));
  HORO_TRY(check_all_come(cards, job));
  return cards;
}

Status decline(Store& store, const std::string& job, int rank, int size, Deadline deadline) {
  const PeerCard none = local_card(rank, size, lonely_host_id());
  return store.claim(card_prefix(job) + card_name(rank), encode(none), deadline).status();
}

void withdraw_card(Store& store, const std::string& job, const PeerCard& mine) {
  // A store that is gone holds nothing that could be in the way.
  for (const std::string& key : {text(job, "/first"), card_prefix(job) + card_name(mine.rank)}) {
    if (!store.withdraw(key, encode(mine), Deadline::after(kToWithdraw)).ok()) return;
  }
}

}  // namespace horo::rendezvous
