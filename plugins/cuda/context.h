// One device as this plugin uses it: its primary context, which frameworks share, and the kernels compiled for it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/cuda/driver.h"

namespace horo::cuda {

/// OK, or what the driver says about `what`.
Status check(const Driver& driver, CUresult result, const char* what);

/// Which program, and with which definitions.
struct KernelKey {
  std::string defines;  ///< "HORO_REDUCE DTYPE=10 OP=0": one -D each.
  std::string name;
  auto operator<=>(const KernelKey&) const = default;  // NOLINT(modernize-use-nullptr): there is none.
};

/// Thread-safe.
class Context {
 public:
  static Result<std::unique_ptr<Context>> open(const Driver& driver, int device);

  const Driver& driver() const { return driver_; }
  int processors() const { return processors_; }
  /// Whether a launch takes 32,764 bytes of parameters, and not 4,096.
  bool takes_long_parameters() const { return takes_long_parameters_; }
  /// Compiled at first use, or read from the cache. The context must be current.
  Result<CUfunction> kernel(const KernelKey& key);

  /// An event without a time. Given back it is used again: making one takes longer than recording it. The context must
  /// be current.
  struct Event {
    Context& context;
    CUevent event;
  };
  Result<Event*> take_event();
  static void give_back(Event* event);

  /// Whether queues may be held now, by whoever asked: until release_holds(). Of the process, as the driver's locks
  /// are.
  bool may_hold() const;
  static void release_holds() { held_ = false; }

  /// Makes it the thread's current context for as long as this lives.
  class Use {
   public:
    explicit Use(const Context& context) : driver_(context.driver_) { driver_.cuCtxPushCurrent(context.context_); }
    ~Use() {
      CUcontext popped = nullptr;
      driver_.cuCtxPopCurrent(&popped);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const Driver& driver_;
  };

 private:
  Context(const Driver& driver, CUcontext context) : driver_(driver), context_(context) {}
  Result<CUmodule> module_of(const std::string& defines);

  const Driver& driver_;
  const CUcontext context_;
  int processors_ = 1;
  bool takes_long_parameters_ = false;
  std::string architecture_;
  std::mutex mutex_;
  std::map<std::string, CUmodule> modules_;
  std::map<KernelKey, CUfunction> kernels_;
  std::vector<std::unique_ptr<Event>> events_;   ///< Free ones.
  static inline std::atomic<bool> held_{false};  // NOLINT(readability-identifier-naming): a member, too.
};

/// The contexts of this process, by the number that the driver gives a device; each is opened once and stays.
Result<Context*> context_of(int device);
/// Where compiled kernels are kept; empty: nowhere.
void set_cache_folder(std::string folder);

/// Machine code for `architecture` ("sm_90"), from the cache or compiled.
Result<std::string> machine_code(const std::string& defines, const std::string& architecture, bool fresh);

inline constexpr unsigned kThreads = 256;
inline constexpr uint64_t kChunk = 32 << 10;  ///< Bytes that a block copies at a time.
inline constexpr size_t kFewPieces = 96;      ///< Go with the launch: 3 of the 4 KiB that every driver takes.
inline constexpr size_t kFewCasts = 96, kManyCasts = 800;  ///< Of what every driver takes, and of long parameters.
inline constexpr size_t kMostSources = 64;

}  // namespace horo::cuda
