#include "cli/run/message.h"

#include <algorithm>

#include "horo/base/text.h"
#include "horo/net/codec.h"

namespace horo::cli::launch {

namespace {

constexpr size_t kMostText = 64 << 10;
constexpr size_t kMostVariable = 2 << 20;  // More than the kernel takes.
constexpr size_t kMostCount = 1 << 20;
constexpr uint32_t kMostGpus = 1 << 10;
constexpr size_t kLengthBytes = 4;
constexpr uint64_t kMostMilliseconds = 1'000'000'000;

void write(net::Writer& writer, Duration span) {
  writer.u64(static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(span).count()));
}

Duration read_duration(net::Reader& reader) {
  return std::chrono::milliseconds(std::min(reader.u64(), kMostMilliseconds));
}

void write(net::Writer& writer, const std::vector<std::string>& list) {
  writer.count(list.size());
  for (const std::string& word : list) writer.string(word);
}

void write(net::Writer& writer, const Environment::Variables& variables) {
  writer.count(variables.size());
  for (const auto& [name, value] : variables) {
    writer.string(name);
    writer.string(value);
  }
}

std::vector<std::string> read_list(net::Reader& reader) {
  std::vector<std::string> list(reader.count(kMostCount, kLengthBytes));
  for (std::string& word : list) word = reader.string(kMostVariable);
  return list;
}

/// A name with "=" or a NUL would become another variable.
Environment::Variables read_variables(net::Reader& reader) {
  Environment::Variables variables;
  const size_t count = reader.count(kMostCount, 2 * kLengthBytes);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    std::string name = reader.string(kMostVariable);
    std::string value = reader.string(kMostVariable);
    if (name.empty() || name.find_first_of(std::string_view("=\0", 2)) != name.npos || value.find('\0') != value.npos) {
      reader.fail(text("'", name, "' is no variable"));
      break;
    }
    variables[std::move(name)] = std::move(value);
  }
  return variables;
}

int read_rank(net::Reader& reader) {
  const uint32_t rank = reader.u32();
  if (rank >= kMostCount) reader.fail(text("rank ", rank, " cannot be"));
  return static_cast<int>(rank);
}

template <class T>
Result<T> finished(net::Reader& reader, T value) {
  HORO_TRY(reader.finish());
  return value;
}

}  // namespace

std::vector<std::byte> encode(const AgentHello& hello) {
  net::Writer writer(kMostMessage);
  writer.u32(hello.protocol);
  writer.string(hello.version);
  writer.u16(hello.lowest_wire);
  writer.u16(hello.highest_wire);
  for (const std::string* words : {&hello.host, &hello.connector, &hello.acceptor}) writer.string(*words);
  return writer.take();
}

Result<AgentHello> decode_hello(std::span<const std::byte> payload) {
  net::Reader reader(payload, "an agent's hello");
  AgentHello hello;
  hello.protocol = reader.u32();
  hello.version = reader.string(kMostText);
  // Another protocol may have other fields; these two must stay.
  if (reader.ok() && hello.protocol != kLaunchProtocol) return hello;
  hello.lowest_wire = reader.u16();
  hello.highest_wire = reader.u16();
  for (std::string* words : {&hello.host, &hello.connector, &hello.acceptor}) *words = reader.string(kMostText);
  return finished(reader, std::move(hello));
}

std::vector<std::byte> encode(const StartOrder& order) {
  net::Writer writer(kMostMessage);
  writer.raw(order.key);
  writer.string(order.folder);
  write(writer, order.command);
  write(writer, order.environment);
  writer.count(order.ranks.size());
  for (const RankOrder& rank : order.ranks) {
    writer.u32(static_cast<uint32_t>(rank.rank));
    writer.u32(static_cast<uint32_t>(rank.slot));
    write(writer, rank.environment);
    writer.string(rank.output);
  }
  write(writer, order.grace);
  write(writer, order.interfaces);
  write(writer, order.peers);
  writer.boolean(order.wants_results);
  writer.u32(static_cast<uint32_t>(order.gpus_per_rank));
  writer.boolean(order.share_gpus);
  writer.u32(static_cast<uint32_t>(order.slots));
  writer.boolean(order.elastic);
  writer.boolean(order.far);
  writer.boolean(order.may_grow);
  return writer.take();
}

