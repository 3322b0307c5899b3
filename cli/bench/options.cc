#include "cli/bench/options.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

#include "cli/bench/pattern.h"

#include "horo/base/text.h"

namespace horo::bench {

namespace {

struct Unit {
  std::string_view word;
  double factor;
};
constexpr Unit kSizes[] = {{"", 1},        {"b", 1},         {"k", 1024},       {"kib", 1024},
                           {"m", 1048576}, {"mib", 1048576}, {"g", 1073741824}, {"gib", 1073741824}};
constexpr Unit kRates[] = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};

Result<uint64_t> parse_with(std::string_view word, std::span<const Unit> units, const char* example) {
  const auto refuse = [&] { return Status(Code::kInvalidArgument, text("'", word, "' is not of the form ", example)); };
  const size_t digits = std::min(word.find_first_not_of("0123456789."), word.size());
  if (digits == 0) return refuse();
  std::istringstream number{std::string(word.substr(0, digits))};
  double value = 0;
  if (!(number >> value) || number.peek() != EOF) return refuse();
  std::string unit(word.substr(digits));
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const Unit& one : units) {
    if (one.word == unit && value * one.factor < 1e15) return static_cast<uint64_t>(std::llround(value * one.factor));
  }
  return refuse();
}

}  // namespace

bool BenchOptions::in_place() const {
  if (place != Place::kUsual) return place == Place::kIn;
  return op == Op::kAllreduce || op == Op::kReduce || op == Op::kBroadcast;
}

Result<uint64_t> parse_size(std::string_view word) { return parse_with(word, kSizes, "4, 64K, 16M or 1G"); }
Result<uint64_t> parse_rate(std::string_view word) { return parse_with(word, kRates, "100mbit or 1gbit"); }

Result<std::vector<uint64_t>> parse_sizes(std::string_view list) {
  std::vector<uint64_t> sizes;
  std::istringstream words{std::string(list)};
  for (std::string word; std::getline(words, word, ',');) {
    HORO_ASSIGN(const uint64_t size, parse_size(word));
    sizes.push_back(size);
  }
  if (sizes.empty()) return Status(Code::kInvalidArgument, "--sizes needs at least one size, such as 4,64K,16M");
  return sizes;
}

Status validate(const BenchOptions& options) {
  const auto refuse = [](const std::string& why) { return Status(Code::kInvalidArgument, why); };
  if (!Pattern::supports(options.dtype)) {
    return refuse(text("--dtype ", name(options.dtype), " has no sum to check: take one of the numbers, such as f32"));
  }
  for (DType more : options.more_dtypes) {
    if (!Pattern::supports(more)) return refuse(text("--dtype ", name(more), " has no sum to check"));
  }
  for (const std::string& variant : options.variants) {
    if (variant.rfind("HORO_", 0) != 0 || variant.find('=') == std::string::npos) {
      return refuse(text("--variant ", variant, " is not of the form HORO_NAME=VALUE ('horo knobs' lists the names)"));
    }
  }
  if (lies_apart(options.op) && options.place == Place::kIn) {
    return refuse(text("--in-place does not go with ", name(options.op), ": its input and output differ in size"));
  }
  if (options.op == Op::kEngine && (options.hosts > 1 || !options.peers.empty() || !options.variants.empty())) {
    return refuse("engine measures one job of horo on this host: --hosts, --peers and --variant do not go with it");
  }
  if (options.bits_per_second > 0 && options.hosts < 2)
    return refuse("--shape needs --hosts 2: loopback is not shaped");
  if (options.hosts > options.ranks) {
    return refuse(text("--hosts ", options.hosts, " needs at least as many ranks, but -np is ", options.ranks));
  }
  if (options.hosts > 1 && options.transport == "shm") return refuse("--transport shm does not reach across --hosts");
  if (options.buffers != Buffers::kOrdinary && options.op == Op::kBarrier) {
    return refuse("--buffers does not go with barrier, which moves nothing");
  }
  return {};
}

}  // namespace horo::bench
