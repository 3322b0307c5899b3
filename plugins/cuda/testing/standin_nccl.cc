// Stand-in of NCCL (libnccl.so.2) that records who calls what, and does it on memory of the host. The members of a
// communicator are threads of one process. Like NCCL with blocking=0 it returns at once: a communicator is ready, and
// an operation has run, when all members have come. It checks what NCCL would hang on: that members make the same
// calls, on a device of their own, and never use a communicator that has failed.
#include "plugins/cuda/testing/standin_nccl.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <vector>

#include "plugins/cuda/nccl.h"
#include "plugins/cuda/testing/standin.h"

using namespace horo::cuda;

namespace {

using horo::cuda::standin::Stream;
using standin::Behaviour;

constexpr ncclResult kInvalidUsage = 5, kRemoteError = 6;
constexpr int kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

/// One call within a group; a call by itself is a group of one.
struct Call {
  std::string name;
  const void* in;
  void* out;
  size_t count;
  int type, op, peer;
};
struct Unit {
  std::vector<Call> calls;
  Stream* stream = nullptr;
};

struct World {
  int members = 0;
  std::vector<ncclComm> joined;
  std::vector<std::deque<Unit>> waiting;  ///< By member.
  bool broken = false;                    ///< Nothing ends any more.
};

/// One for the process, as the library is.
struct Library {
  std::mutex mutex;
  Behaviour behaviour;
  std::map<std::string, std::shared_ptr<World>> worlds;
  std::map<int, std::string> calls;  ///< By member.
  int ids = 0;
};
Library& library() {
  static Library all;
  return all;
}

}  // namespace

namespace horo::cuda {
struct ncclCommOpaque {
  std::shared_ptr<World> world;
  int member = 0;
  int device = 0;
  bool busy = false;  ///< Says once that it is in progress after it was asked for something.
  ncclResult failed = kNcclSuccess;
};
}  // namespace horo::cuda

namespace {

struct Group {
  int depth = 0;
  std::map<ncclComm, Unit> units;
};
Group& group() {
  thread_local Group own;
  return own;
}

int current_device() {
  using Get = int (*)(int*);
  static const auto get =
      reinterpret_cast<Get>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuCtxGetDevice"));
  int device = -1;
  get(&device);
  return device;
}

void record(int member, const std::string& words) { library().calls[member] += words + "\n"; }

template <class T>
T combine(T a, T b, int op) {
  return op == 1 ? static_cast<T>(a * b) : op == 2 ? std::max(a, b) : op == 3 ? std::min(a, b) : static_cast<T>(a + b);
}

/// What all members give, as one.
template <class T>
std::vector<char> reduced_as(const std::vector<const Call*>& all) {
  std::vector<T> result(all[0]->count);
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<const T*>(all[0]->in)[i];
    for (size_t m = 1; m < all.size(); ++m) {
      result[i] = combine(result[i], static_cast<const T*>(all[m]->in)[i], all[0]->op);
    }
    if (all[0]->op == 4) result[i] = static_cast<T>(result[i] / static_cast<T>(all.size()));
  }
  const char* bytes = reinterpret_cast<const char*>(result.data());
  return {bytes, bytes + result.size() * sizeof(T)};
}

std::vector<char> reduced(const std::vector<const Call*>& all) {
  switch (all[0]->type) {
    case 1:
      return reduced_as<uint8_t>(all);
    case 2:
      return reduced_as<int32_t>(all);
    case 4:
      return reduced_as<int64_t>(all);
    case 8:
      return reduced_as<double>(all);
    default:
      return reduced_as<float>(all);
  }
}

/// How many bytes NCCL writes of an average that has one member: up to 32 equal segments, of whole packs of 16 bytes,
/// whose length is rounded down before it is rounded to packs. What is left over stays as it was.
size_t averaged_alone(size_t count, size_t element) {
  const size_t segments = std::min<size_t>(32, (count * element + (16 << 10) - 1) / (16 << 10));
  const size_t pack = 16 / element, each = (count / segments + pack - 1) / pack * pack;
  return std::min(count, segments * each) * element;
}

