#include "cli/run/flags.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <memory>

#include <CLI/CLI.hpp>

#include "horo/base/log.h"
#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

constexpr int64_t kMostNumber = int64_t{1} << 40;

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

bool takes_value(FlagKind kind) { return kind != FlagKind::kSwitch && kind != FlagKind::kNegatable; }

struct Split {
  std::vector<std::string> flags;
  std::vector<std::string> command;
};

/// Cuts the words where the command begins, and gives every flag the name that CLI11 knows it by ("-np" is none that it
/// could take). Values are tied to their flags, so that they may begin with "-".
class Splitter {
 public:
  explicit Splitter(const std::vector<std::string>& words) : words_(words) {}

  Split split() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_];
      const bool is_flag = word.size() > 1 && word[0] == '-';
      if (word == "--") ++at_;
      if (!is_flag || word == "--") break;
      take_flag(word);
    }
    result_.command.assign(words_.begin() + static_cast<ptrdiff_t>(at_), words_.end());
    return std::move(result_);
  }

 private:
  void take_flag(const std::string& word) {
    ++at_;
    const size_t equals = word.find('=');
    const FlagRow* row = find_flag(word.substr(0, equals));
    // "-p2222": one letter and its value.
    if (row == nullptr && word[1] != '-') row = find_flag(word.substr(0, 2));
    const bool attached = row != nullptr && equals == word.npos && find_flag(word) == nullptr;
    if (row == nullptr || !takes_value(row->kind)) {
      result_.flags.push_back(row == nullptr || word.starts_with("--no-") ? word : std::string(row->name));
    } else if (equals != word.npos || attached) {
      result_.flags.push_back(text(row->name, "=", word.substr(attached ? 2 : equals + 1)));
    } else {
      take_values(*row);
    }
  }

  void take_values(const FlagRow& row) {
    const size_t count = row.kind == FlagKind::kPair ? 2 : 1;
    if (count == 1 && at_ < words_.size()) {
      result_.flags.push_back(text(row.name, "=", words_[at_++]));
      return;
    }
    result_.flags.emplace_back(row.name);
    for (size_t i = 0; i < count && at_ < words_.size(); ++i) result_.flags.push_back(words_[at_++]);
  }

  const std::vector<std::string>& words_;
  size_t at_ = 0;
  Split result_;
};

/// "-H,--hosts": the names of a row that CLI11 can take.
std::string names_of(const FlagRow& row) {
  std::string names(row.name);
  std::string_view aliases = row.aliases;
  while (!aliases.empty()) {
    const size_t comma = std::min(aliases.find(','), aliases.size());
    const std::string_view alias = aliases.substr(0, comma);
    if (alias.starts_with("--") || alias.size() == 2) names = text(alias, ",", names);
    aliases.remove_prefix(std::min(comma + 1, aliases.size()));
  }
  if (row.kind == FlagKind::kNegatable) names += text(",!--no-", row.name.substr(2));
  return names;
}

std::string group_of(const FlagRow& row) {
  if (!row.note.empty()) return "Accepted without effect";
  return row.variable.empty() ? "Launching" : "For the ranks (in brackets: the default)";
}

struct Registered {
  const FlagRow* row;
  CLI::Option* option;
};

/// Help with names as users write them: CLI11 takes no "-np", and would print "--no-x{false}".
class Help : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: horo run [OPTIONS] COMMAND [ARGUMENTS]\n";
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    const FlagRow* row = find_flag("--" + option->get_lnames().front());
    if (row == nullptr) return Formatter::make_option_name(option, is_positional);
    const std::string no = row->kind == FlagKind::kNegatable ? text(",--no-", row->name.substr(2)) : "";
    return text(row->aliases, row->aliases.empty() ? "" : ",", row->name, no);
  }
};

std::vector<Registered> register_all(CLI::App& app) {
  std::vector<Registered> all;
  for (const FlagRow& row : flag_table()) {
    const std::string help = row.note.empty() ? std::string(row.help) : std::string(row.note) + ".";
    CLI::Option* option = nullptr;
    if (takes_value(row.kind)) {
      option = app.add_option(
          names_of(row), [](const CLI::results_t&) { return true; }, help);
      option->expected(row.kind == FlagKind::kPair ? 2 : 1);
      if (row.kind == FlagKind::kTexts) option->expected(1, 1000)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      if (row.kind != FlagKind::kPair && row.kind != FlagKind::kTexts) option->take_last();
    } else {
      option = app.add_flag(names_of(row), help)->take_last();
    }
    option->group(group_of(row));
    all.push_back({&row, option});
  }
  return all;
}

