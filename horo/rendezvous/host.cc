#include "horo/rendezvous/host.h"

#include <unistd.h>

#include <array>

#include "horo/base/text.h"
#include "horo/net/codec.h"
#include "horo/net/hello.h"
#include "horo/net/key.h"

namespace horo::rendezvous {

namespace {

constexpr int kMostRanks = 1 << 20;

uint64_t random_number() {
  std::array<std::byte, 8> bytes{};
  net::fill_random(bytes);
  net::Reader reader(bytes, "random bytes");
  return reader.u64();
}

std::string cut(std::string words) {
  if (words.size() > PeerCard::kMostText) words.resize(PeerCard::kMostText);
  return words;
}

}  // namespace

Result<HostId> find_host_id(const System& system, const std::string& override_text) {
  if (override_text.size() > PeerCard::kMostText) {
    return Status(Code::kInvalidArgument,
                  text("HORO_HOST_ID has ", override_text.size(), " characters, more than ", PeerCard::kMostText));
  }
  if (!override_text.empty()) return HostId{"named:" + override_text};
  HORO_ASSIGN(std::string boot, system.boot_id());
  HORO_ASSIGN(uint64_t space, system.network_namespace());
  return HostId{cut(text("boot:", boot, "/net:", space))};
}

HostId lonely_host_id() { return {text("lonely:", std::hex, random_number(), random_number())}; }

std::string PeerCard::to_string() const { return text("rank ", rank, " (pid ", pid, " on ", host_name, ")"); }

PeerCard local_card(int rank, int size, HostId host) {
  net::Hello hello = net::local_hello(static_cast<net::Member>(rank), 0);
  PeerCard card;
  card.rank = rank;
  card.size = size;
  card.host = std::move(host);
  card.host_name = cut(horo::host_name());
  card.pid = getpid();
  card.cores = System().usable_cores();
  card.architecture = cut(hello.architecture);
  card.build = cut(hello.build);
  card.incarnation = random_number();
  return card;
}

std::vector<std::byte> encode(const PeerCard& card) {
  net::Writer writer(PeerCard::kMostBytes);
  writer.u32(static_cast<uint32_t>(card.rank));
  writer.u32(static_cast<uint32_t>(card.size));
  writer.string(card.host.text);
  writer.string(card.host_name);
  writer.u64(static_cast<uint64_t>(card.pid));
  writer.u32(static_cast<uint32_t>(card.cores));
  writer.count(card.addresses.size());
  for (const std::string& address : card.addresses) writer.string(address);
  writer.string(card.architecture);
  writer.string(card.build);
  writer.u64(card.incarnation);
  HORO_CHECK(writer.ok(), "a card has few and short texts");
  return writer.take();
}

Result<PeerCard> decode_card(std::span<const std::byte> bytes) {
  net::Reader reader(bytes, "a rank's card");
  PeerCard card;
  uint32_t rank = reader.u32();
  uint32_t size = reader.u32();
  if (size == 0 || size > kMostRanks || rank >= size) reader.fail(text("rank ", rank, " of ", size));
  card.rank = static_cast<int>(rank);
  card.size = static_cast<int>(size);
  card.host.text = reader.string(PeerCard::kMostText);
  card.host_name = reader.string(PeerCard::kMostText);
  card.pid = static_cast<int64_t>(reader.u64());
  card.cores = static_cast<int>(reader.u32());
  if (card.cores < 1) reader.fail("a process with no core");
  size_t count = reader.count(PeerCard::kMostAddresses, 4);
  for (size_t i = 0; i < count && reader.ok(); ++i) card.addresses.push_back(reader.string(PeerCard::kMostText));
  card.architecture = reader.string(PeerCard::kMostText);
  card.build = reader.string(PeerCard::kMostText);
  card.incarnation = reader.u64();
  HORO_TRY(reader.finish());
  return card;
}

}  // namespace horo::rendezvous
