// How an engine joins its job.
#include <algorithm>
#include <random>

#include "horo/base/failpoint.h"
#include "horo/base/system.h"
#include "horo/base/text.h"
#include "horo/group/affinity.h"
#include "horo/group/control.h"
#include "horo/group/engine.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/bootstrap.h"
#include "horo/rendezvous/knobs.h"

namespace horo::group {

namespace {

std::string random_name() {
  std::random_device random;
  return text("horo-", std::hex, random(), random(), random(), random());
}

// Where other hosts reach this one: the user's choice, or loopback when there is no key to keep others out.
Result<net::Address> address_to_listen_at(const Config& config, bool has_key) {
  const std::string wanted = config.get(kInterface);
  if (wanted.empty() && !has_key) return net::Address::loopback();
  if (auto literal = net::Address::ip(wanted, 0); !wanted.empty() && literal.ok()) return literal;
  return net::choose_interface(wanted);
}

Result<PeerAddress> address_of(const rendezvous::PeerCard& card) {
  PeerAddress peer;
  peer.rank = card.rank;
  peer.host = card.host.text;
  peer.description = card.to_string();
  for (const std::string& words : card.addresses) {
    HORO_ASSIGN(net::Address address, net::Address::parse(words));
    (address.is_unix() ? peer.local : peer.tcp) = address;
  }
  return peer;
}

}  // namespace

Status Engine::open_listeners(std::vector<net::Listener>& listeners, PeerAddress& mine) {
  net::ListenerOptions listener_options;
  listener_options.job = options_.job;
  listener_options.channel = self_.channel_options();
  listener_options.log = &log_;
  listener_options.admit = [size = options_.size](const net::Identity& identity, const net::Hello&) -> Status {
    if (identity.purpose == net::Purpose::kControl && identity.connector < static_cast<net::Member>(size)) return {};
    return {Code::kInvalidArgument, text(net::member_text(identity.connector), " is no rank of this job of ", size)};
  };
  listener_options.admit_stream = [this](const net::AttachRequest& about) { return control_->admit_stream(about); };
  HORO_ASSIGN(net::Address at, address_to_listen_at(options_.config, options_.key != nullptr));
  HORO_ASSIGN(net::Listener tcp, net::Listener::open(at, self_.tls, self_.key, listener_options));
  mine.tcp = tcp.address();
  listeners.push_back(std::move(tcp));
  if (memory_) {
    HORO_ASSIGN(net::Address name, net::Address::unix_abstract(random_name()));
    HORO_ASSIGN(net::Listener local, net::Listener::open(name, self_.tls, self_.key, listener_options));
    mine.local = local.address();
    listeners.push_back(std::move(local));
  }
  return {};
}

Status Engine::meet_peers(const PeerAddress& mine) {
  auto host = rendezvous::find_host_id(System(), options_.config.get(rendezvous::kHostId));
  rendezvous::PeerCard card =
      rendezvous::local_card(options_.rank, options_.size, host.ok() ? *host : rendezvous::lonely_host_id());
  std::vector<rendezvous::PeerCard> cards{card};
  if (options_.size > 1) {
    if (!options_.store)
      return {Code::kInvalidArgument, "a job of several ranks needs a store to meet at (HORO_STORE)"};
    cards[0].addresses = {mine.tcp.to_string()};
    if (mine.local.is_unix()) cards[0].addresses.push_back(mine.local.to_string());
    card_ = cards[0];
    HORO_ASSIGN(cards,
                rendezvous::exchange_cards(*options_.store, options_.job, cards[0], timeout(), options_.give_up));
  }
  for (const rendezvous::PeerCard& one : cards) {
    HORO_ASSIGN(PeerAddress peer, address_of(one));
    if (one.host == card.host) local_ranks_.push_back(one.rank);
    peers_.push_back(std::move(peer));
  }
  HORO_FAILPOINT_TRY("join.found");
  const Deadline deadline = timeout();
  for (int rank = 0; rank < options_.rank; ++rank) {
    HORO_ASSIGN(Link link, connect_link(self_, peers_[static_cast<size_t>(options_.rank)],
                                        peers_[static_cast<size_t>(rank)], deadline));
    HORO_TRY(control_->add_link(std::move(link)));
  }
  HORO_FAILPOINT_TRY("join.dialled");
  return control_->wait_for_links(deadline, options_.give_up);
}

Status Engine::choose_core() {
  const auto self = std::find(local_ranks_.begin(), local_ranks_.end(), options_.rank);
  HORO_ASSIGN(core_, core_for(options_.config.get(kThreadAffinity), static_cast<size_t>(self - local_ranks_.begin()),
                              local_ranks_.size()));
  const Status stays = control_->stay_on(core_);
  return stays.ok() ? stays : stays.prefixed("HORO_THREAD_AFFINITY");
}

// Each rank watches the next few of its host: whoever dies is seen by somebody who sleeps, who tells the others.
void Engine::watch_peers() {
  bell_->set_policy(wait_policy());
  std::vector<Bell::PeerLife> lives;
  const auto self =
      static_cast<size_t>(std::find(local_ranks_.begin(), local_ranks_.end(), options_.rank) - local_ranks_.begin());
  for (size_t step = 1; step < local_ranks_.size(); ++step) {
    const int rank = local_ranks_[(self + step) % local_ranks_.size()];
    const Link* link = control_->link(rank);
    if (link->memory) lives.push_back({&link->memory->header().life, rank});
  }
  bell_->watch(std::move(lives), [this](int rank) { control_->found_dead(rank); });
}

void Engine::keep_memory() {
  if (!options_.config.get(kKeeper)) return;
  bool apart = false;
  for (int rank = 0; rank < options_.size; ++rank) {
    apart |= rank != options_.rank && !control_->link(rank)->memory;
  }
  if (!apart) return;
  auto keeper = net::Keeper::start();
  if (keeper.ok()) {
    keeper_ = std::move(*keeper);
  } else {
    log_.debug("peers on other hosts may notice a death of this rank late: ", keeper.status());
  }
}

}  // namespace horo::group
