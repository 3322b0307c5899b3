#include "cli/run/config_file.h"

#include <yaml.h>

#include <memory>

#include "horo/base/text.h"

namespace horo::cli::launch {

namespace {

/// One scalar of the file.
struct Setting {
  std::string key;  ///< "params.cycle_time_ms"
  std::string value;
  size_t line = 0;
};

Status invalid(std::string_view path, size_t line, const std::string& words) {
  return Status(Code::kInvalidArgument, text(path, ":", line, ": ", words));
}

/// A document of libyaml, and the way from its nodes to settings.
class Document {
 public:
  explicit Document(std::string_view path) : path_(path) {}
  ~Document() {
    if (loaded_) yaml_document_delete(&document_);
  }
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  Status load(std::string_view contents) {
    yaml_parser_t parser;
    if (yaml_parser_initialize(&parser) == 0) return Status(Code::kUnavailable, "no memory to read YAML");
    const std::unique_ptr<yaml_parser_t, void (*)(yaml_parser_t*)> owner(&parser, yaml_parser_delete);
    yaml_parser_set_input_string(&parser, reinterpret_cast<const unsigned char*>(contents.data()), contents.size());
    loaded_ = yaml_parser_load(&parser, &document_) != 0;
    if (loaded_) return {};
    return invalid(path_, parser.problem_mark.line + 1, text("no YAML: ", parser.problem ? parser.problem : "damaged"));
  }

  Result<std::vector<Setting>> settings() {
    std::vector<Setting> list;
    yaml_node_t* root = yaml_document_get_root_node(&document_);
    if (root == nullptr) return list;
    HORO_TRY(walk(*root, "", list));
    return list;
  }

 private:
  Status walk(const yaml_node_t& node, const std::string& prefix, std::vector<Setting>& list) {
    const size_t line = node.start_mark.line + 1;
    if (node.type != YAML_MAPPING_NODE)
      return invalid(path_, line, "a section must have lines of the form name: value");
    for (const auto* pair = node.data.mapping.pairs.start; pair < node.data.mapping.pairs.top; ++pair) {
      const yaml_node_t& key = *yaml_document_get_node(&document_, pair->key);
      const yaml_node_t& value = *yaml_document_get_node(&document_, pair->value);
      if (key.type != YAML_SCALAR_NODE) return invalid(path_, key.start_mark.line + 1, "a name is expected");
      const std::string name = prefix + scalar(key);
      if (value.type == YAML_SCALAR_NODE) {
        list.push_back({name, scalar(value), value.start_mark.line + 1});
      } else if (!prefix.empty()) {
        return invalid(path_, value.start_mark.line + 1, text(name, " must have one value"));
      } else {
        HORO_TRY(walk(value, name + ".", list));
      }
    }
    return {};
  }

  static std::string scalar(const yaml_node_t& node) {
    return {reinterpret_cast<const char*>(node.data.scalar.value), node.data.scalar.length};
  }

  std::string_view path_;
  yaml_document_t document_{};
  bool loaded_ = false;
};

/// The words that YAML 1.1 has for them.
std::string truth(const std::string& value) {
  for (const char* yes : {"true", "True", "TRUE", "yes", "Yes", "on", "On", "1"}) {
    if (value == yes) return "true";
  }
  for (const char* no : {"false", "False", "FALSE", "no", "No", "off", "Off", "0"}) {
    if (value == no) return "false";
  }
  return value;
}

const FlagRow* row_of(std::string_view key) {
  for (const FlagRow& row : flag_table()) {
    if (!row.setting.empty() && row.setting == key) return &row;
  }
  return nullptr;
}

Status unknown(const Setting& setting, std::string_view path) {
  std::vector<std::string_view> known;
  for (const FlagRow& row : flag_table()) {
    if (!row.setting.empty()) known.push_back(row.setting);
  }
  const std::string_view nearest = nearest_word(setting.key, known);
  return invalid(
      path, setting.line,
      text("'", setting.key, "' is no setting", nearest.empty() ? "" : text("; did you mean '", nearest, "'?")));
}

/// Two flags may set one variable, and two settings too: the first that was given counts.
bool is_decided(const FlagRow& row, const FlagValues& flags) {
  for (const FlagRow& other : flag_table()) {
    const bool same = &other == &row || (!row.variable.empty() && other.variable == row.variable);
    if (same && flags.has(other.name)) return true;
  }
  return false;
}

Status add(const Setting& setting, std::string_view path, FlagValues& flags) {
  if (setting.key == "controller") {
    const std::string flag = "--" + setting.value;
    if (flag != "--gloo" && flag != "--mpi") {
      return invalid(path, setting.line, text("controller: '", setting.value, "' is not gloo or mpi"));
    }
    flags.values.try_emplace(flag, std::vector<std::string>{"true"});
    return {};
  }
  const FlagRow* row = row_of(setting.key);
  if (row == nullptr) return unknown(setting, path);
  const bool is_switch = row->kind == FlagKind::kSwitch || row->kind == FlagKind::kNegatable;
  const std::string value = is_switch ? truth(setting.value) : setting.value;
  HORO_TRY(check_value(*row, value, text(path, ":", setting.line, ": ", setting.key)));
  if (!is_decided(*row, flags)) flags.values[std::string(row->name)] = {value};
  return {};
}

}  // namespace

Status add_settings(std::string_view contents, std::string_view path, FlagValues& flags) {
  Document document(path);
  HORO_TRY(document.load(contents));
  HORO_ASSIGN(const auto settings, document.settings());
  for (const Setting& setting : settings) HORO_TRY(add(setting, path, flags));
  return {};
}

}  // namespace horo::cli::launch
