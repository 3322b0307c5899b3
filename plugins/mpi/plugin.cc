// What the plugin exports: horo_fabric_open() and horo_fabric_describe().
#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "plugins/mpi/mpi.h"

#include "horo/base/text.h"

namespace horo::mpi {

namespace {

/// There is one MPI in a process, started once: so is this. Never destroyed, since MPI's own end comes later.
struct Only {
  std::mutex mutex;
  std::unique_ptr<Mpi> mpi;
  horo_fabric fabric{};
  std::mutex ends_mutex;
  std::vector<std::pair<void (*)(void*), void*>> ends;
};

Only& only() {
  static Only& one = *new Only;
  return one;
}

horo_code answer(const Status& status, horo_reason* reason) {
  if (status.ok()) return HORO_OK;
  const std::string& words = status.message();
  const size_t count = std::min(words.size(), sizeof reason->words - 1);
  std::memcpy(reason->words, words.data(), count);
  reason->words[count] = 0;
  return static_cast<horo_code>(status.code());
}

/// A result that goes to `into`, or its status.
template <class Value, class Into>
horo_code answer(Result<Value> result, Into* into, horo_reason* reason) {
  if (!result.ok()) return answer(result.status(), reason);
  if constexpr (std::is_same_v<Value, int>) {
    *into = *result;
  } else {
    *into = result->release();
  }
  return HORO_OK;
}

void call_ends() {
  std::vector<std::pair<void (*)(void*), void*>> ends;
  {
    const std::lock_guard lock(only().ends_mutex);
    ends.swap(only().ends);
  }
  for (const auto& [call, context] : ends) call(context);
}

horo_fabric functions(const Mpi& mpi) {
  return {
      .struct_size = sizeof(horo_fabric),
      .name = mpi.name().c_str(),
      .any_thread = mpi.any_thread() ? 1 : 0,
      .open =
          [](const int* handle, const int* ranks, size_t count, horo_communicator** opened, horo_reason* reason) {
            return answer(only().mpi->open(handle, {ranks, count}), opened, reason);
          },
      .part =
          [](horo_communicator* of, const int* members, size_t count, int tag, horo_communicator** opened,
             horo_reason* reason) {
            return answer(of->part({members, count}, tag), opened, reason);
          },
      .close = [](horo_communicator* communicator) { delete communicator; },
      .rank = [](const horo_communicator* communicator) { return communicator->rank(); },
      .size = [](const horo_communicator* communicator) { return communicator->size(); },
      .broadcast =
          [](horo_communicator* communicator, void* bytes, size_t count, int root, horo_reason* reason) {
            return answer(communicator->broadcast({static_cast<std::byte*>(bytes), count}, root), reason);
          },
      .smallest = [](horo_communicator* communicator, int mine, int* smallest,
                     horo_reason* reason) { return answer(communicator->smallest(mine), smallest, reason); },
      .run =
          [](horo_communicator* communicator, const horo_operation* operation, const void* in, void* out,
             horo_reason* reason) {
            return answer(
                communicator->run(*operation, static_cast<const std::byte*>(in), static_cast<std::byte*>(out)), reason);
          },
      .at_end =
          [](void (*call)(void*), void* context) {
            const std::lock_guard lock(only().ends_mutex);
            only().ends.emplace_back(call, context);
          },
      .forget =
          [](void* context) {
            const std::lock_guard lock(only().ends_mutex);
            std::erase_if(only().ends, [&](const auto& end) { return end.second == context; });
          },
  };
}

Status start(const horo_fabric_request& request) {
  Only& one = only();
  HORO_ASSIGN(const Library found, find_library(request.library, request.flavor == nullptr ? "" : request.flavor));
  const Starting starting{.threads = request.threads != 0, .on_end = &call_ends};
  auto mpi = found.is_open_mpi ? start_open_mpi(found.library, starting) : start_mpich(found.library, starting);
  if (!mpi.ok()) return mpi.status().prefixed(found.library.name());
  one.mpi = std::move(*mpi);
  one.fabric = functions(*one.mpi);
  return {};
}

}  // namespace

}  // namespace horo::mpi

extern "C" __attribute__((visibility("default"))) horo_code horo_fabric_open(const horo_fabric_request* request,
                                                                             const horo_fabric** fabric,
                                                                             horo_reason* reason) {
  horo::mpi::Only& one = horo::mpi::only();
  const std::lock_guard lock(one.mutex);
  if (one.mpi == nullptr) {
    const horo::Status started = horo::mpi::start(*request);
    if (!started.ok()) return horo::mpi::answer(started, reason);
  }
  *fabric = &one.fabric;
  return HORO_OK;
}

extern "C" __attribute__((visibility("default"))) const char* horo_fabric_describe() {
  thread_local std::string words;
  const auto found = horo::mpi::find_library(nullptr, "");
  return (words = found.ok() ? horo::mpi::library_version(found->library) : found.status().message()).c_str();
}
