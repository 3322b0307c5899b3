#include "horo/group/signature.h"

#include <bit>

namespace horo::group {

namespace {

// FNV-1a over 64-bit words: only equality matters.
void mix(uint64_t& hash, uint64_t word) { hash = (hash ^ word) * 0x100000001B3; }

}  // namespace

transport::Signature signature_of(const collective::Operation& operation, uint8_t table_version) {
  using collective::Kind;
  transport::Signature signature{
      operation.kind, operation.dtype, operation.op, table_version, static_cast<uint32_t>(operation.root),
      operation.count};
  if (operation.for_device || operation.where.on_device()) signature.table |= transport::Signature::kOnDevice;
  if (!operation.reduces()) signature.op = ReduceOp::kSum;
  uint64_t hash = 0xCBF29CE484222325;
  // An alltoall's counts differ between members; they are compared pair by pair when the members have met.
  if (operation.kind != Kind::kAlltoall && !operation.counts.empty()) {
    signature.count = operation.total();
    for (uint64_t count : operation.counts) mix(hash, count);
  }
  if (operation.reduces()) {
    mix(hash, std::bit_cast<uint64_t>(operation.prescale));
    mix(hash, std::bit_cast<uint64_t>(operation.postscale));
  }
  if (!operation.way.is_usual()) mix(hash, uint64_t{operation.way.algorithm} << 1 | (operation.way.one_level ? 1 : 0));
  if (operation.kind == Kind::kSendRecv) mix(hash, static_cast<uint64_t>(operation.target));
  hash = (hash ^ hash >> 33) * 0xFF51AFD7ED558CCD;  // What was mixed last has not reached the upper bits.
  // The root takes 16 bits; the rest of its field tells apart what the other fields do not show.
  signature.root = (signature.root & 0xFFFF) | static_cast<uint32_t>(hash >> 48) << 16;
  return signature;
}

}  // namespace horo::group
