#include "horo/api/joining.h"

#include "horo/api/old_variables.h"
#include "horo/api/python_knobs.h"
#include "horo/base/text.h"
#include "horo/engine/knobs.h"
#include "horo/group/knobs.h"
#include "horo/rendezvous/knobs.h"

namespace {

constexpr horo::KnobTable kTables[] = {horo::rendezvous::kKnobs, horo::group::kKnobs, horo::engine::kKnobs,
                                       horo::api::kPythonKnobs};

}  // namespace

namespace horo::api {

namespace {

/// The environment with what the options say on top.
Result<Environment> environment_of(const horo_engine_options& options) {
  Environment::Variables changes;
  for (const char* const* setting = options.settings; setting != nullptr && *setting != nullptr; ++setting) {
    const std::string_view words(*setting);
    const size_t equals = words.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return Status(Code::kInvalidArgument, text("setting '", words, "' is not of the form NAME=value"));
    }
    changes[std::string(words.substr(0, equals))] = words.substr(equals + 1);
  }
  // Under both names: what a launcher set under the old one is no contradiction to be warned of.
  for (const char* name : {"HORO_RANK", "HOROVOD_RANK"}) {
    if (options.rank >= 0) changes[name] = std::to_string(options.rank);
  }
  for (const char* name : {"HORO_SIZE", "HOROVOD_SIZE"}) {
    if (options.size >= 0) changes[name] = std::to_string(options.size);
  }
  if (options.store != nullptr) changes["HORO_STORE"] = options.store;
  if (options.job != nullptr) changes["HORO_JOB_ID"] = options.job;
  if (options.key_file != nullptr) changes["HORO_KEY_FILE"] = options.key_file;
  return Environment::of_process().with(changes);
}

Log::Sink sink_of(const horo_engine_options& options) {
  if (options.log_sink == nullptr) return {};
  return [sink = options.log_sink, context = options.log_context](LogLevel level, std::string_view line) {
    sink(context, static_cast<int>(level), std::string(line).c_str());
  };
}

}  // namespace

Result<Config> read_config(const char* const* settings) {
  horo_engine_options options = HORO_ENGINE_OPTIONS_INIT;
  options.settings = settings;
  HORO_ASSIGN(Environment environment, environment_of(options));
  return Config::read(kTables, environment, kOldVariables);
}

Rejoining Joining::joined() {
  if (meeting.loan) meeting.loan->keep();
  meeting.letter.reset();
  // A job of some of the processes leaves what is known about the job of all as it is.
  Rejoining next = before;
  if (meeting.is_newcomer) ++next.knocks;
  if (meeting.fabric == nullptr) next.times[list] = generation;
  if (list.empty() || !meeting.generation.empty()) {
    next.key = meeting.key;
    next.store = meeting.place.store;
    next.job = meeting.place.job;
    next.on_one_host = meeting.on_one_host;
    if (meeting.lasts) {
      next.place = meeting.place;
      next.generation = meeting.generation;
      next.server = meeting.server;
      next.log = log;
    }
  } else if (next.key == nullptr && !meeting.lasts) {
    next.key = meeting.key;  // Its descriptor is closed.
  }
  return next;
}

Result<Joining> prepare(const horo_engine_options& options, const Rejoining& before) {
  HORO_ASSIGN(Environment environment, environment_of(options));
  HORO_ASSIGN(Config config, Config::read(kTables, environment, kOldVariables));
  auto log = std::make_shared<Log>(log_level_named(config.get(group::kLogLevel)).value_or(LogLevel::kWarning),
                                   sink_of(options));
  log->set_hide_time(config.get(group::kLogHideTime));
  HORO_ASSIGN(Meeting meeting, meet({options, environment, config}, before, log));
  if (meeting.on_one_host && !config.is_set(group::kInterface)) {
    const Environment nearby = environment.with({{"HORO_INTERFACE", "127.0.0.1"}});
    HORO_ASSIGN(config, Config::read(kTables, nearby, kOldVariables));
  }
  // A generation of the job is a job of its own.
  const std::string list = meeting.generation.empty() ? list_suffix(ranks_of(options)) : text("+", meeting.generation);
  const auto came = before.times.find(list);
  // What ranks agree on through MPI has a new name each time.
  const int generation = came == before.times.end() || meeting.fabric != nullptr ? 0 : came->second + 1;
  const std::string job = meeting.place.job + list;
  group::EngineOptions engine{.rank = meeting.place.rank,
                              .size = meeting.place.size,
                              .job = generation == 0 ? job : text(job, "~", generation),
                              .key = meeting.key->is_none() ? nullptr : meeting.key,
                              .store = nullptr,
                              .config = config,
                              .log_sink = sink_of(options),
                              .fabric = meeting.moves_data ? meeting.fabric : nullptr};
  Joining joining{std::move(log), {}, std::move(meeting), std::move(engine), before, list, generation};
  if (joining.options.size > 1) {
    const Deadline deadline = Deadline::after(config.get(group::kTimeout));
    rendezvous::JobPlace at = joining.meeting.place;
    if (!joining.meeting.generation.empty()) at.rank = 1;  // Somebody serves the store, or nobody can come.
    HORO_ASSIGN(joining.access, rendezvous::open_store(at, joining.meeting.key, joining.log.get(), deadline));
    joining.options.store = std::move(joining.access.store);
  }
  return joining;
}

std::span<const KnobTable> knob_tables() { return kTables; }

std::string old_variables_markdown() {
  std::string out =
      "\n## Variables of Horovod's that set nothing\n\n"
      "Whoever sets one is told so: at level warning where the job does not do what it asks for, else at level "
      "info.\n\n"
      "| variable | why | level |\n|---|---|---|\n";
  for (const OldVariable& old : kOldVariables) {
    out += text("| `", old.name, "` | ", old.why, " | ", old.matters ? "warning" : "info", " |\n");
  }
  return out;
}

}  // namespace horo::api

const char* horo_knobs_help(void) {
  static const std::string kHelp = horo::knobs_help(kTables);
  return kHelp.c_str();
}

const char* horo_knobs_markdown(void) {
  static const std::string kMarkdown = horo::knobs_markdown(kTables) + horo::api::old_variables_markdown();
  return kMarkdown.c_str();
}