std::string explain(const CLI::ParseError& error, const std::vector<std::string>& flags) {
  std::vector<std::string_view> names;
  for (const FlagRow& row : flag_table()) names.push_back(row.name);
  std::string words = error.what();
  for (const std::string& flag : flags) {
    const std::string_view name = std::string_view(flag).substr(0, flag.find('='));
    if (!name.starts_with("--") || find_flag(name) != nullptr || name == "--help") continue;
    const std::string_view nearest = nearest_word(name, names);
    if (!nearest.empty()) words += text("; did you mean '", nearest, "' in place of '", name, "'?");
  }
  return words;
}

Result<double> number(std::string_view value) {
  double parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(parsed)) {
    return invalid("not a number");
  }
  return parsed;
}

bool is_truth(std::string_view value) { return value == "true" || value == "false"; }

/// What is wanted, when it is not that; empty when all is well.
std::string_view complaint(FlagKind kind, std::string_view value) {
  if (kind == FlagKind::kSwitch || kind == FlagKind::kNegatable) return is_truth(value) ? "" : "true or false";
  if (kind == FlagKind::kText || kind == FlagKind::kTexts) return value.empty() ? "something" : "";
  if (kind == FlagKind::kLevel) {
    const auto level = log_level_named(value);
    return level && level != LogLevel::kOff ? "" : "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL";
  }
  const auto parsed = number(value);
  const bool whole = parsed.ok() && std::floor(*parsed) == *parsed && *parsed <= static_cast<double>(kMostNumber);
  if (kind == FlagKind::kCount) return whole && *parsed >= 0 ? "" : "a whole number, 0 or more";
  if (kind == FlagKind::kPositive) return whole && *parsed >= 1 ? "" : "a whole number, 1 or more";
  if (kind == FlagKind::kFraction) return parsed.ok() && *parsed >= 0 && *parsed <= 1 ? "" : "a number from 0 to 1";
  return parsed.ok() && *parsed >= 0 ? "" : "a number, 0 or more";
}

std::string lower(std::string word) {
  for (char& letter : word) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return word;
}

std::string formed(const FlagRow& row, const std::string& value, bool for_horo) {
  switch (row.form) {
    case ValueForm::kMebibytes:
      return text(static_cast<int64_t>(number(value).value()) << 20);
    case ValueForm::kMilliseconds:
      return for_horo ? value + "ms" : value;
    case ValueForm::kSwitch:
      return value == "true" ? "1" : "0";
    case ValueForm::kInverted:
      return value == "true" ? "0" : "1";
    case ValueForm::kPlain:
      break;
  }
  return row.kind == FlagKind::kLevel ? lower(value) : value;
}

}  // namespace

std::optional<std::string> FlagValues::find(std::string_view name) const {
  const auto place = values.find(name);
  if (place == values.end()) return {};
  return place->second.back();
}

Status check_value(const FlagRow& row, std::string_view value, std::string_view origin) {
  const std::string_view wanted = complaint(row.kind, value);
  if (wanted.empty()) return {};
  return invalid(text(origin, ": '", value, "' is not ", wanted));
}

Result<FlagValues> parse_flags(const std::vector<std::string>& words) {
  Split split = Splitter(words).split();
  CLI::App app(
      "Starts the same command on every slot of one or many hosts, and ends all of them with the first that fails.",
      "horo run");
  app.formatter(std::make_shared<Help>());
  const std::vector<Registered> all = register_all(app);
  FlagValues result;
  try {
    app.parse(std::vector<std::string>(split.flags.rbegin(), split.flags.rend()));
  } catch (const CLI::Success&) {
    result.help = app.help();
    return result;
  } catch (const CLI::ParseError& error) {
    return invalid(explain(error, split.flags));
  }
  for (const auto& [row, option] : all) {
    if (option->count() == 0) continue;
    const auto given =
        takes_value(row->kind) ? option->results() : std::vector<std::string>{option->as<bool>() ? "true" : "false"};
    for (const std::string& value : given) HORO_TRY(check_value(*row, value, row->name));
    result.values[std::string(row->name)] = given;
  }
  result.command = std::move(split.command);
  return result;
}

Environment::Variables variables_of(const FlagValues& flags, std::string_view knobs) {
  Environment::Variables variables;
  for (const FlagRow& row : flag_table()) {
    const auto value = flags.find(row.name);
    if (!value || row.variable.empty()) continue;
    if (!row.variable.starts_with("HORO_")) {
      variables[std::string(row.variable)] = formed(row, *value, false);
      continue;
    }
    const std::string horo(row.variable);
    const std::string legacy = legacy_name(row);
    const bool known = knobs.find(text("`", horo, "`")) != knobs.npos;
    variables[known ? horo : legacy] = formed(row, *value, known);
    variables[known ? legacy : horo] = "";
  }
  return variables;
}

std::vector<std::string> notes_of(const FlagValues& flags) {
  std::vector<std::string> notes;
  for (const FlagRow& row : flag_table()) {
    if (!row.note.empty() && flags.has(row.name)) notes.push_back(text(row.name, " changes nothing: ", row.note));
  }
  return notes;
}

}  // namespace horo::cli::launch
