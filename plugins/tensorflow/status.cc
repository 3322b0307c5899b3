#include "plugins/tensorflow/status.h"

#include <vector>

namespace horo::tensorflow {

namespace {

// TensorFlow's numbers.
constexpr TF_Code kInvalidArgument = 3, kDeadlineExceeded = 4, kFailedPrecondition = 9, kAborted = 10, kInternal = 13;

TF_Code code_of(horo_code code) {
  switch (code) {
    case HORO_OK:
      return 0;
    case HORO_INVALID_ARGUMENT:
      return kInvalidArgument;
    case HORO_MISMATCH:
      return kFailedPrecondition;
    case HORO_TIMEOUT:
      return kDeadlineExceeded;
    // Not "unavailable", which TensorFlow keeps for its own network, and replaces.
    case HORO_PEER_LOST:
    case HORO_EVICTED:
    case HORO_UNAVAILABLE:
    case HORO_STOPPED:
    case HORO_FORKED:
      return kAborted;
    default:
      return kInternal;
  }
}

}  // namespace

void Outcome::set(const horo_status* status) {
  if (status == nullptr) return;
  std::vector<int> lost(horo_status_lost(status, nullptr, 0));
  horo_status_lost(status, lost.data(), lost.size());
  std::string ranks;
  for (int rank : lost) ranks += (ranks.empty() ? "[" : ",") + std::to_string(rank);
  const horo_code code = horo_status_code(status);
  // "horo: peer-lost[2,3]: peer-lost: ...": exceptions of TensorFlow hold nothing but words.
  const std::string words = std::string("horo: ") + horo_code_name(code) + ranks + (ranks.empty() ? "" : "]") + ": " +
                            horo_status_message(status);
  api_.set_status(get(), code_of(code), words.c_str());
}

void Outcome::fail(horo_code code, const std::string& words) {
  const std::string name = horo_code_name(code);
  const std::string all = "horo: " + name + ": " + name + ": " + words;
  api_.set_status(get(), code_of(code), all.c_str());
}

}  // namespace horo::tensorflow
