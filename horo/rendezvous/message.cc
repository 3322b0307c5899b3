#include "horo/rendezvous/message.h"

#include "horo/net/codec.h"

namespace horo::rendezvous {

namespace {

constexpr size_t kLossBytes = 5;
constexpr size_t kReportBytes = 24;
constexpr size_t kMostMessage = size_t{1} << 20;

void read_losses(net::Reader& reader, int size, LostSet& lost) {
  size_t count = reader.count(static_cast<size_t>(size), kLossBytes);
  int64_t previous = -1;
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    uint32_t rank = reader.u32();
    uint8_t reason = reader.u8();
    if (rank >= static_cast<uint32_t>(size)) reader.fail("a lost rank is beyond the size of the job");
    if (rank <= previous) reader.fail("lost ranks are not in order");
    if (reason >= kLossReasonCount) reader.fail("an unknown reason of a loss");
    if (!reader.ok()) return;
    previous = rank;
    lost.add({static_cast<int>(rank), static_cast<LossReason>(reason)});
  }
}

void read_reports(net::Reader& reader, std::vector<Report>& reports) {
  size_t count = reader.count(kMostGroups, kReportBytes);
  reports.reserve(count);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    Report report{reader.u64(), reader.u64(), reader.u64()};
    if (report.held < report.completed) reader.fail("a report of a result that was completed and is not held");
    if (!reports.empty() && report.group <= reports.back().group) reader.fail("reports are not in order");
    reports.push_back(report);
  }
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  net::Writer writer(kMostMessage);
  writer.u8(static_cast<uint8_t>(message.kind));
  writer.u64(message.base_epoch);
  writer.count(message.lost.size());
  for (const Loss& loss : message.lost.losses()) {
    writer.u32(static_cast<uint32_t>(loss.rank));
    writer.u8(static_cast<uint8_t>(loss.reason));
  }
  writer.count(message.reports.size());
  for (const Report& report : message.reports) {
    writer.u64(report.group);
    writer.u64(report.completed);
    writer.u64(report.held);
  }
  HORO_CHECK(writer.ok(), "ranks and groups are limited so that a message fits");
  return writer.take();
}

Result<Message> decode_message(std::span<const std::byte> bytes, int size) {
  net::Reader reader(bytes, "a membership message");
  Message message;
  uint8_t kind = reader.u8();
  if (kind >= kMessageKindCount) reader.fail("an unknown kind");
  message.kind = static_cast<MessageKind>(kind);
  message.base_epoch = reader.u64();
  read_losses(reader, size, message.lost);
  read_reports(reader, message.reports);
  if (message.kind != MessageKind::kFlush && !message.reports.empty()) reader.fail("only a Flush has reports");
  HORO_TRY(reader.finish());
  return message;
}

}  // namespace horo::rendezvous