void collective(const std::vector<const Call*>& all) {
  const Call& first = *all[0];
  const auto element = static_cast<size_t>(kSizes[first.type]);
  size_t bytes = first.count * element;
  if (all.size() == 1 && first.op == 4 && bytes > 0) bytes = averaged_alone(first.count, element);
  if (first.name == "AllReduce" || first.name == "Reduce") {
    const std::vector<char> result = reduced(all);
    for (size_t m = 0; m < all.size(); ++m) {
      if (first.name == "AllReduce" || static_cast<int>(m) == first.peer) {
        std::memcpy(all[m]->out, result.data(), bytes);
      }
    }
  } else if (first.name == "Broadcast") {
    const void* from = all[static_cast<size_t>(first.peer)]->in;
    for (const Call* one : all) std::memmove(one->out, from, bytes);
  } else if (first.name == "AllGather") {
    for (const Call* one : all) {
      for (size_t m = 0; m < all.size(); ++m) {
        std::memmove(static_cast<char*>(one->out) + m * bytes, all[m]->in, bytes);
      }
    }
  } else {  // ReduceScatter: a reduction of everybody's whole input.
    std::vector<Call> whole;
    std::vector<const Call*> parts;
    for (const Call* one : all) whole.push_back(*one);
    for (Call& one : whole) {
      one.count *= all.size();
      parts.push_back(&one);
    }
    const std::vector<char> result = reduced(parts);
    for (size_t m = 0; m < all.size(); ++m) std::memcpy(all[m]->out, result.data() + m * bytes, bytes);
  }
}

/// What one sends is what another receives, in order.
bool message(std::vector<std::deque<Call>>& left, size_t from) {
  const Call sent = left[from].front();
  std::deque<Call>& calls = left[static_cast<size_t>(sent.peer)];
  const auto found = std::find_if(calls.begin(), calls.end(), [&](const Call& one) {
    return one.name == "Recv" && one.peer == static_cast<int>(from);
  });
  if (found == calls.end() || found->count != sent.count || found->type != sent.type) return false;
  std::memcpy(found->out, sent.in, sent.count * static_cast<size_t>(kSizes[sent.type]));
  calls.erase(found);
  return true;
}

/// Runs what all members have asked for; false if they do not fit.
bool run(std::vector<std::deque<Call>> left) {
  for (size_t m = 0; m < left.size(); ++m) {
    for (size_t i = 0; i < left[m].size();) {
      if (left[m][i].name != "Send") {
        ++i;
        continue;
      }
      std::rotate(left[m].begin(), left[m].begin() + static_cast<std::ptrdiff_t>(i), left[m].end());
      if (!message(left, m)) return false;
      const auto mine =
          std::find_if(left[m].begin(), left[m].end(), [](const Call& one) { return one.name == "Send"; });
      left[m].erase(mine);
      i = 0;
    }
  }
  while (!left[0].empty()) {
    std::vector<const Call*> all;
    for (std::deque<Call>& calls : left) {
      if (calls.empty()) return false;
      const Call& one = calls.front();
      const Call& first = left[0].front();
      if (one.name != first.name || one.count != first.count || one.type != first.type || one.op != first.op ||
          one.peer != first.peer || one.name == "Recv") {
        return false;
      }
      all.push_back(&one);
    }
    collective(all);
    for (std::deque<Call>& calls : left) calls.pop_front();
  }
  return std::all_of(left.begin(), left.end(), [](const auto& calls) { return calls.empty(); });
}