Result<StartOrder> decode_start(std::span<const std::byte> payload) {
  net::Reader reader(payload, "an order to start");
  StartOrder order;
  const auto key = reader.raw(order.key.size());
  std::copy(key.begin(), key.end(), order.key.begin());
  order.folder = reader.string(kMostText);
  order.command = read_list(reader);
  if (reader.ok() && order.command.empty()) reader.fail("no command");
  order.environment = read_variables(reader);
  order.ranks.resize(reader.count(kMostCount, 4 * kLengthBytes));
  for (RankOrder& rank : order.ranks) {
    rank.rank = read_rank(reader);
    rank.slot = read_rank(reader);
    rank.environment = read_variables(reader);
    rank.output = reader.string(kMostText);
  }
  order.grace = read_duration(reader);
  order.interfaces = read_list(reader);
  order.peers = read_list(reader);
  order.wants_results = reader.boolean();
  order.gpus_per_rank = static_cast<int>(std::min(reader.u32(), kMostGpus));
  order.share_gpus = reader.boolean();
  order.slots = read_rank(reader);
  order.elastic = reader.boolean();
  order.far = reader.boolean();
  order.may_grow = reader.boolean();
  return finished(reader, std::move(order));
}

std::vector<std::byte> encode(const Output& output) {
  net::Writer writer(kMostMessage);
  writer.u32(static_cast<uint32_t>(output.rank));
  writer.u8(static_cast<uint8_t>(output.stream));
  writer.string(output.bytes);
  return writer.take();
}

Result<Output> decode_output(std::span<const std::byte> payload) {
  net::Reader reader(payload, "output of a rank");
  Output output;
  output.rank = read_rank(reader);
  const uint8_t stream = reader.u8();
  if (stream > static_cast<uint8_t>(Stream::kResult)) reader.fail(text("stream ", int{stream}, " cannot be"));
  output.stream = static_cast<Stream>(stream);
  const auto bytes = reader.bytes(kMostOutput);
  output.bytes = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return finished(reader, output);
}

std::vector<std::byte> encode(const RankEnd& end) {
  net::Writer writer(kMostMessage);
  writer.u32(static_cast<uint32_t>(end.rank));
  writer.u8(static_cast<uint8_t>(end.code));
  writer.u8(static_cast<uint8_t>(end.signal));
  writer.boolean(end.asked);
  writer.string(end.error);
  return writer.take();
}

Result<RankEnd> decode_end_of_rank(std::span<const std::byte> payload) {
  net::Reader reader(payload, "the end of a rank");
  RankEnd end;
  end.rank = read_rank(reader);
  end.code = reader.u8();
  end.signal = reader.u8();
  end.asked = reader.boolean();
  end.error = reader.string(kMostText);
  return finished(reader, std::move(end));
}

std::vector<std::byte> encode(const EndOrder& order) {
  net::Writer writer;
  write(writer, order.grace);
  return writer.take();
}

Result<EndOrder> decode_end(std::span<const std::byte> payload) {
  net::Reader reader(payload, "an order to end");
  const Duration grace = read_duration(reader);
  return finished(reader, EndOrder{grace});
}

std::vector<std::byte> encode(const EndRankOrder& order) {
  net::Writer writer;
  writer.u32(static_cast<uint32_t>(order.rank));
  write(writer, order.grace);
  return writer.take();
}

Result<EndRankOrder> decode_end_one(std::span<const std::byte> payload) {
  net::Reader reader(payload, "an order to end a rank");
  const int rank = read_rank(reader);
  const Duration grace = read_duration(reader);
  return finished(reader, EndRankOrder{rank, grace});
}

std::vector<std::byte> encode_text(std::string_view words) {
  net::Writer writer(kMostMessage);
  writer.string(words.substr(0, kMostText));
  return writer.take();
}

Result<std::string> decode_text(std::span<const std::byte> payload) {
  net::Reader reader(payload, "words of an agent");
  std::string words = reader.string(kMostText);
  return finished(reader, std::move(words));
}

}  // namespace horo::cli::launch
