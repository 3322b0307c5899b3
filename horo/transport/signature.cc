#include "horo/transport/signature.h"

#include <array>

#include "horo/base/text.h"

namespace horo::transport {

std::string_view name(Kind kind) {
  constexpr std::array<std::string_view, kKindCount> kNames = {"barrier",   "allreduce", "reduce",  "reducescatter",
                                                               "allgather", "gather",    "scatter", "broadcast",
                                                               "alltoall",  "sendrecv",  "refused"};
  auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown operation";
}

std::string Signature::to_string() const {
  std::string out(name(kind));
  if (kind == Kind::kBarrier) return out;
  out += text(" of ", count, " ", horo::name(dtype));
  if (kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter) {
    out += text(", ", horo::name(op));
  }
  if (kind == Kind::kReduce || kind == Kind::kGather || kind == Kind::kScatter || kind == Kind::kBroadcast) {
    out += text(", root ", root & 0xFFFF);  // The upper half tells apart what the other fields do not show.
  }
  return out;
}

std::string Signature::beside(const Signature& other) const {
  if (((table ^ other.table) & kOnDevice) == 0) return to_string();
  if ((table & kOnDevice) == 0) return to_string() + ", in host memory";
  return text("an operation in device memory (which begins with ", to_string(), ")");
}

}  // namespace horo::transport
