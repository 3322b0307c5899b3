#include "horo/api/meeting.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "horo/api/python_knobs.h"
#include "horo/base/text.h"
#include "horo/group/knobs.h"
#include "horo/net/identity.h"
#include "horo/rendezvous/door.h"
#include "horo/rendezvous/knobs.h"
#include "horo/rendezvous/launcher.h"

namespace horo::api {

namespace {

using rendezvous::JobPlace;
using rendezvous::LauncherPlace;
using SharedKey = std::shared_ptr<const net::Key>;

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

Result<SharedKey> fresh_key() {
  HORO_ASSIGN(net::Key key, net::Key::random());
  return std::make_shared<const net::Key>(std::move(key));
}

std::string random_name(std::string_view kind) {
  std::array<std::byte, 8> bytes;
  net::fill_random(bytes);
  std::string name(kind);
  for (const std::byte one : bytes) name += "0123456789abcdef"[std::to_integer<unsigned>(one) % 16];
  return name;
}

/// Of all processes only some are the job: their places in the list are their ranks.
Status narrow(std::span<const int> ranks, JobPlace& place) {
  if (ranks.empty()) return {};
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool twice = std::find(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(i), ranks[i]) !=
                       ranks.begin() + static_cast<ptrdiff_t>(i);
    if (ranks[i] < 0 || ranks[i] >= place.size || twice) {
      return invalid(text("rank ", ranks[i], " of the job's list ", twice ? "is there twice" : "does not exist among ",
                          twice ? "" : text(place.size, " processes")));
    }
  }
  const auto own = std::find(ranks.begin(), ranks.end(), place.rank);
  if (own == ranks.end()) {
    return invalid(text("process ", place.rank, " is not in the list of ranks that it starts a job with: ",
                        ranks_text(ranks), "; only those call init() with it"));
  }
  place.rank = static_cast<int>(own - ranks.begin());
  place.size = static_cast<int>(ranks.size());
  return {};
}

Status take_key(const Asked& asked, const SharedKey& known, Meeting& meeting) {
  if (known != nullptr) {
    meeting.key = known;
  } else if (asked.options.key != nullptr) {
    const std::span given(static_cast<const std::byte*>(asked.options.key), asked.options.key_bytes);
    HORO_ASSIGN(net::Key key, net::Key::from_bytes(given));
    meeting.key = std::make_shared<const net::Key>(std::move(key));
  } else {
    HORO_ASSIGN(rendezvous::KeyLoan taken, rendezvous::KeyLoan::take(asked.config));
    meeting.key = taken.key();
    meeting.loan.emplace(std::move(taken));
  }
  return {};
}

bool has_key(const Asked& asked, const SharedKey& known) {
  return known != nullptr || asked.options.key != nullptr || asked.config.is_set(rendezvous::kKeyFile) ||
         asked.config.is_set(rendezvous::kKeyFd);
}

// ---- Through MPI ----------------------------------------------------------------------------------------------------

/// What the first member tells the others: the key and the address, or why there is none.
struct Letter {
  std::array<std::byte, net::Key::kBytes> key;
  char good;
  char job[64];
  char words[512];
};

void put(std::span<char> into, const std::string& words) {
  const size_t count = std::min(into.size() - 1, words.size());
  std::memcpy(into.data(), words.data(), count);
  into[count] = 0;
}

/// Whether all members are on the host of the first.
Result<bool> on_one_host(PluginFabric& fabric, const Config& config) {
  std::array<char, rendezvous::PeerCard::kMostText + 1> host{};
  auto mine = rendezvous::find_host_id(System(), config.get(rendezvous::kHostId));
  const std::string own = mine.ok() ? mine->text : rendezvous::lonely_host_id().text;
  if (fabric.rank() == 0) put(host, own);
  HORO_TRY(fabric.broadcast(std::as_writable_bytes(std::span(host)), 0));
  HORO_ASSIGN(const int same, fabric.smallest(own.substr(0, host.size() - 1) == host.data() ? 1 : 0));
  return same == 1;
}

Status serve_members(Meeting& meeting, const Config& config, const std::shared_ptr<Log>& log) {
  HORO_ASSIGN(meeting.key, fresh_key());
  net::Address at = net::Address::loopback();
  const std::string wanted = config.get(group::kInterface);
  if (!meeting.on_one_host || !wanted.empty()) {
    auto literal = net::Address::ip(wanted, 0);
    if (wanted.empty() || !literal.ok()) literal = net::choose_interface(wanted);
    HORO_ASSIGN(at, std::move(literal));
  }
  meeting.place.job = random_name("mpi-");
  HORO_ASSIGN(meeting.server,
              rendezvous::TcpStoreServer::start(at, {.job = meeting.place.job, .key = meeting.key, .log = log.get()}));
  meeting.place.store = meeting.server->address().to_string();
  return {};
}

Status exchange_letter(Meeting& meeting, const Config& config, const std::shared_ptr<Log>& log) {
  Letter letter{};
  Status served;
  if (meeting.place.rank == 0) {
    served = serve_members(meeting, config, log);
    letter.good = served.ok() ? 1 : 0;
    put(letter.words, served.ok() ? meeting.place.store : served.message());
    if (served.ok()) {
      put(letter.job, meeting.place.job);
      std::ranges::copy(meeting.key->secret(), letter.key.begin());
    }
  }
  Status sent = meeting.fabric->broadcast(std::as_writable_bytes(std::span(&letter, 1)), 0);
  if (sent.ok() && served.ok() && meeting.place.rank != 0) {
    if (letter.good == 1) {
      auto key = net::Key::from_bytes(letter.key);
      if (key.ok()) meeting.key = std::make_shared<const net::Key>(std::move(*key));
      sent = key.ok() ? Status() : key.status();
      meeting.place.job = letter.job;
      meeting.place.store = letter.words;
    } else {
      sent = Status(Code::kUnavailable, text("rank 0 could not open a store: ", letter.words));
    }
  }
  explicit_bzero(&letter, sizeof letter);
  return served.ok() ? sent : served;
}

bool wants_mpi(const Asked& asked) {
  return asked.options.communicator != nullptr || asked.config.get(rendezvous::kController) == "mpi" ||
         asked.config.get(rendezvous::kCpuOperations) == "mpi";
}

/// `expected`: how many processes the launcher says there are; 0: not known.
Result<Meeting> meet_through_mpi(const Asked& asked, const std::string& flavor, int expected,
                                 const std::shared_ptr<Log>& log) {
  Meeting meeting;
  const std::span<const int> ranks = ranks_of(asked.options);
  HORO_ASSIGN(meeting.fabric, PluginFabric::open(asked.config, flavor, {asked.options.communicator, ranks}));
  meeting.place.rank = meeting.fabric->rank();
  meeting.place.size = meeting.fabric->size();
  if (asked.options.communicator == nullptr && ranks.empty() && expected > 0 && expected != meeting.place.size) {
    return invalid(text(meeting.fabric->name(), " counts ", meeting.place.size, " processes, but ", expected,
                        " were started: that MPI is not the one of their launcher. Start them with its mpirun, name "
                        "the right library in HORO_MPI_LIBRARY, or set HORO_CONTROLLER=horo to do without MPI"));
  }
  meeting.moves_data = asked.config.get(rendezvous::kCpuOperations) == "mpi";
  if (meeting.moves_data && !meeting.fabric->any_thread()) {
    return invalid(text(meeting.fabric->name(),
                        " was started without MPI_THREAD_MULTIPLE, which "
                        "HORO_CPU_OPERATIONS=mpi needs: ask for it when MPI is initialised (mpi4py does), and leave "
                        "HORO_MPI_THREADS_DISABLE at 0"));
  }
  HORO_ASSIGN(meeting.on_one_host, on_one_host(*meeting.fabric, asked.config));
  log->info("ranks meet through ", meeting.fabric->name(), ": rank ", meeting.place.rank, " of ", meeting.place.size,
            meeting.moves_data ? "; its operations move the data" : "");
  if (meeting.place.size == 1) {
    HORO_ASSIGN(meeting.key, fresh_key());
    return meeting;
  }
  HORO_TRY(exchange_letter(meeting, asked.config, log));
  return meeting;
}

// ---- By what a launcher tells ---------------------------------------------------------------------------------------

Status missing(const LauncherPlace& found, std::string_view what) {
  return invalid(text(found.launcher->name, " started ", found.size, " ranks (", found.variable, " is ", found.rank,
                      ") but ", what));
}

/// Of several hosts, or of one whose runs cannot be told apart.
Status check_address(const LauncherPlace& found, const Asked& asked, bool keyed, const JobPlace& place) {
  if (place.store.empty()) {
    return missing(found, text("tells no address where they can meet: set HORO_STORE to host:port, with a port that is "
                               "free on the host of rank 0",
                               keyed ? ""
                                     : ", and HORO_KEY_FILE to a file with the "
                                       "job's key on every host"));
  }
  if (keyed || found.one_host || asked.config.is_set(rendezvous::kStore)) return {};
  const std::string_view advice = found.launcher->advice;
  return missing(found, text("there is no key that keeps others out of the job: put 32 random bytes into a file that "
                             "only you can read, on every host, and name it in HORO_KEY_FILE",
                             advice.empty() ? "" : "; or ", advice));
}

/// The first rank leaves key and address in a file of this host's.
Status hand_over(const Asked& asked, const std::string& run, Meeting& meeting, const std::shared_ptr<Log>& log) {
  const std::string folder = rendezvous::handover_folder(asked.environment.find("TMPDIR").value_or(""));
  if (meeting.place.rank != 0) {
    const Deadline deadline = Deadline::after(asked.config.get(group::kTimeout));
    HORO_ASSIGN(rendezvous::HandedOver got, rendezvous::await_handover(folder, run, deadline));
    meeting.key = std::make_shared<const net::Key>(std::move(got.key));
    meeting.place.store = got.store;
    return {};
  }
  if (meeting.key == nullptr) {
    HORO_ASSIGN(meeting.key, fresh_key());
  }
  HORO_ASSIGN(meeting.server,
              rendezvous::TcpStoreServer::start(net::Address::loopback(),
                                                {.job = meeting.place.job, .key = meeting.key, .log = log.get()}));
  meeting.place.store = meeting.server->address().to_string();
  HORO_ASSIGN(rendezvous::Handover letter, rendezvous::Handover::leave(folder, run, *meeting.key, meeting.place.store));
  meeting.letter.emplace(std::move(letter));
  return {};
}

Result<Meeting> meet_by(const LauncherPlace& found, const Asked& asked, const SharedKey& known,
                        const std::shared_ptr<Log>& log) {
  if (found.size == 0) {
    return invalid(text(found.launcher->name, " tells this process its rank (", found.variable, "=", found.rank,
                        ") but not how many there are: set HORO_SIZE and HORO_STORE, or make its MPI available"));
  }
  Meeting meeting;
  meeting.place.rank = found.rank;
  meeting.place.size = found.size;
  meeting.on_one_host = found.one_host;
  const bool named = asked.config.is_set(rendezvous::kJobId);
  const std::span<const int> ranks = ranks_of(asked.options);
  const std::string run = found.run + list_suffix(ranks);
  meeting.place.job = named || found.run.empty() ? asked.config.get(rendezvous::kJobId) : found.run;
  if (meeting.place.job.size() > net::Identity::kMostJobBytes) meeting.place.job.resize(net::Identity::kMostJobBytes);
  HORO_TRY(narrow(ranks, meeting.place));
  if (meeting.place.size == 1) {
    HORO_TRY(take_key(asked, known, meeting));
    return meeting;
  }
  const bool keyed = has_key(asked, known);
  if (keyed) HORO_TRY(take_key(asked, known, meeting));
  const std::string store = asked.config.get(rendezvous::kStore);
  if (store.empty() && found.one_host && !found.run.empty()) {
    HORO_TRY(hand_over(asked, run, meeting, log));
    meeting.lasts = true;
    return meeting;
  }
  meeting.place.store = store.empty() ? found.store : store;
  HORO_TRY(check_address(found, asked, keyed, meeting.place));
  if (!keyed) HORO_TRY(take_key(asked, known, meeting));
  return meeting;
}

Result<Meeting> meet_as_told(const Asked& asked, const SharedKey& known) {
  Meeting meeting;
  HORO_ASSIGN(meeting.place, rendezvous::find_place(asked.config));
  HORO_TRY(narrow(ranks_of(asked.options), meeting.place));
  HORO_TRY(take_key(asked, known, meeting));
  return meeting;
}

// ---- At the door of a running job -----------------------------------------------------------------------------------

constexpr Duration kAtTheDoor = std::chrono::seconds(5);

/// Waits until the job takes this process in.
Result<Meeting> meet_at_door(const Asked& asked, const SharedKey& known, int attempt, const std::shared_ptr<Log>& log) {
  Meeting meeting;
  meeting.place.job = asked.config.get(rendezvous::kJobId);
  meeting.place.store = asked.config.get(rendezvous::kStore);
  meeting.is_newcomer = meeting.lasts = true;
  const rendezvous::Newcomer self{static_cast<int>(asked.config.get(rendezvous::kSeat)), attempt};
  if (meeting.place.store.empty()) {
    return invalid(text("HORO_SEAT is ", self.seat,
                        " and HORO_RANK is not set: the process waits to enter a job, but "
                        "HORO_STORE does not say where; start ranks with `horo run`"));
  }
  HORO_TRY(take_key(asked, known, meeting));
  const Deadline deadline = Deadline::after(std::chrono::seconds(asked.config.get(kElasticTimeout)));
  meeting.place.rank = 1;  // It does not serve the store.
  HORO_ASSIGN(rendezvous::StoreAccess access,
              rendezvous::open_store(meeting.place, meeting.key, log.get(), Deadline::after(kAtTheDoor)));
  rendezvous::Door door(*access.store, meeting.place.job);
  HORO_TRY(door.knock(self, Deadline::after(kAtTheDoor)));
  log->info("seat ", self.seat, " waits until the job takes it in");
  const auto admission = door.await_admission(self, deadline);
  if (!admission.ok()) {
    if (admission.status().code() == Code::kStopped) return admission.status();
    if (admission.status().code() != Code::kTimeout) return admission.status().prefixed("the launcher's store");
    door.turn_away(self, Deadline::after(kAtTheDoor));
    return Status(Code::kTimeout, text("the job did not take in seat ", self.seat,
                                       " within HORO_ELASTIC_TIMEOUT; it "
                                       "does so when its ranks commit their state"));
  }
  meeting.generation = admission->generation;
  meeting.place.rank = admission->rank;
  meeting.place.size = admission->size;
  return meeting;
}

Result<Meeting> meet_first(const Asked& asked, const SharedKey& known, const std::shared_ptr<Log>& log) {
  if (asked.config.get(rendezvous::kRank) >= 0) {
    const auto size = static_cast<int>(asked.config.get(rendezvous::kSize));
    return wants_mpi(asked) ? meet_through_mpi(asked, "", size, log) : meet_as_told(asked, known);
  }
  HORO_ASSIGN(rendezvous::LauncherFinding finding, rendezvous::find_launcher(asked.environment));
  if (!finding.warning.empty()) log->warning(finding.warning);
  if (!finding.place) return wants_mpi(asked) ? meet_through_mpi(asked, "", 0, log) : meet_as_told(asked, known);
  const LauncherPlace& found = *finding.place;
  log->info("started by ", found.launcher->name, ": rank ", found.rank, " of ", found.size, " (", found.variable, ")");
  const bool usual = asked.config.get(rendezvous::kController) == "auto" && found.launcher->speaks_mpi &&
                     found.size != 1 && !asked.config.is_set(rendezvous::kStore);
  if (wants_mpi(asked) || usual) {
    auto met = meet_through_mpi(asked, std::string(found.launcher->flavor), found.size, log);
    if (met.ok() || wants_mpi(asked) || met.status().code() != Code::kNotFound) return met;
    log->info("not through MPI: ", met.status());
    if (found.size == 0) return met;
  }
  return meet_by(found, asked, known, log);
}

}  // namespace

