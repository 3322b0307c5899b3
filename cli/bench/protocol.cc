#include "cli/bench/protocol.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "horo/base/text.h"

namespace horo::bench {

namespace {

constexpr std::string_view kNames[] = {"allreduce", "reduce", "broadcast", "allgather", "reducescatter",
                                       "alltoall",  "gather", "scatter",   "sendrecv",  "barrier",
                                       "copy",      "stream", "wait",      "idle",      "engine"};
constexpr int kCollectives = 10;

using Fields = std::map<std::string, std::string, std::less<>>;

/// "word a=1 b=2" without the word. A value ends at a space.
Fields fields_of(std::istringstream& line) {
  Fields fields;
  for (std::string field; line >> field;) {
    const size_t equals = field.find('=');
    if (equals != std::string::npos) fields[field.substr(0, equals)] = field.substr(equals + 1);
  }
  return fields;
}

Result<std::string> field(const Fields& fields, std::string_view name) {
  const auto found = fields.find(name);
  if (found != fields.end()) return found->second;
  return Status(Code::kCorrupt, text("a line between the bench and a rank lacks ", name));
}

template <class T>
Result<T> number(const Fields& fields, std::string_view name) {
  HORO_ASSIGN(const std::string value, field(fields, name));
  T parsed{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error == std::errc() && end == value.data() + value.size()) return parsed;
  return Status(Code::kCorrupt, text("a line between the bench and a rank has ", name, "=", value, ", no number"));
}

std::string word_or_dash(const std::string& word) { return word.empty() ? "-" : word; }

}  // namespace

std::string_view name(Op op) { return kNames[static_cast<int>(op)]; }

std::optional<Op> op_named(std::string_view name) {
  for (int i = 0; i < static_cast<int>(std::size(kNames)); ++i) {
    if (kNames[i] == name) return static_cast<Op>(i);
  }
  return std::nullopt;
}

std::vector<std::string> collective_names() { return {kNames, kNames + kCollectives}; }

Extent extent(Op op, uint64_t count, int ranks, int rank) {
  const auto members = static_cast<uint64_t>(ranks);
  const uint64_t of_root = rank == 0 ? count : 0;
  if (op == Op::kGather) return {count / members, of_root};
  if (op == Op::kScatter) return {of_root, count / members};
  if (op == Op::kSendRecv) return {of_root, rank == ranks - 1 ? count : 0};
  if (op == Op::kAllgather) return {count / members, count};
  if (op == Op::kReducescatter) return {count, count / members};
  if (op == Op::kBarrier) return {0, 0};
  return {count, count};
}

bool lies_apart(Op op) {
  return op == Op::kAllgather || op == Op::kReducescatter || op == Op::kAlltoall || op == Op::kGather ||
         op == Op::kScatter || op == Op::kSendRecv;
}

uint64_t whole_count(Op op, uint64_t bytes, DType dtype, int ranks) {
  const bool shared = lies_apart(op) && op != Op::kSendRecv;
  const uint64_t step = shared ? static_cast<uint64_t>(ranks) : 1;
  const uint64_t count = std::max<uint64_t>(bytes / size_of(dtype), 1);
  return (count + step - 1) / step * step;
}

std::string encode(const Command& command) {
  return text("measure op=", name(command.op), " mode=", command.mode == Mode::kBatch ? "batch" : "latency",
              " dtype=", name(command.dtype), " count=", command.count, " iterations=", command.iterations,
              " in_place=", command.in_place ? 1 : 0, " library=", command.library ? 1 : 0, " seed=", command.seed);
}

Result<Command> decode_command(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string word;
  words >> word;
  if (word != "measure") return Status(Code::kCorrupt, text("expected 'measure ...', got '", line, "'"));
  const Fields fields = fields_of(words);
  Command command;
  HORO_ASSIGN(const std::string op, field(fields, "op"));
  HORO_ASSIGN(const std::string mode, field(fields, "mode"));
  HORO_ASSIGN(const std::string dtype, field(fields, "dtype"));
  if (!op_named(op) || !dtype_named(dtype)) {
    return Status(Code::kCorrupt, text("a rank was told to measure ", op, " of ", dtype, ", which it does not know"));
  }
  command.op = *op_named(op);
  command.dtype = *dtype_named(dtype);
  command.mode = mode == "batch" ? Mode::kBatch : Mode::kLatency;
  HORO_ASSIGN(command.count, number<uint64_t>(fields, "count"));
  HORO_ASSIGN(command.iterations, number<int>(fields, "iterations"));
  HORO_ASSIGN(const int in_place, number<int>(fields, "in_place"));
  HORO_ASSIGN(const int library, number<int>(fields, "library"));
  HORO_ASSIGN(command.seed, number<uint64_t>(fields, "seed"));
  command.in_place = in_place != 0;
  command.library = library != 0;
  return command;
}

std::string encode(const Reply& reply) {
  if (reply.kind != Reply::Kind::kOk) {
    std::string message = reply.message;
    std::replace(message.begin(), message.end(), '\n', ' ');
    return (reply.kind == Reply::Kind::kError ? "error " : "unsupported ") + message;
  }
  std::ostringstream line;
  line << "ok transport=" << word_or_dash(reply.transport) << " algorithm=" << word_or_dash(reply.algorithm)
       << " cpu=" << reply.cpu_seconds << " total_cpu=" << reply.total_cpu << " times=";
  for (size_t i = 0; i < reply.nanoseconds.size(); ++i) line << (i == 0 ? "" : ",") << reply.nanoseconds[i];
  return std::move(line).str();
}

Result<Reply> decode_reply(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string word;
  words >> word;
  Reply reply;
  if (word == "error" || word == "unsupported") {
    reply.kind = word == "error" ? Reply::Kind::kError : Reply::Kind::kUnsupported;
    std::getline(words >> std::ws, reply.message);
    return reply;
  }
  if (word != "ok") return Status(Code::kCorrupt, text("a rank answered '", line.substr(0, 80), "'"));
  const Fields fields = fields_of(words);
  HORO_ASSIGN(reply.transport, field(fields, "transport"));
  HORO_ASSIGN(reply.algorithm, field(fields, "algorithm"));
  HORO_ASSIGN(reply.cpu_seconds, number<double>(fields, "cpu"));
  HORO_ASSIGN(reply.total_cpu, number<double>(fields, "total_cpu"));
  HORO_ASSIGN(const std::string times, field(fields, "times"));
  std::istringstream list(times);
  for (uint64_t time = 0; list >> time; list.ignore(1)) reply.nanoseconds.push_back(time);
  return reply;
}

}  // namespace horo::bench
