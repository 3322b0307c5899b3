#include "horo/engine/message.h"

#include "horo/collective/algorithm.h"
#include "horo/net/codec.h"

namespace horo::engine {

namespace {

constexpr size_t kMost = 1 << 24;             ///< Elements of any list.
constexpr size_t kMostNumbers = kMostCached;  ///< They come in runs, so that few bytes could name very many.

/// Runs of consecutive numbers: a step's gradients got theirs one after the other.
void encode_numbers(net::Writer& writer, const std::vector<uint32_t>& numbers) {
  std::vector<std::pair<uint32_t, uint32_t>> runs;
  for (uint32_t number : numbers) {
    if (!runs.empty() && runs.back().first + runs.back().second == number) {
      ++runs.back().second;
    } else {
      runs.emplace_back(number, 1);
    }
  }
  writer.count(runs.size());
  for (auto [first, length] : runs) {
    writer.u32(first);
    writer.u32(length);
  }
}

std::vector<uint32_t> decode_numbers(net::Reader& reader) {
  std::vector<uint32_t> numbers;
  const size_t runs = reader.count(kMost, 8);
  uint64_t next = 1;
  for (size_t i = 0; i < runs; ++i) {
    const uint64_t first = reader.u32(), length = reader.u32();
    if (first < next || length == 0 || first + length > UINT32_MAX || numbers.size() + length > kMostNumbers) {
      reader.fail("numbers that do not rise");
      return {};
    }
    for (uint64_t number = first; number < first + length; ++number) numbers.push_back(static_cast<uint32_t>(number));
    next = first + length;
  }
  return numbers;
}

void encode_members(net::Writer& writer, const std::vector<int>& list) {
  writer.count(list.size());
  for (int member : list) writer.u32(static_cast<uint32_t>(member));
}

int decode_member(net::Reader& reader, int members) {
  const uint32_t member = reader.u32();
  if (member >= static_cast<uint32_t>(members)) {
    reader.fail("a member that does not exist");
    return 0;
  }
  return static_cast<int>(member);
}

std::vector<int> decode_members(net::Reader& reader, int members) {
  std::vector<int> list(reader.count(static_cast<size_t>(members), 4));
  for (int& member : list) member = decode_member(reader, members);
  return list;
}

void encode(net::Writer& writer, const Arrived& arrived) {
  writer.boolean(arrived.partial);
  writer.count(arrived.variants.size());
  for (const Variant& variant : arrived.variants) {
    encode(writer, variant.unit);
    encode_members(writer, variant.members);
  }
}

Arrived decode_arrived(net::Reader& reader, int members) {
  Arrived arrived;
  arrived.partial = reader.boolean();
  const size_t variants = reader.count(static_cast<size_t>(members), 8);
  if (variants == 0) reader.fail("a unit that nobody asks for");
  for (size_t i = 0; i < variants && reader.ok(); ++i) {
    Variant variant{decode_unit(reader), decode_members(reader, members)};
    if (i > 0 && variant.unit.key() != arrived.variants[0].unit.key()) reader.fail("variants of different units");
    arrived.variants.push_back(std::move(variant));
  }
  return arrived;
}

void encode(net::Writer& writer, const Item& item) {
  writer.u32(item.id);
  writer.boolean(item.unit.has_value());
  if (item.unit) encode(writer, *item.unit);
}

Item decode_item(net::Reader& reader) {
  Item item;
  item.id = reader.u32();
  if (reader.boolean()) item.unit = decode_unit(reader);
  if (item.id == 0 && !item.unit) reader.fail("an item that is neither known nor given");
  return item;
}

Failure decode_failure(net::Reader& reader) {
  Failure failure;
  failure.key = reader.string(kLongestName);
  failure.message = reader.string(kLongestMessage);
  return failure;
}

void encode(net::Writer& writer, const collective::Way& way) {
  writer.boolean(way.one_level);
  writer.u8(way.algorithm);
}

collective::Way decode_way(net::Reader& reader) {
  collective::Way way;
  way.one_level = reader.boolean();
  way.algorithm = reader.u8();
  if (way.algorithm > collective::registry().size()) reader.fail("an algorithm that does not exist");
  return way;
}

void encode(net::Writer& writer, const Tuning& tuning) {
  writer.u64(tuning.threshold);
  writer.u64(static_cast<uint64_t>(std::chrono::nanoseconds(tuning.window).count()));
  encode(writer, tuning.ways.allreduce);
  encode(writer, tuning.ways.allgather);
}

Tuning decode_tuning(net::Reader& reader) {
  Tuning tuning;
  tuning.threshold = reader.u64();
  const uint64_t window = reader.u64();
  if (window > static_cast<uint64_t>(std::chrono::nanoseconds(kLongestWindow).count())) {
    reader.fail("a gather window of more than an hour");
    return {};
  }
  tuning.window = std::chrono::nanoseconds(window);
  tuning.ways.allreduce = decode_way(reader);
  tuning.ways.allgather = decode_way(reader);
  return tuning;
}

}  // namespace

std::vector<std::byte> encode(const Up& up) {
  net::Writer writer(kLongestMessage);
  writer.u64(up.heard);
  writer.boolean(up.waiting);
  encode_numbers(writer, up.known);
  encode_numbers(writer, up.partial);
  writer.count(up.arrived.size());
  for (const Arrived& arrived : up.arrived) encode(writer, arrived);
  encode_members(writer, up.joined);
  writer.count(up.stalled.size());
  for (const Stalled& stalled : up.stalled) {
    writer.string(stalled.key);
    encode_members(writer, stalled.missing);
  }
  return writer.take();
}

Result<Up> decode_up(std::span<const std::byte> bytes, int members) {
  net::Reader reader(bytes, "a message about what is ready");
  Up up;
  up.heard = reader.u64();
  up.waiting = reader.boolean();
  up.known = decode_numbers(reader);
  up.partial = decode_numbers(reader);
  const size_t arrived = reader.count(kMost, 8);
  for (size_t i = 0; i < arrived && reader.ok(); ++i) up.arrived.push_back(decode_arrived(reader, members));
  up.joined = decode_members(reader, members);
  const size_t stalled = reader.count(kMost, 8);
  for (size_t i = 0; i < stalled && reader.ok(); ++i) {
    std::string key = reader.string(kLongestName);
    up.stalled.push_back({std::move(key), decode_members(reader, members)});
  }
  HORO_TRY(reader.finish());
  return up;
}

std::vector<std::byte> encode(const Down& down) {
  net::Writer writer(kLongestMessage);
  encode_numbers(writer, down.forgotten);
  writer.count(down.failures.size());
  for (const Failure& failure : down.failures) {
    writer.string(failure.key);
    writer.string(failure.message);
  }
  writer.boolean(down.tuning.has_value());
  if (down.tuning) encode(writer, *down.tuning);
  writer.count(down.batches.size());
  for (const Batch& batch : down.batches) {
    writer.count(batch.items.size());
    for (const Item& item : batch.items) encode(writer, item);
  }
  writer.boolean(down.all_joined.has_value());
  if (down.all_joined) writer.u32(static_cast<uint32_t>(*down.all_joined));
  writer.boolean(down.abort.has_value());
  if (down.abort) writer.string(*down.abort);
  return writer.take();
}

Result<Down> decode_down(std::span<const std::byte> bytes, int members) {
  net::Reader reader(bytes, "a message about what is to be done");
  Down down;
  down.forgotten = decode_numbers(reader);
  const size_t failures = reader.count(kMost, 8);
  for (size_t i = 0; i < failures && reader.ok(); ++i) down.failures.push_back(decode_failure(reader));
  if (reader.boolean()) down.tuning = decode_tuning(reader);
  const size_t batches = reader.count(kMost, 4);
  for (size_t i = 0; i < batches && reader.ok(); ++i) {
    Batch batch;
    const size_t items = reader.count(kMost, 5);
    for (size_t j = 0; j < items && reader.ok(); ++j) batch.items.push_back(decode_item(reader));
    down.batches.push_back(std::move(batch));
  }
  if (reader.boolean()) down.all_joined = decode_member(reader, members);
  if (reader.boolean()) down.abort = reader.string(kLongestMessage);
  HORO_TRY(reader.finish());
  return down;
}

}  // namespace horo::engine