void run_when_all_came(World& world) {
  if (library().behaviour.stuck || world.broken) return;
  while (std::none_of(world.waiting.begin(), world.waiting.end(), [](const auto& one) { return one.empty(); })) {
    std::vector<std::deque<Call>> calls;
    for (const std::deque<Unit>& units : world.waiting) {
      calls.emplace_back(units.front().calls.begin(), units.front().calls.end());
    }
    const bool fits = run(std::move(calls));
    for (size_t m = 0; m < world.waiting.size(); ++m) {
      if (!fits) world.joined[m]->failed = kInvalidUsage;
      if (fits) world.waiting[m].front().stream->end();
      world.waiting[m].pop_front();
    }
  }
}

ncclResult submit(ncclComm communicator, Unit unit) {
  std::lock_guard lock(library().mutex);
  if (communicator->failed != kNcclSuccess) return kInvalidUsage;
  unit.stream->begin();
  World& world = *communicator->world;
  if (communicator->member == library().behaviour.fails_on) {
    communicator->failed = kRemoteError;  // Noticed later, as a broken connection is.
    world.broken = true;
  }
  world.waiting[static_cast<size_t>(communicator->member)].push_back(std::move(unit));
  run_when_all_came(world);
  communicator->busy = true;
  return kNcclInProgress;
}

ncclResult ask(const char* name, const void* in, void* out, size_t count, int type, int op, int peer,
               ncclComm communicator, CUstream stream) {
  std::ostringstream words;
  words << name << " " << count << " of " << type;
  if (op >= 0) words << ", op " << op;
  if (peer >= 0) words << ", peer " << peer;
  {
    std::lock_guard lock(library().mutex);
    record(communicator->member, words.str());
    if (current_device() != communicator->device || communicator->busy) return kInvalidUsage;
  }
  Unit unit;
  Unit& into = group().depth > 0 ? group().units[communicator] : unit;
  into.stream = reinterpret_cast<Stream*>(stream);
  into.calls.push_back({name, in, out, count, type, op, peer});
  return group().depth > 0 ? kNcclSuccess : submit(communicator, std::move(unit));
}

}  // namespace

