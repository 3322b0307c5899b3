#include "horo/net/record.h"

#include <openssl/evp.h>
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "horo/base/text.h"

namespace horo::net {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kNextLabel = "horo record next";

const unsigned char* in(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* out(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

const EVP_CIPHER* cipher_of(Protection protection) {
  return protection == Protection::kAesGcm ? EVP_aes_256_gcm() : EVP_chacha20_poly1305();
}

Status broken_cipher(const char* what) {
  return {Code::kInternal, text("OpenSSL cannot ", what, " a record; is its installation complete?")};
}

size_t length_of(std::span<const std::byte> record) {
  uint32_t length = 0;
  std::memcpy(&length, record.data(), sizeof length);
  return length;
}

}  // namespace

std::string_view name(Protection protection) {
  switch (protection) {
    case Protection::kChecksum:
      return "checksums";
    case Protection::kAesGcm:
      return "AES-256-GCM";
    case Protection::kChaChaPoly:
      return "ChaCha20-Poly1305";
  }
  return "an unknown protection";
}

bool has_fast_aes() {
#ifdef __aarch64__
  return (getauxval(AT_HWCAP) & (HWCAP_AES | HWCAP_PMULL)) == (HWCAP_AES | HWCAP_PMULL);
#else
  return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
#endif
}

void RecordCipher::FreeContext::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }

Result<RecordCipher> RecordCipher::create(Role role, Protection protection, Key key, uint64_t records_per_key) {
  HORO_CHECK(protection != Protection::kChecksum && records_per_key > 0, "a cipher that does not encrypt");
  RecordCipher cipher(role, protection, std::move(key), records_per_key);
  cipher.context_.reset(EVP_CIPHER_CTX_new());
  if (cipher.context_ == nullptr) return Status(Code::kUnavailable, "no memory for a cipher");
  HORO_TRY(cipher.use_key());
  return cipher;
}

Status RecordCipher::use_key() {
  const int encrypt = role_ == Role::kSeal ? 1 : 0;
  // Both ciphers take nonces of 12 bytes unless told otherwise.
  const auto* key = in(key_.secret().data());
  if (EVP_CipherInit_ex(context_.get(), cipher_of(protection_), nullptr, key, nullptr, encrypt) == 1) return {};
  return {Code::kUnavailable, text("OpenSSL offers no ", name(protection_), ", which HORO_ENCRYPT=1 needs")};
}

/// Takes the next key when it is time, then number and head of the record.
Status RecordCipher::start_record(std::span<const std::byte> head) {
  if (records_ > 0 && records_ % records_per_key_ == 0) {
    HORO_ASSIGN(key_, key_.derive(kNextLabel, {}));
    HORO_TRY(use_key());
  }
  std::array<std::byte, 12> nonce{};
  std::memcpy(nonce.data() + 4, &records_, sizeof records_);
  ++records_;
  int written = 0;
  const bool started =
      EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, in(nonce.data()), -1) == 1 &&
      EVP_CipherUpdate(context_.get(), nullptr, &written, in(head.data()), static_cast<int>(head.size())) == 1;
  return started ? Status() : broken_cipher("begin");
}

Status RecordCipher::seal(std::span<const std::span<const std::byte>> parts, std::vector<std::byte>& sealed) {
  size_t bytes = 0;
  for (auto part : parts) bytes += part.size();
  HORO_CHECK(role_ == Role::kSeal && bytes > 0 && bytes <= kMostRecord, "a record holds 1 to kMostRecord bytes");
  const size_t start = sealed.size();
  sealed.resize(start + bytes + kRecordExtra);
  std::byte* head = sealed.data() + start;
  const auto length = static_cast<uint32_t>(bytes);
  std::memcpy(head, &length, sizeof length);
  HORO_TRY(start_record({head, kRecordHead}));
  std::byte* at = head + kRecordHead;
  int written = 0;
  for (auto part : parts) {
    if (EVP_EncryptUpdate(context_.get(), out(at), &written, in(part.data()), static_cast<int>(part.size())) != 1 ||
        static_cast<size_t>(written) != part.size()) {
      return broken_cipher("seal");
    }
    at += part.size();
  }
  const bool done = EVP_EncryptFinal_ex(context_.get(), out(at), &written) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kRecordTag, out(at)) == 1;
  return done ? Status() : broken_cipher("seal");
}

Status RecordCipher::open(std::span<const std::byte> record, std::byte* into) {
  HORO_CHECK(role_ == Role::kOpen && record.size() > kRecordExtra, "a record is opened whole");
  const size_t bytes = record.size() - kRecordExtra;
  const uint64_t number = records_;
  HORO_TRY(start_record(record.first(kRecordHead)));
  std::array<std::byte, kRecordTag> tag;
  std::memcpy(tag.data(), record.data() + kRecordHead + bytes, kRecordTag);
  int written = 0;
  const bool genuine = EVP_DecryptUpdate(context_.get(), out(into), &written, in(record.data() + kRecordHead),
                                         static_cast<int>(bytes)) == 1 &&
                       EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kRecordTag, tag.data()) == 1 &&
                       EVP_DecryptFinal_ex(context_.get(), out(into) + bytes, &written) == 1;
  if (genuine) return {};
  return {Code::kCorrupt, text("encrypted record ", number, ", of ", bytes,
                               " bytes, is not the one that was sent: somebody on the way changed, repeated, "
                               "moved or left out bytes, or memory is damaged")};
}

std::span<std::byte> RecordReader::room() {
  if (buffer_ == nullptr) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBuffer);
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return {buffer_.get() + end_, kBuffer - end_};
}

IoResult RecordReader::receive(const Socket& socket) {
  IoResult result = socket.receive(room());
  end_ += result.bytes();
  return result;
}

size_t RecordReader::take(std::span<const std::byte> bytes) {
  auto space = room();
  const size_t taken = std::min(space.size(), bytes.size());
  std::copy_n(bytes.begin(), taken, space.begin());
  end_ += taken;
  return taken;
}

Result<bool> RecordReader::has_record() const {
  if (end_ - begin_ < kRecordHead) return false;
  const size_t bytes = record_bytes();
  if (bytes == 0 || bytes > kMostRecord) {
    return Status(Code::kCorrupt,
                  text("an encrypted record states a length of ", bytes, " where 1 to ", kMostRecord,
                       " is possible: somebody on the way changed bytes, or the peer sends plain ones"));
  }
  return end_ - begin_ >= bytes + kRecordExtra;
}

size_t RecordReader::record_bytes() const { return length_of({buffer_.get() + begin_, kRecordHead}); }

Status RecordReader::open(std::byte* into) {
  const std::span<const std::byte> record(buffer_.get() + begin_, record_bytes() + kRecordExtra);
  begin_ += record.size();
  return cipher_.open(record, into);
}

}  // namespace horo::net
