#include "cli/command_line.h"

#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/bench/bench.h"
#include "cli/bench/engine_rank.h"
#include "cli/bench/flags.h"
#include "cli/bench/rank.h"
#include "cli/check/facts.h"
#include "cli/check/rank.h"
#include "cli/check/scenarios.h"
#include "cli/machine.h"
#include "cli/run/agent.h"
#include "cli/run/run.h"
#include "cli/table.h"
#include "cli/timeline/flags.h"

#include "horo/api/horo.h"
#include "horo/base/text.h"

namespace horo::cli {

namespace {

constexpr int kFailed = 1;
constexpr int kWrongCommandLine = 2;

int finish(const Status& status) {
  if (status.ok()) return 0;
  std::cerr << "horo: " << status.to_string() << '\n';
  return status.code() == Code::kInvalidArgument ? kWrongCommandLine : kFailed;
}

/// All flags and subcommands that could have been meant.
std::vector<std::string> names_in(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  return names;
}

const CLI::App& innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.front());
}

/// "horo bench: unknown '--dtyp': did you mean '--dtype'?"
int explain(const CLI::App& app, const std::vector<std::string>& words, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  std::cerr << (&command == &app ? "horo" : "horo " + command.get_name()) << ": " << error.what() << '\n';
  const std::vector<std::string> names = names_in(command);
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  for (const std::string& word : words) {
    const std::string flag = word.substr(0, word.find('='));
    if (std::find(names.begin(), names.end(), flag) != names.end()) continue;
    const std::string_view nearest = nearest_word(flag, candidates);
    if (!nearest.empty()) std::cerr << "Did you mean '" << nearest << "' in place of '" << flag << "'?\n";
  }
  std::cerr << "Run it with --help for what there is.\n";
  return kWrongCommandLine;
}

/// -np 4, as other launchers have it, is --np 4.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::string& word : words) {
    if (word == "-np") word = "--np";
  }
  return words;
}

struct CheckFlags {
  bool self_test = false;
  bool algorithms = false;
  bool json = false;
  SelfTestOptions test;

  void add_to(CLI::App& command) {
    auto* wanted = command.add_flag("--self-test", self_test, "Kill, freeze, mismatch and pester a small job");
    command.add_option("--seconds", test.seconds, "How long the self-test takes, about")
        ->needs(wanted)
        ->check(CLI::Range(0.0, 86400.0))
        ->capture_default_str();
    command.add_option("--seed", test.seed, "Of the self-test's choices")->needs(wanted)->capture_default_str();
    command.add_flag("--algorithms", algorithms, "List the collective algorithms");
    command.add_flag("--json", json, "What this machine offers, for programs");
  }
};

int run_check(const CheckFlags& flags) {
  if (flags.algorithms) {
    std::cout << algorithms_text(colours_on(1));
    return 0;
  }
  if (flags.self_test) {
    std::cout << this_machine().to_string() << "\n" << std::endl;
    return report_self_test(run_self_test(flags.test), flags.test) ? 0 : kFailed;
  }
  const Facts facts = all_facts(Environment::of_process());
  std::cout << (flags.json ? facts_json(facts) : facts_text(facts, colours_on(1)));
  return has_problem(facts) ? kFailed : 0;
}

/// These two read their own words: what follows the flags of `run` belongs to somebody else's program.
std::optional<int> run_launcher(int argc, char** argv) {
  const std::string name = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : std::string();
  if (name == launch::kLegacyName) return launch::run_command({argv + 1, argv + argc});
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "run") return launch::run_command({argv + 2, argv + argc});
  if (command == "agent") return launch::run_agent({argv + 2, argv + argc});
  return {};
}

}  // namespace

int run(int argc, char** argv) {
  if (const auto code = run_launcher(argc, argv)) return *code;
  CLI::App app("horo: collectives that are fast and survive", "horo");
  app.set_version_flag("--version", version_text() + "\n");
  app.require_subcommand(1);

  app.add_subcommand("run", "Start a command on every slot of one or many hosts (horo run --help)");
  bench::Flags bench_flags;
  CLI::App* bench_command = app.add_subcommand("bench", "Measure a collective, beside other libraries if asked");
  bench_flags.add_to(*bench_command);
  bool markdown = false;
  CLI::App* knobs = app.add_subcommand("knobs", "List the HORO_* variables");
  knobs->add_flag("--markdown", markdown, "As a table for the documentation");
  CheckFlags check_flags;
  CLI::App* check_command = app.add_subcommand("check", "Say what this machine offers, and test horo on it");
  check_flags.add_to(*check_command);
  timeline::Flags timeline_flags;
  CLI::App* timeline_command = app.add_subcommand("timeline", "Put the timelines of several ranks together");
  timeline_flags.add_to(*timeline_command);
  CheckRankOptions check_rank;
  CLI::App* check_rank_command = app.add_subcommand("check-rank", "One rank of the self-test")->group("");
  check_rank_command->add_option("--report", check_rank.report)->required();
  check_rank_command->add_option("--stop", check_rank.stop);
  check_rank_command->add_flag("--mismatch", check_rank.mismatch);
  check_rank_command->add_flag("--idle", check_rank.idle);
  std::string folder;
  CLI::App* rank = app.add_subcommand("bench-rank", "One rank of horo bench")->group("");
  rank->add_option("folder", folder)->required();
  bench::EngineRankOptions engine_rank;
  CLI::App* engine_rank_command = app.add_subcommand("bench-engine-rank", "One rank of horo bench engine")->group("");
  engine_rank_command->add_option("--report", engine_rank.folder);
  engine_rank_command->add_option("--rounds", engine_rank.rounds);
  engine_rank_command->add_option("--operations", engine_rank.operations);
  engine_rank_command->add_option("--idle-seconds", engine_rank.idle_seconds);
  engine_rank_command->add_option("--seed", engine_rank.seed);

  const std::vector<std::string> words = words_of(argc, argv);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& asked) {
    return app.exit(asked);  // --help, --version
  } catch (const CLI::ParseError& error) {
    return explain(app, words, error);
  }
  if (rank->parsed()) return bench::run_bench_rank(folder);
  if (engine_rank_command->parsed()) return bench::run_engine_rank(engine_rank);
  if (check_rank_command->parsed()) return run_check_rank(check_rank);
  if (check_command->parsed()) return run_check(check_flags);
  if (timeline_command->parsed()) return finish(timeline::run(timeline_flags));
  if (knobs->parsed()) {
    std::cout << (markdown ? horo_knobs_markdown() : horo_knobs_help());
    return 0;
  }
  const auto options = bench_flags.options();
  return finish(options.ok() ? bench::run_bench(*options) : options.status());
}

}  // namespace horo::cli
