#include "horo/group/group_message.h"

#include "horo/base/text.h"
#include "horo/net/codec.h"

namespace horo::group {

namespace {

void write_ranks(net::Writer& writer, const std::vector<int>& ranks) {
  writer.count(ranks.size());
  for (int rank : ranks) writer.u32(static_cast<uint32_t>(rank));
}

std::vector<int> read_ranks(net::Reader& reader, int size) {
  std::vector<int> ranks(reader.count(static_cast<size_t>(size), 4));
  if (reader.ok() && ranks.size() < 2) reader.fail("a group has at least two members");
  int64_t before = -1;
  for (int& rank : ranks) {
    const int64_t next = reader.u32();
    if (reader.ok() && (next <= before || next >= size)) {
      reader.fail(text("rank ", next, " after rank ", before, " in a job of ", size));
    }
    if (!reader.ok()) return {};
    rank = static_cast<int>(next);
    before = next;
  }
  return ranks;
}

}  // namespace

std::vector<std::byte> encode(const JoinGroup& join) {
  net::Writer writer;
  write_ranks(writer, join.ranks);
  writer.boolean(join.offer.needs_wires);
  writer.boolean(join.offer.shares_memory);
  writer.u64(join.offer.area);
  writer.u64(join.offer.page);
  writer.u64(join.offer.attempt);
  writer.count(join.offer.settings.size());
  for (const std::string& setting : join.offer.settings) writer.string(setting);
  return writer.take();
}

std::vector<std::byte> encode(const GroupReady& ready) {
  net::Writer writer;
  write_ranks(writer, ready.ranks);
  writer.u64(ready.terms.id);
  writer.u64(ready.terms.epoch);
  writer.boolean(ready.terms.needs_wires);
  writer.boolean(ready.terms.shares_memory);
  for (uint64_t area : ready.terms.areas) writer.u64(area);
  for (uint64_t page : ready.terms.pages) writer.u64(page);
  for (uint64_t attempt : ready.terms.attempts) writer.u64(attempt);
  writer.string(std::string_view(ready.terms.refusal).substr(0, GroupTerms::kMostRefusal));
  return writer.take();
}

std::vector<std::byte> encode(const AbandonGroup& abandon) {
  net::Writer writer;
  writer.u32(static_cast<uint32_t>(abandon.code));
  writer.string(std::string_view(abandon.why).substr(0, AbandonGroup::kMostWords));
  return writer.take();
}

Result<JoinGroup> decode_join_group(std::span<const std::byte> bytes, int size) {
  net::Reader reader(bytes, "a request to join a group");
  JoinGroup join;
  join.ranks = read_ranks(reader, size);
  join.offer.needs_wires = reader.boolean();
  join.offer.shares_memory = reader.boolean();
  join.offer.area = reader.u64();
  join.offer.page = reader.u64();
  join.offer.attempt = reader.u64();
  join.offer.settings.resize(reader.count(GroupOffer::kMostSettings, 4));
  for (std::string& setting : join.offer.settings) setting = reader.string(GroupOffer::kMostSettingBytes);
  HORO_TRY(reader.finish());
  return join;
}

Result<GroupReady> decode_group_ready(std::span<const std::byte> bytes, int size) {
  net::Reader reader(bytes, "the terms of a group");
  GroupReady ready;
  ready.ranks = read_ranks(reader, size);
  ready.terms.id = reader.u64();
  ready.terms.epoch = reader.u64();
  ready.terms.needs_wires = reader.boolean();
  ready.terms.shares_memory = reader.boolean();
  for (size_t i = 0; i < ready.ranks.size(); ++i) ready.terms.areas.push_back(reader.u64());
  for (size_t i = 0; i < ready.ranks.size(); ++i) ready.terms.pages.push_back(reader.u64());
  for (size_t i = 0; i < ready.ranks.size(); ++i) ready.terms.attempts.push_back(reader.u64());
  ready.terms.refusal = reader.string(GroupTerms::kMostRefusal);
  HORO_TRY(reader.finish());
  return ready;
}

Result<AbandonGroup> decode_abandon_group(std::span<const std::byte> bytes) {
  net::Reader reader(bytes, "an abandoned group");
  AbandonGroup abandon;
  const uint32_t code = reader.u32();
  if (reader.ok() && (code == 0 || code > static_cast<uint32_t>(Code::kInternal))) {
    reader.fail(text("code ", code, " is none that a group can fail with"));
  }
  abandon.code = static_cast<Code>(code);
  abandon.why = reader.string(AbandonGroup::kMostWords);
  HORO_TRY(reader.finish());
  return abandon;
}

}  // namespace horo::group