extern "C" {
HORO_STANDIN void horo_standin_begin(const Behaviour* behaviour) {
  std::lock_guard lock(library().mutex);
  library().behaviour = *behaviour;
  library().calls.clear();
}
HORO_STANDIN const char* horo_standin_calls(int member) {
  thread_local std::string words;
  std::lock_guard lock(library().mutex);
  words = library().calls[member];
  return words.c_str();
}

HORO_STANDIN ncclResult ncclGetVersion(int* version) {
  *version = 22900;
  return kNcclSuccess;
}
HORO_STANDIN ncclResult ncclGetUniqueId(ncclUniqueId* id) {
  std::lock_guard lock(library().mutex);
  std::memset(id, 0, sizeof *id);
  const std::string words = "id " + std::to_string(++library().ids);
  std::memcpy(id->internal, words.c_str(), words.size());
  return kNcclSuccess;
}
HORO_STANDIN const char* ncclGetErrorString(ncclResult result) {
  return result == kRemoteError ? "remote process exited or there was a network error" : "invalid usage";
}
HORO_STANDIN const char* ncclGetLastError(ncclComm) { return ""; }

HORO_STANDIN ncclResult ncclCommInitRankConfig(ncclComm* communicator, int members, ncclUniqueId id, int member,
                                               ncclConfig* config) {
  std::lock_guard lock(library().mutex);
  const int device = current_device();
  record(member, "CommInitRankConfig of " + std::to_string(members) + " on device " + std::to_string(device));
  if (library().behaviour.refuses == member || config->blocking != 0 || config->magic != 0xcafebeef) {
    return kInvalidUsage;
  }
  std::shared_ptr<World>& world = library().worlds[id.internal];
  if (world == nullptr) world = std::make_shared<World>(World{members, {}, {}, false});
  world->joined.resize(static_cast<size_t>(members));
  world->waiting.resize(static_cast<size_t>(members));
  for (ncclComm other : world->joined) {
    if (other != nullptr && other->device == device) return kInvalidUsage;  // "Duplicate GPU detected".
  }
  *communicator = new ncclCommOpaque{world, member, device};
  world->joined[static_cast<size_t>(member)] = *communicator;
  return kNcclInProgress;
}
HORO_STANDIN ncclResult ncclCommGetAsyncError(ncclComm communicator, ncclResult* state) {
  std::lock_guard lock(library().mutex);
  const std::vector<ncclComm>& joined = communicator->world->joined;
  const bool all = std::find(joined.begin(), joined.end(), nullptr) == joined.end();
  *state = communicator->failed;
  if (*state == kNcclSuccess && (!all || communicator->busy)) *state = kNcclInProgress;
  communicator->busy = false;
  return kNcclSuccess;
}
HORO_STANDIN ncclResult ncclCommFinalize(ncclComm communicator) {
  std::lock_guard lock(library().mutex);
  record(communicator->member, "CommFinalize");
  return communicator->failed == kNcclSuccess ? kNcclSuccess : kInvalidUsage;
}
HORO_STANDIN ncclResult ncclCommDestroy(ncclComm communicator) {
  std::lock_guard lock(library().mutex);
  record(communicator->member, "CommDestroy");
  return kNcclSuccess;  // What it had stays: another member may look at it.
}
HORO_STANDIN ncclResult ncclCommAbort(ncclComm communicator) {
  std::lock_guard lock(library().mutex);
  record(communicator->member, "CommAbort");
  for (Unit& unit : communicator->world->waiting[static_cast<size_t>(communicator->member)]) unit.stream->end();
  communicator->world->waiting[static_cast<size_t>(communicator->member)].clear();
  communicator->failed = kInvalidUsage;
  return kNcclSuccess;
}

HORO_STANDIN ncclResult ncclGroupStart() {
  ++group().depth;
  return kNcclSuccess;
}
HORO_STANDIN ncclResult ncclGroupEnd() {
  if (--group().depth > 0) return kNcclSuccess;
  std::map<ncclComm, Unit> units = std::move(group().units);
  group().units.clear();
  ncclResult result = kNcclSuccess;
  for (auto& [communicator, unit] : units) {
    {
      std::lock_guard lock(library().mutex);
      record(communicator->member, "GroupEnd");
    }
    result = submit(communicator, std::move(unit));
  }
  return result;
}

HORO_STANDIN ncclResult ncclAllReduce(const void* in, void* out, size_t count, int type, int op, ncclComm communicator,
                                      CUstream stream) {
  return ask("AllReduce", in, out, count, type, op, -1, communicator, stream);
}
HORO_STANDIN ncclResult ncclReduce(const void* in, void* out, size_t count, int type, int op, int root,
                                   ncclComm communicator, CUstream stream) {
  return ask("Reduce", in, out, count, type, op, root, communicator, stream);
}
HORO_STANDIN ncclResult ncclBroadcast(const void* in, void* out, size_t count, int type, int root,
                                      ncclComm communicator, CUstream stream) {
  return ask("Broadcast", in, out, count, type, -1, root, communicator, stream);
}
HORO_STANDIN ncclResult ncclReduceScatter(const void* in, void* out, size_t count, int type, int op,
                                          ncclComm communicator, CUstream stream) {
  return ask("ReduceScatter", in, out, count, type, op, -1, communicator, stream);
}
HORO_STANDIN ncclResult ncclAllGather(const void* in, void* out, size_t count, int type, ncclComm communicator,
                                      CUstream stream) {
  return ask("AllGather", in, out, count, type, -1, -1, communicator, stream);
}
HORO_STANDIN ncclResult ncclSend(const void* in, size_t count, int type, int to, ncclComm communicator,
                                 CUstream stream) {
  return ask("Send", in, nullptr, count, type, -1, to, communicator, stream);
}
HORO_STANDIN ncclResult ncclRecv(void* out, size_t count, int type, int from, ncclComm communicator, CUstream stream) {
  return ask("Recv", nullptr, out, count, type, -1, from, communicator, stream);
}
}
