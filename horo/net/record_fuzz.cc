// Encrypted records: whatever arrives, nothing opens that was not sealed, and what was sealed opens once, in order.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "horo/net/record.h"

namespace {

using horo::net::RecordCipher;

RecordCipher cipher(RecordCipher::Role role) {
  auto key = horo::net::Key::from_bytes(std::vector<std::byte>(32, std::byte{7}));
  return *RecordCipher::create(role, horo::net::Protection::kAesGcm, std::move(*key));
}

}  // namespace

/// The first byte says how many genuine records go ahead; the rest is what somebody adds.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  horo::net::RecordReader reader(cipher(RecordCipher::Role::kOpen));
  RecordCipher sealing = cipher(RecordCipher::Role::kSeal);
  const size_t genuine = data[0] % 4;
  static std::vector<std::byte> plain(horo::net::kMostRecord);  // Making it takes longer than all the rest.
  std::vector<std::byte> wire;
  const std::span<const std::byte> words = std::as_bytes(std::span("genuine"));
  for (size_t i = 0; i < genuine; ++i) {
    if (!sealing.seal(std::span(&words, 1), wire).ok()) std::abort();
  }
  const auto added = std::as_bytes(std::span(data, size)).subspan(1);
  wire.insert(wire.end(), added.begin(), added.end());
  size_t opened = 0;
  for (size_t at = 0; at < wire.size();) {
    at += reader.take(std::span(wire).subspan(at));
    while (true) {
      auto whole = reader.has_record();
      if (!whole.ok()) return 0;
      if (!*whole) break;
      if (!reader.open(plain.data()).ok()) {
        if (opened < genuine) std::abort();
        return 0;
      }
      // The key is not in the corpus: a further record that opens would be a forgery.
      if (++opened > genuine) std::abort();
    }
  }
  return 0;
}