std::span<const int> ranks_of(const horo_engine_options& options) {
  return options.ranks == nullptr ? std::span<const int>() : std::span(options.ranks, options.rank_count);
}

std::string list_suffix(std::span<const int> ranks) {
  std::string suffix;
  for (const int rank : ranks) suffix += text(suffix.empty() ? "/" : ",", rank);
  return suffix;
}

Result<Meeting> meet(const Asked& asked, const Rejoining& before, const std::shared_ptr<Log>& log) {
  const bool all = asked.options.communicator == nullptr && asked.options.ranks == nullptr;
  Meeting meeting;
  if (asked.options.generation != nullptr) {
    if (!all || before.store.empty()) return invalid("only the ranks of a job that has a store can begin a generation");
    meeting.place = {asked.options.rank, asked.options.size, before.job, before.store};
    meeting.generation = asked.options.generation;
  } else if (before.place && all) {
    meeting.place = *before.place;
    meeting.generation = before.generation;
  } else if (asked.config.get(rendezvous::kSeat) >= 0 && asked.config.get(rendezvous::kRank) < 0 && all) {
    return meet_at_door(asked, before.key, before.knocks + 1, log);
  } else {
    return meet_first(asked, before.key, log);
  }
  meeting.key = before.key;
  meeting.server = before.server;
  meeting.on_one_host = before.on_one_host;
  meeting.lasts = true;
  return meeting;
}

}  // namespace horo::api
