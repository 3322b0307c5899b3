// The command line of an example: `--name value` and `--flag`, each named once, checked, and listed by --help.
#pragma once

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

/// Ask for everything, then call finish(): it prints the help, or says what is wrong with the command line and exits.
class Arguments {
 public:
  Arguments(int argc, char** argv, std::string about) : about_(std::move(about)), words_(argv + 1, argv + argc) {
    const std::string_view path = argv[0];
    program_ = path.substr(path.rfind('/') + 1);
  }

  long number(std::string_view name, long fallback, long least, long most, std::string_view help) {
    describe(std::string(name) + " N", help, std::to_string(fallback));
    const std::string* given = take(name);
    if (given == nullptr) return fallback;
    long value = 0;
    const auto [end, error] = std::from_chars(given->data(), given->data() + given->size(), value);
    if (error == std::errc{} && *end == '\0' && value >= least && value <= most) return value;
    complain(std::string(name) + " is '" + *given + "', not a number from " + std::to_string(least) + " to " +
             std::to_string(most));
    return fallback;
  }

  std::string text(std::string_view name, const std::string& fallback, std::string_view help) {
    describe(std::string(name) + " X", help, fallback);
    const std::string* given = take(name);
    return given == nullptr ? fallback : *given;
  }

  /// Remembered: finish() shows the first one and exits.
  void complain(std::string words) {
    if (complaint_.empty()) complaint_ = std::move(words);
  }

  void finish() {
    for (const std::string& word : words_) {
      if (word == "--help" || word == "-h") {
        std::printf("%s\n\nusage: %s [options]\n%s  %-14s this text\n", about_.c_str(), program_.c_str(), help_.c_str(),
                    "--help");
        std::exit(0);
      }
      if (!word.empty()) complain("'" + word + "' is not understood");
    }
    if (complaint_.empty()) return;
    std::fprintf(stderr, "%s: %s; see %s --help\n", program_.c_str(), complaint_.c_str(), program_.c_str());
    std::exit(2);
  }

 private:
  void describe(const std::string& usage, std::string_view help, const std::string& fallback) {
    char line[256];
    std::snprintf(line, sizeof line, "  %-14s %s (%s)\n", usage.c_str(), std::string(help).c_str(), fallback.c_str());
    help_ += line;
  }

  /// The word after `name`; both are used up.
  const std::string* take(std::string_view name) {
    for (size_t index = 0; index < words_.size(); ++index) {
      if (words_[index] != name) continue;
      words_[index].clear();
      if (index + 1 == words_.size()) {
        complain(std::string(name) + " needs a value");
        return nullptr;
      }
      taken_ = std::exchange(words_[index + 1], {});
      return &taken_;
    }
    return nullptr;
  }

  std::string about_, program_, help_, complaint_, taken_;
  std::vector<std::string> words_;
};

}  // namespace example
