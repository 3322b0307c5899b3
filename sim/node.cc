#include "sim/node.h"

#include <algorithm>
#include <utility>

#include "horo/base/text.h"

namespace horo::sim {

namespace {

using rendezvous::LostSet;
using rendezvous::MessageKind;
using std::chrono::microseconds;
using std::chrono::milliseconds;
namespace input = rendezvous::input;
namespace output = rendezvous::output;
namespace watching = rendezvous::watch;

constexpr int kGroupsPerView = 3;
/// After so many operations without a fault the application slows down: a run that waits for a freeze limit is then
/// cheap, and ranks are seen to wait long for members that are merely late.
constexpr uint64_t kBriskOperations = 20;

/// Both sides of a cut may be in the same epoch: groups are named by the view that they are made in.
uint64_t group_id(uint64_t view, int index) { return view * 100 + static_cast<uint64_t>(index); }
uint64_t view_of_group(uint64_t group) { return group / 100; }
bool is_world(uint64_t group) { return group % 100 == 0; }

rendezvous::Suspicion::Options suspicion_options(Bug bug) {
  rendezvous::Suspicion::Options options;
  options.freeze_timeout = bug == Bug::kHastyEviction ? kFreezeTimeout / 3 : kFreezeTimeout;
  if (bug == Bug::kNoPauseReset) options.pause_intervals = 1 << 20;
  return options;
}

}  // namespace

Node::Node(World& world, int rank)
    : world_(world),
      rank_(rank),
      membership_({rank, world.options().ranks, 0, std::chrono::seconds(30)}),
      suspicion_(suspicion_options(world.options().bug)),
      reform_(rank, view_of(membership_.members()), world.options().bug, *this) {}

void Node::start() {
  if (world_.options().partitions) keep_quorum();
  open_world(reform_.world());
}

void Node::keep_quorum() {
  const std::vector<int> job = members_of(reform_.world());
  if (!has_bug(Bug::kBelieveAnybody)) feed(input::Job{job});
  if (!has_bug(Bug::kNoConsent)) watch(watching::Job{rank_, job});
}

void Node::handle(const NodeEvent& event) {
  std::visit([this](const auto& value) { on(value); }, event);
  if (running()) update_waits();
}

void Node::leave() {
  feed(input::Leave{});
  state_ = State::kLeft;
  world_.departed(rank_);
}

void Node::stop(const Status& why) {
  world_.trace(rank_, "stops: ", why.to_string());
  ++world_.counts().stopped;
  leave();
  state_ = State::kStopped;
}

void Node::on(const Delivery& delivery) {
  bool lost = membership_.lost().contains(delivery.from);
  if (is_control(delivery.packet)) watch(watching::Answered{delivery.from});  // Whatever it says.
  if (auto* message = std::get_if<Control>(&delivery.packet)) {
    take(delivery.from, **message);
  } else if (std::holds_alternative<Probe>(delivery.packet)) {
    send(delivery.from, Answer{});
  } else if (auto* ask = std::get_if<Ask>(&delivery.packet)) {
    watch(watching::Asked{delivery.from, ask->silent});
  } else if (auto* consent = std::get_if<Consent>(&delivery.packet)) {
    watch(watching::Consented{delivery.from, consent->agrees});
  } else if (auto* join = std::get_if<Join>(&delivery.packet)) {
    reform_.take(delivery.from, *join);
  } else if (auto* ready = std::get_if<Ready>(&delivery.packet)) {
    reform_.take(*ready);
  } else if (!lost || has_bug(Bug::kHearTheLost)) {
    std::visit(
        [&](const auto& packet) {
          if constexpr (requires { packet.group; }) take_for_group(delivery.from, packet);
        },
        delivery.packet);
  }
}

void Node::take(int from, const rendezvous::Message& message) {
  rendezvous::Message heard = message;
  if (has_bug(Bug::kStaleFlush) && heard.kind == MessageKind::kFlush && membership_.lost().includes(heard.lost)) {
    heard.lost = membership_.lost();
  }
  feed(input::Received{from, std::move(heard)});
}

template <class GroupPacket>
void Node::take_for_group(int from, const GroupPacket& packet) {
  auto group = groups_.find(packet.group);
  if (group == groups_.end()) {
    early_[packet.group].emplace_back(from, packet);
  } else {
    group->second.take(from, packet);
  }
}

void Node::on(const EnterTimer& timer) { groups_.at(timer.group).enter(); }

void Node::on(const FinishTimer& timer) { groups_.at(timer.group).finish(timer.number); }

void Node::on(const StopTimer& timer) {
  GroupModel& group = groups_.at(timer.group);
  group.stop();
  if (has_bug(Bug::kReportWhileRunning)) return;
  rendezvous::Report report = group.report();
  if (has_bug(Bug::kStaleReport)) report = first_reports_.try_emplace(timer.group, report).first->second;
  feed(input::Reported{timer.epoch, report});
}

void Node::on(const DetectTimer& timer) { feed(input::Lost{timer.loss}); }

void Node::on(const TickTimer&) {
  tick_at_.reset();
  feed(input::Tick{});
  watch(watching::Tick{});
  plan_tick();
}

void Node::on(const ReformTimer&) {
  if (failed_worlds_.contains(reform_.world())) reform_.begin();
}

void Node::feed(rendezvous::Input input) {
  inputs_.push_back(std::move(input));
  if (!draining_) drain();
}

void Node::drain() {
  draining_ = true;
  while (!inputs_.empty() && running()) {
    rendezvous::Input input = std::move(inputs_.front());
    inputs_.pop_front();
    input_is_message_ = std::holds_alternative<input::Received>(input);
    const LostSet known = membership_.lost();
    std::vector<rendezvous::Output> outputs = membership_.step(input, world_.now());
    if (membership_.lost() != known) {
      world_.checker().learned(rank_, membership_.lost(), world_.now());
      watch(watching::Gone{membership_.lost().losses()});
    }
    for (auto& out : outputs) {
      if (!running()) break;  // Killed on the way: the rest is never carried out.
      std::visit([this](auto& value) { apply(value); }, out);
    }
  }
  draining_ = false;
}

void Node::apply(output::Send& send_out) {
  const rendezvous::Message& message = send_out.message;
  if (has_bug(Bug::kNoForward) && message.kind == MessageKind::kRevoke && input_is_message_) return;
  auto shared = std::make_shared<const rendezvous::Message>(message);
  for (int to : send_out.to) {
    if (!running()) return;
    send(to, shared);
    if (message.kind == MessageKind::kRevoke) world_.pass(rank_, Point::kRevokeSent);
    if (message.kind == MessageKind::kFlush) world_.pass(rank_, Point::kFlushSent);
    if (message.kind == MessageKind::kStable) world_.pass(rank_, Point::kStableSent);
  }
  if (has_bug(Bug::kDecideAlone) && message.kind == MessageKind::kFlush) {
    for (int peer : membership_.waiting_for()) {
      inputs_.push_back(input::Received{peer, {MessageKind::kFlush, message.base_epoch, message.lost, {}}});
    }
  }
}

void Node::apply(output::Revoke& revoke) {
  ++world_.counts().rounds;
  world_.trace(rank_, "revokes ", revoke.groups.size(), " groups: ", revoke.lost.to_string());
  for (uint64_t id : revoke.groups) {
    GroupModel& group = groups_.at(id);
    if (group.settled()) ++world_.counts().replaced;
    group.revoke();
    unreleased_.insert(id);
    if (has_bug(Bug::kReportWhileRunning)) inputs_.push_back(input::Reported{revoke.epoch, group.report()});
    int64_t leaving = group.stopped() ? 0 : world_.random().between(0, 2000);
    world_.schedule(rank_, microseconds(leaving), StopTimer{id, revoke.epoch});
  }
}

void Node::apply(output::Decide& decide) {
  world_.trace(rank_, "decides that group ", decide.group, " ends at ", decide.final, ", serving ", decide.serve.size(),
               " ranks", decide.await ? ", awaiting" : "");
  GroupModel& group = groups_.at(decide.group);
  if (!has_bug(Bug::kFailAlone)) group.decide(decide);
  world_.pass(rank_, Point::kDecided);
  serve(group, decide);
}

void Node::serve(const GroupModel& group, const output::Decide& decide) {
  if (has_bug(Bug::kNoServe)) return;
  for (const auto& transfer : decide.serve) {
    for (uint64_t number = transfer.first; number <= transfer.last; ++number) {
      auto value = group.retained(number);
      if (group.kind(number) == OpKind::kExchange) {
        violated(text("rank ", transfer.peer, " lacks its own part of operation ", number, " of group ", decide.group));
      } else if (!value) {
        violated(text("rank ", rank_, " does not retain operation ", number, " of group ", decide.group,
                      ", which rank ", transfer.peer, " lacks"));
      } else if (running()) {
        ++world_.counts().served;
        send(transfer.peer, Serve{decide.group, number, *value});
        world_.pass(rank_, Point::kServing);
      }
    }
  }
}

void Node::apply(output::Install& install) {
  world_.trace(rank_, "installs epoch ", install.epoch);
  if (!world_.options().partitions) world_.checker().installed(rank_, install.epoch, install.lost);
  if (has_bug(Bug::kEarlyRelease)) {
    for (auto& [id, group] : groups_) {
      if (group.settled()) group.release();
    }
  }
  if (!world_.options().partitions) open_world(view_of(install.members));
  world_.pass(rank_, Point::kInstalled);
}

void Node::apply(output::Release& release) {
  for (uint64_t id : release.groups) {
    groups_.at(id).release();
    unreleased_.erase(id);
  }
}

void Node::apply(output::Fence& fence) {
  world_.trace(rank_, "is fenced by rank ", fence.by);
  ++world_.counts().fenced;
  world_.checker().fenced(rank_);
  if (!has_bug(Bug::kNoFence)) state_ = State::kFenced;
}

void Node::open_world(uint64_t view) { open(group_id(view, 0), members_of(view)); }

void Node::open(uint64_t id, std::vector<int> members) {
  GroupModel::Identity identity{id, world_.options().seed, rank_, members, world_.options().bug};
  groups_.try_emplace(id, std::move(identity), *this);
  feed(input::Opened{id, std::move(members)});
  enter_soon(id);
  auto early = early_.extract(id);
  if (early.empty()) return;
  for (auto& [from, packet] : early.mapped()) {
    std::visit(
        [&, sender = from](const auto& value) {
          if constexpr (requires { value.group; }) groups_.at(id).take(sender, value);
        },
        packet);
  }
}

void Node::open_subgroups(uint64_t view) {
  for (int index = 1; index < kGroupsPerView; ++index) {
    uint64_t id = group_id(view, index);
    std::vector<int> members;
    for (int rank : members_of(view)) {
      if (mix(mix(world_.options().seed, id), static_cast<uint64_t>(rank)) % 3 != 0) members.push_back(rank);
    }
    if (std::find(members.begin(), members.end(), rank_) != members.end()) open(id, std::move(members));
  }
}

void Node::send(int to, Packet packet) { world_.send(rank_, to, std::move(packet)); }

void Node::enter_soon(uint64_t group) {
  Random& random = world_.random();
  int64_t think = random.chance(80) ? random.between(0, 200) : random.between(0, 3000);
  if (groups_.at(group).completed() >= marks_[group] + kBriskOperations) {
    think = random.chance(90) ? random.between(20'000, 100'000) : random.between(150'000, 400'000);
    if (world_.options().partitions) think *= 3;  // Cuts last for seconds.
  }
  world_.schedule(rank_, microseconds(think), EnterTimer{group});
}

void Node::finish_soon(uint64_t group, uint64_t number) {
  world_.schedule(rank_, microseconds(world_.random().between(0, 100)), FinishTimer{group, number});
}

void Node::succeeded(uint64_t group, uint64_t number) {
  ++world_.counts().operations;
  world_.checker().succeeded(rank_, group, number);
  if (!is_world(group)) return;
  const uint64_t view = view_of_group(group);
  world_.commit(rank_, view);
  if (number > 1) return;
  // Making a subgroup is an operation of its parent: where that succeeds, the subgroup is opened.
  open_subgroups(view);
  reform_.decided(view, true);
  if (world_.options().partitions && reform_.world() == view) keep_quorum();
  if (failed_worlds_.contains(view)) world_failed(view);
}

void Node::failed(uint64_t group, uint64_t from_number) {
  world_.checker().failed(rank_, group, from_number);
  if (!world_.options().partitions || !is_world(group)) return;
  const uint64_t view = view_of_group(group);
  if (failed_worlds_.insert(view).second && view == reform_.world()) world_failed(view);
}

// The application may find out late: it computes.
void Node::world_failed(uint64_t view) {
  if (view != reform_.world()) return;
  Random& random = world_.random();
  const int64_t late = random.chance(85) ? random.between(0, 3000) : random.between(0, 4'000'000);
  world_.schedule(rank_, microseconds(late), ReformTimer{});
}

void Node::settled(uint64_t group, uint64_t epoch) {
  inputs_.push_back(input::Settled{epoch, group});
  if (is_world(group) && groups_.at(group).completed() == 0) reform_.decided(view_of_group(group), false);
}

void Node::violated(std::string what) { world_.checker().violated(std::move(what)); }

void Node::watch(const watching::Input& input) {
  for (const auto& out : suspicion_.step(input, world_.now())) {
    if (auto* probe = std::get_if<watching::Probe>(&out)) {
      send(probe->rank, Probe{});
      world_.pass(rank_, Point::kProbing);
    } else if (auto* ask = std::get_if<watching::AskConsent>(&out)) {
      send(ask->rank, Ask{ask->silent});
    } else if (auto* consent = std::get_if<watching::Consent>(&out)) {
      send(consent->rank, Consent{consent->agrees});
    } else if (auto* evict = std::get_if<watching::Evict>(&out)) {
      world_.trace(rank_, "evicts ", ranks_text(evict->ranks), evict->has_quorum ? "" : ", without a quorum");
      for (int rank : evict->ranks) {
        if (!world_.pair_was_blocked(rank_, rank)) world_.checker().evicted(rank, world_.now());
      }
      feed(input::Silent{evict->ranks});
    }
  }
}

void Node::update_waits() {
  if (!inputs_.empty()) drain();
  if (running()) reform_.look(membership_);
  if (!running()) return;
  if (!inputs_.empty()) drain();
  RankBits waits = 0;
  reform_.add_waits(waits);
  for (const auto& [id, group] : groups_) group.add_waits(waits);
  if (!has_bug(Bug::kBlindFlush)) {
    for (int rank : membership_.waiting_for()) waits |= bit(rank);
  }
  for (const rendezvous::Loss& loss : membership_.lost().losses()) waits &= ~bit(loss.rank);
  if (waits != waits_) {
    waits_ = waits;
    watch(watching::WaitingOn{members_of(waits_), world_.now()});
  }
  plan_tick();
}

void Node::plan_tick() {
  std::optional<Time> next = membership_.next_tick();
  if (auto due = suspicion_.next_tick(); due && (!next || *due < *next)) next = due;
  if (!next || (tick_at_ && *tick_at_ <= *next)) return;
  tick_at_ = next;
  world_.schedule(rank_, std::max(*next - world_.now(), Duration::zero()), TickTimer{});
}

void Node::mark() {
  marks_.clear();
  for (const auto& [id, group] : groups_) marks_[id] = group.completed();
}

bool Node::well(uint64_t operations) const {
  if (!unreleased_.empty() || reform_.reforming() || failed_worlds_.contains(reform_.world())) return false;
  for (const auto& [id, group] : groups_) {
    if (group.settled()) continue;
    auto mark = marks_.find(id);
    if (group.revoked() || group.completed() < (mark == marks_.end() ? 0 : mark->second) + operations) return false;
  }
  return membership_.waiting_for().empty() && membership_.epoch() == membership_.lost().size();
}

std::string Node::describe() const {
  std::string all = text("rank ", rank_, " in epoch ", membership_.epoch(), ", lost: ", membership_.lost().to_string(),
                         ", flush waits for ", ranks_text(membership_.waiting_for()));
  for (const auto& [id, group] : groups_) {
    if (group.settled()) continue;
    all += text("; group ", id, " completed ", group.completed(), " holds ", group.report().held,
                group.revoked() ? " revoked" : "", group.stopped() ? " stopped" : "");
  }
  return all;
}

}  // namespace horo::sim
