#include "horo/ddp/agreement.h"

#include <algorithm>
#include <cstring>

#include "horo/base/text.h"
#include "horo/kernel/reduce.h"

namespace horo::ddp {

namespace {

using collective::Kind;
using collective::Operation;

std::string list_text(const std::vector<int64_t>& numbers) {
  std::string words;
  for (int64_t number : numbers) words += text(words.empty() ? "" : ", ", number);
  return "[" + words + "]";
}

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

std::vector<std::string> split(const std::string& all) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end = 0; (end = all.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(all.substr(begin, end - begin));
  }
  return lines;
}

Operation allgather_of(uint64_t bytes, int members) {
  Operation operation;
  operation.kind = Kind::kAllgather;
  operation.counts.assign(static_cast<size_t>(members), bytes);
  return operation;
}

Operation broadcast_of(DType dtype, uint64_t count) {
  Operation operation;
  operation.kind = Kind::kBroadcast;
  operation.dtype = dtype;
  operation.count = count;
  return operation;
}

/// What tells two texts apart without sending them.
struct Digest {
  uint64_t bytes = 0;
  uint32_t first = 0, second = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
};

Digest digest_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {text.size(), kernel::crc32c(0, bytes), kernel::crc32c(0x5EED, bytes)};
}

constexpr size_t kReasonHeader = 3;  // The code, and the length of the words.

std::vector<std::byte> encode(const Status& reason) {
  std::vector<std::byte> bytes(Reasons::kBytes);
  if (reason.ok()) return bytes;
  const std::string words = reason.message().substr(0, Reasons::kBytes - kReasonHeader);
  bytes[0] = static_cast<std::byte>(reason.code());
  bytes[1] = static_cast<std::byte>(words.size() & 0xFF);
  bytes[2] = static_cast<std::byte>(words.size() >> 8);
  std::memcpy(bytes.data() + kReasonHeader, words.data(), words.size());
  return bytes;
}

std::optional<Status> decode(const std::byte* bytes) {
  const auto code = static_cast<int32_t>(bytes[0]);
  if (code == 0) return std::nullopt;
  const size_t length = static_cast<size_t>(bytes[1]) | static_cast<size_t>(bytes[2]) << 8;
  const std::string words(reinterpret_cast<const char*>(bytes + kReasonHeader),
                          std::min(length, Reasons::kBytes - kReasonHeader));
  return Status(code > static_cast<int32_t>(Code::kInternal) ? Code::kCorrupt : static_cast<Code>(code), words);
}

}  // namespace

std::vector<std::string> describe(std::span<const Parameter> parameters) {
  std::vector<std::string> lines;
  for (const Parameter& one : parameters) {
    // A name may hold anything, but a line is a line.
    std::string name = one.name;
    std::replace(name.begin(), name.end(), '\n', ' ');
    lines.push_back(text("parameter ", lines.size(), " as '", name, "', ", horo::name(one.dtype), list_text(one.shape),
                         one.strides.empty() ? "" : " with strides " + list_text(one.strides),
                         one.sparse ? ", sparse" : ""));
  }
  return lines;
}

std::optional<std::string> difference(const std::vector<std::string>& mine, int my_rank,
                                      const std::vector<std::string>& theirs, int their_rank) {
  if (mine.size() != theirs.size()) {
    const auto& longer = mine.size() > theirs.size() ? mine : theirs;
    return text("rank ", my_rank, " has ", mine.size(), " parameters, rank ", their_rank, " has ", theirs.size(),
                "; the first that only one of them has is ", longer[std::min(mine.size(), theirs.size())]);
  }
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i] != theirs[i]) {
      return text("rank ", my_rank, " has ", mine[i], "; rank ", their_rank, " has ", theirs[i]);
    }
  }
  return std::nullopt;
}

Status agree_on(group::Group& group, const std::vector<std::string>& lines) {
  std::string mine = joined(lines);
  const Digest digest = digest_of(mine);
  std::vector<Digest> digests(static_cast<size_t>(group.size()));
  HORO_TRY(group.run(allgather_of(sizeof digest, group.size()), reinterpret_cast<const std::byte*>(&digest),
                     reinterpret_cast<std::byte*>(digests.data())));
  if (std::all_of(digests.begin(), digests.end(), [&](const Digest& one) { return one == digests[0]; })) return {};
  std::string theirs = group.member() == 0 ? mine : std::string(digests[0].bytes, ' ');
  auto* bytes = reinterpret_cast<std::byte*>(theirs.data());
  HORO_TRY(group.run(broadcast_of(DType::kByte, digests[0].bytes), bytes, bytes));
  const auto& ranks = group.ranks();
  const auto differs = difference(lines, ranks[static_cast<size_t>(group.member())], split(theirs), ranks[0]);
  const auto reason = encode(differs ? Status(Code::kMismatch, *differs) : Status());
  std::vector<std::byte> all(Reasons::kBytes * ranks.size());
  HORO_TRY(group.run(allgather_of(Reasons::kBytes, group.size()), reason.data(), all.data()));
  for (size_t member = 0; member < ranks.size(); ++member) {
    if (auto first = decode(all.data() + member * Reasons::kBytes)) {
      return {Code::kMismatch, text("the models of the ranks differ: ", first->message())};
    }
  }
  return {Code::kCorrupt, "the ranks' models differ, but no rank finds a difference"};
}

Result<std::vector<Indices>> agree_on_buckets(group::Group& group, const std::vector<Indices>& mine,
                                              size_t parameters) {
  // The parameters of all buckets, one after the other, and where a bucket begins.
  std::vector<int32_t> numbers(2 * parameters, 0);
  size_t at = 0;
  for (const Indices& bucket : mine) {
    for (size_t i = 0; i < bucket.size(); ++i, ++at) {
      numbers[2 * at] = static_cast<int32_t>(bucket[i]);
      numbers[2 * at + 1] = i == 0 ? 1 : 0;
    }
  }
  auto* bytes = reinterpret_cast<std::byte*>(numbers.data());
  HORO_TRY(group.run(broadcast_of(DType::kI32, numbers.size()), bytes, bytes));
  std::vector<Indices> theirs;
  for (at = 0; at < parameters; ++at) {
    if (numbers[2 * at + 1] != 0 || theirs.empty()) theirs.emplace_back();
    theirs.back().push_back(static_cast<size_t>(numbers[2 * at]));
  }
  if (is_partition(theirs, parameters)) return theirs;
  return Status(Code::kCorrupt, text("rank ", group.ranks()[0], " sent buckets that do not hold every parameter once"));
}

Reasons::Reasons(const Status& mine, int members)
    : mine_(encode(mine)),
      all_(kBytes * static_cast<size_t>(members)),
      exchange_({allgather_of(kBytes, members), mine_.data(), all_.data(), 0}) {}

std::optional<Status> Reasons::first(const std::vector<int>& ranks) const {
  std::optional<Status> first;
  for (size_t member = 0; member < ranks.size(); ++member) {
    const auto reason = decode(all_.data() + member * kBytes);
    if (!reason) continue;
    const bool better = !first || (first->code() == Code::kMismatch && reason->code() != Code::kMismatch);
    if (better) first = ranks.size() == 1 ? *reason : reason->prefixed(text("rank ", ranks[member]));
  }
  return first;
}

}  // namespace horo::ddp
