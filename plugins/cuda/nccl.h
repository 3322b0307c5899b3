// NCCL, opened at run time, and its communicators. Declared here: building needs no header of NCCL's.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "plugins/cuda/queue.h"

#include "horo/device/plugin.h"

namespace horo::cuda {

// As in nccl.h, in all versions from kOldest on. NOLINTBEGIN(readability-identifier-naming)
using ncclResult = int;
using ncclComm = struct ncclCommOpaque*;
struct ncclUniqueId {
  char internal[HORO_DEVICE_FABRIC_ID_BYTES];
};
/// The beginning that the structure has had since 2.17; the library takes what is missing from its defaults.
struct ncclConfig {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cluster_size, least_blocks, most_blocks;
  const char* network;
};
// NOLINTEND(readability-identifier-naming)
enum : ncclResult { kNcclSuccess = 0, kNcclInProgress = 7 };

/// Functions of libnccl.
struct Nccl {
  static constexpr int kOldest = 21800;

  ncclResult (*ncclGetVersion)(int*) = nullptr;
  ncclResult (*ncclGetUniqueId)(ncclUniqueId*) = nullptr;
  const char* (*ncclGetErrorString)(ncclResult) = nullptr;
  const char* (*ncclGetLastError)(ncclComm) = nullptr;
  ncclResult (*ncclCommInitRankConfig)(ncclComm*, int, ncclUniqueId, int, ncclConfig*) = nullptr;
  ncclResult (*ncclCommGetAsyncError)(ncclComm, ncclResult*) = nullptr;
  ncclResult (*ncclCommFinalize)(ncclComm) = nullptr;
  ncclResult (*ncclCommDestroy)(ncclComm) = nullptr;
  ncclResult (*ncclCommAbort)(ncclComm) = nullptr;
  ncclResult (*ncclGroupStart)() = nullptr;
  ncclResult (*ncclGroupEnd)() = nullptr;
  ncclResult (*ncclAllReduce)(const void*, void*, size_t, int, int, ncclComm, CUstream) = nullptr;
  ncclResult (*ncclReduce)(const void*, void*, size_t, int, int, int, ncclComm, CUstream) = nullptr;
  ncclResult (*ncclBroadcast)(const void*, void*, size_t, int, int, ncclComm, CUstream) = nullptr;
  ncclResult (*ncclReduceScatter)(const void*, void*, size_t, int, int, ncclComm, CUstream) = nullptr;
  ncclResult (*ncclAllGather)(const void*, void*, size_t, int, ncclComm, CUstream) = nullptr;
  ncclResult (*ncclSend)(const void*, size_t, int, int, ncclComm, CUstream) = nullptr;
  ncclResult (*ncclRecv)(void*, size_t, int, int, ncclComm, CUstream) = nullptr;
  int version = 0;
  std::string file;
};

/// Opened once. A failure says what was tried, or that it is too old.
const Result<Nccl>& nccl();
/// In words, without opening what is not loaded: that takes a second.
std::string describe_nccl();
/// Whether NCCL has it with our results: NaN comes out of min and max, and bool is a truth value.
bool nccl_reduces(int dtype, int op);

/// One member's part of a communicator. Nothing here waits but the end, and that for a moment only.
class Communicator {
 public:
  static Result<std::unique_ptr<Communicator>> open(const Nccl& library, Context& context, const ncclUniqueId& id,
                                                    int members, int member);

  /// False while something is under way; an error when it has failed.
  Result<bool> poll() const;
  /// False: it will be in the queue when poll() says true.
  Result<bool> run(Queue& queue, const horo_device_collective& collective) const;
  /// Aborted, or ended in order. On a thread of its own: the library waits there for members that may be stuck.
  static void end(std::unique_ptr<Communicator> communicator, bool abort);

 private:
  Communicator(const Nccl& library, Context& context, int members, int member)
      : nccl_(library), context_(context), members_(members), member_(member) {}
  struct Call;
  Status check(ncclResult result, const char* what) const;
  Result<bool> outcome(ncclResult result, const char* what) const;
  ncclResult enqueue(const Call& call) const;
  ncclResult gather_uneven(const Call& call) const;
  ncclResult scatter_uneven(const Call& call) const;
  ncclResult exchange(const Call& call) const;
  void end_in_order() const;

  const Nccl& nccl_;
  Context& context_;
  const int members_, member_;
  ncclComm communicator_ = nullptr;
};

}  // namespace horo::cuda
