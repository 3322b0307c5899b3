#include "horo/collective/table.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "horo/base/text.h"

namespace horo::collective {

namespace {

class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}
  template <class Value>
  void operator()(const Value& value) {
    uint64_t bits = 0;
    if constexpr (std::is_same_v<Value, double>) {
      bits = std::bit_cast<uint64_t>(value);
    } else {
      bits = static_cast<uint64_t>(value);
    }
    for (size_t i = 0; i < sizeof(Value); ++i) out_[at_++] = static_cast<std::byte>(bits >> (8 * i));
  }

 private:
  std::span<std::byte> out_;
  size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  template <class Value>
  void operator()(Value& value) {
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof(Value); ++i) bits |= std::to_integer<uint64_t>(in_[at_++]) << (8 * i);
    if constexpr (std::is_same_v<Value, double>) {
      value = std::bit_cast<double>(bits);
    } else {
      value = static_cast<Value>(bits);
    }
  }

 private:
  std::span<const std::byte> in_;
  size_t at_ = 0;
};

/// The fields in their order on the wire.
template <class AnyTable, class Visit>
void visit_fields(AnyTable& table, Visit&& visit) {
  visit(table.version);
  visit(table.deterministic);
  visit(table.rank_order_limit);
  visit(table.segment_bytes);
  visit(table.most_segments);
  visit(table.local_step);
  visit(table.remote_step);
  visit(table.message);
  visit(table.local_byte);
  visit(table.remote_byte);
  visit(table.reduced_byte);
}

}  // namespace

std::array<std::byte, kEncodedTableBytes> encode(const Table& table) {
  std::array<std::byte, kEncodedTableBytes> bytes{};
  visit_fields(table, Writer(bytes));
  return bytes;
}

Result<Table> decode_table(std::span<const std::byte> bytes) {
  if (bytes.size() != kEncodedTableBytes) {
    return Status(Code::kIncompatible, text("a selector table has ", kEncodedTableBytes, " bytes, got ", bytes.size(),
                                            "; run the same version of horo on all ranks"));
  }
  Table table;
  visit_fields(table, Reader(bytes));
  for (double figure :
       {table.local_step, table.remote_step, table.message, table.local_byte, table.remote_byte, table.reduced_byte}) {
    if (!std::isfinite(figure) || figure < 0) {
      return Status(Code::kCorrupt, text("a selector table holds the time ", figure));
    }
  }
  if (table.segment_bytes == 0 || table.most_segments == 0) {
    return Status(Code::kCorrupt, "a selector table holds segments of no size or number");
  }
  return table;
}

uint64_t segments(const Table& table, uint64_t count, size_t element_bytes) {
  uint64_t wanted = (count * element_bytes + table.segment_bytes - 1) / table.segment_bytes;
  return std::clamp<uint64_t>(std::min(wanted, table.most_segments), 1, std::max<uint64_t>(count, 1));
}

}  // namespace horo::collective
