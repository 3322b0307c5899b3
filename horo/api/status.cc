#include <algorithm>

#include "horo/api/handles.h"
#include "horo/base/dtype.h"
#include "horo/base/text.h"
#include "horo/transport/signature.h"

namespace {

// Of this thread's last call that could not return a status: the one place for what only such a call can leave behind.
thread_local std::string last_error;

// The C enumerations are the C++ ones; if one changes, the other must.
static_assert(HORO_INTERNAL == static_cast<int>(horo::Code::kInternal));
static_assert(HORO_BYTE == static_cast<int>(horo::DType::kByte));
static_assert(HORO_XOR == static_cast<int>(horo::ReduceOp::kXor));
static_assert(HORO_SENDRECV == static_cast<int>(horo::transport::Kind::kSendRecv));

}  // namespace

namespace horo::api {

horo_status* to_handle(Status status) {
  if (status.ok()) return nullptr;
  std::string words = status.to_string();
  return new horo_status{std::move(status), std::move(words)};
}

bool is_absent(const void* what, const char* function, const char* name) {
  if (what != nullptr) return false;
  last_error = text(code_name(Code::kInvalidArgument), ": ", function, ": the ", name, " is null");
  return true;
}

}  // namespace horo::api

horo_code horo_status_code(const horo_status* status) {
  return status == nullptr ? HORO_OK : static_cast<horo_code>(status->value.code());
}

const char* horo_status_message(const horo_status* status) { return status == nullptr ? "ok" : status->words.c_str(); }

size_t horo_status_lost(const horo_status* status, int* ranks, size_t capacity) {
  if (status == nullptr) return 0;
  const auto& lost = status->value.lost();
  if (ranks != nullptr) std::copy_n(lost.begin(), std::min(capacity, lost.size()), ranks);
  return lost.size();
}

uint64_t horo_status_operation(const horo_status* status) {
  return status == nullptr ? 0 : status->value.operation().value_or(0);
}

int horo_status_contents_intact(const horo_status* status) {
  return status == nullptr || status->value.contents_intact() ? 1 : 0;
}

void horo_status_free(horo_status* status) { delete status; }

const char* horo_last_error(void) { return last_error.c_str(); }

const char* horo_version(void) { return "horo " HORO_VERSION_TEXT; }

const char* horo_code_name(horo_code code) {
  if (static_cast<unsigned>(code) > HORO_INTERNAL) return "unknown";
  return horo::code_name(static_cast<horo::Code>(code)).data();
}

size_t horo_dtype_size(horo_dtype dtype) {
  return static_cast<unsigned>(dtype) > HORO_BYTE ? 0 : horo::size_of(static_cast<horo::DType>(dtype));
}
