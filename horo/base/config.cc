#include "horo/base/config.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "horo/base/text.h"

namespace horo {

Environment Environment::of_process() {
  Variables variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    std::string_view line = *variable;
    size_t equals = line.find('=');
    if (equals != std::string_view::npos) variables.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return Environment(std::move(variables));
}

std::optional<std::string> Environment::find(std::string_view name) const {
  auto found = variables_.find(name);
  if (found == variables_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

Environment Environment::with(const Variables& changes) const {
  Variables changed = variables_;
  for (const auto& [name, value] : changes) changed.insert_or_assign(name, value);
  return Environment(std::move(changed));
}

Result<Config> Config::read(std::span<const KnobTable> tables, const Environment& environment,
                            std::span<const OldVariable> old) {
  auto contents = std::make_shared<Contents>();
  std::string problems;
  for (KnobTable table : tables) {
    for (const Knob* knob : table) {
      auto read = read_entry(*knob, environment, *contents);
      if (!read.ok()) {
        problems += (problems.empty() ? "" : "; ") + read.status().message();
        continue;
      }
      bool fresh = contents->entries.emplace(knob->row.name, *std::move(read)).second;
      HORO_CHECK(fresh, text("two knobs are called ", knob->row.name));
    }
  }
  if (!problems.empty()) return Status(Code::kInvalidArgument, std::move(problems));
  note_unknown(tables, environment, old, *contents);
  return Config(std::move(contents));
}

Result<Config::Entry> Config::read_entry(const Knob& knob, const Environment& environment, Contents& contents) {
  const KnobRow& row = knob.row;
  auto current = environment.find(row.name);
  auto legacy = row.legacy.empty() ? std::nullopt : environment.find(row.legacy);
  if (legacy && legacy->find_first_not_of("0123456789.") == std::string::npos) *legacy += row.legacy_unit;

  if (current) {
    HORO_ASSIGN(KnobValue value, parse_knob(knob, row.name, *current));
    auto old = legacy ? parse_knob(knob, row.legacy, *legacy) : Result<KnobValue>(value);
    if (!old.ok() || *old != value) {
      contents.warnings.push_back(
          text(row.name, " and ", row.legacy, " are both set and differ; ", row.name, " is used"));
    }
    return Entry{std::move(value), true};
  }
  if (legacy) {
    HORO_ASSIGN(KnobValue value, parse_knob(knob, row.legacy, *legacy));
    return Entry{std::move(value), true};
  }
  auto value = parse_knob(knob, row.name, row.fallback);
  HORO_CHECK(value.ok(), text("the default of a knob is malformed: ", value.status()));
  return Entry{*std::move(value), false};
}

void Config::note_unknown(std::span<const KnobTable> tables, const Environment& environment,
                          std::span<const OldVariable> old, Contents& contents) {
  std::vector<std::string_view> names;
  std::set<std::string_view> legacy;
  for (KnobTable table : tables) {
    for (const Knob* knob : table) {
      names.push_back(knob->row.name);
      legacy.insert(knob->row.legacy);
    }
  }
  for (const auto& [name, value] : environment.variables()) {
    const auto is_this = [&name = name](const OldVariable& one) { return one.name == name; };
    const auto known = std::find_if(old.begin(), old.end(), is_this);
    if (known != old.end() && !legacy.contains(name)) {
      if (value.empty() || value == known->usual) continue;
      std::vector<std::string>& lines = known->matters ? contents.warnings : contents.notes;
      lines.push_back(text(name, " changes nothing: ", known->why));
      continue;
    }
    if (name.starts_with("HORO_") && !contents.entries.contains(name)) {
      std::string_view near = nearest_word(name, names);
      contents.warnings.push_back(
          text(name, " is set but horo has no such knob", near.empty() ? "" : text("; did you mean ", near, "?")));
    } else if (name.starts_with("HOROVOD_") && !legacy.contains(name)) {
      contents.ignored.push_back(name);
    }
  }
}

const Config::Entry& Config::entry(std::string_view name) const {
  auto found = contents_->entries.find(name);
  HORO_CHECK(found != contents_->entries.end(), text("the knob ", name, " is in no table that was read"));
  return found->second;
}

}  // namespace horo
