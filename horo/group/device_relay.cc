#include "horo/group/device_relay.h"

#include <new>
#include <set>
#include <utility>

#include "horo/group/device_wait.h"

namespace horo::group {

namespace {

/// How often a device that is late is asked whether it has failed.
constexpr auto kAskEvery = std::chrono::seconds(1);
constexpr auto kDrainPause = std::chrono::microseconds(50);
/// Beyond all points that can be in a queue.
constexpr uint32_t kFarAhead = 1U << 30;

void store(uint32_t& word, uint32_t value) { std::atomic_ref(word).store(value, std::memory_order_release); }

}  // namespace

std::unique_ptr<DeviceRelay> DeviceRelay::open(device::Devices& devices, int device, DeviceBoard& board,
                                               DeviceHost& host) {
  if (!devices.has_holds()) return nullptr;
  Result<std::byte*> memory = devices.allocate_host(device, sizeof(Words));
  if (!memory.ok()) return nullptr;
  std::unique_ptr<DeviceRelay> made(new DeviceRelay(devices, device, board, host, new (*memory) Words));
  Result<Thread> thread =
      Thread::start("horo-device", [relay = made.get()](const std::stop_token& stop) { relay->work(stop); });
  if (!thread.ok()) return nullptr;
  made->thread_ = std::move(*thread);
  return made;
}

DeviceRelay::DeviceRelay(device::Devices& devices, int device, DeviceBoard& board, DeviceHost& host, Words* words)
    : devices_(devices), device_(device), board_(board), host_(host), words_(words) {}

DeviceRelay::~DeviceRelay() {
  thread_ = Thread();
  devices_.free_host(device_, reinterpret_cast<std::byte*>(words_));
}

// ---- The thread that fills the queue

bool DeviceRelay::begin(bool holds) {
  std::lock_guard lock(mutex_);
  if (failure_) return false;
  if (holds && permit_ == nullptr) permit_ = device::HoldPermit::take(devices_, device_);
  if (holds && permit_ == nullptr) return false;
  filling_ = true;
  changed_.notify_all();
  return true;
}

void DeviceRelay::cancel() {
  std::lock_guard lock(mutex_);
  filling_ = false;
  changed_.notify_all();
}

bool DeviceRelay::is_idle() {
  std::lock_guard lock(mutex_);
  return flights_.empty();
}

Result<uint64_t> DeviceRelay::reach(device::Queue& queue) {
  HORO_TRY(queue.signal(&words_->reached, static_cast<uint32_t>(points_ + 1)));
  return ++points_;
}

Status DeviceRelay::after(device::Queue& queue, uint64_t point) const {
  return queue.hold(&words_->open, static_cast<uint32_t>(point));
}

void DeviceRelay::launch(Flight flight) {
  std::lock_guard lock(mutex_);
  filling_ = false;
  flight.last = points_;
  flights_.push_back(std::move(flight));
  changed_.notify_all();
}

void DeviceRelay::wait_idle() {
  std::unique_lock lock(mutex_);
  if (std::this_thread::get_id() == id_) return;
  changed_.wait(lock, [this] { return !is_busy(); });
}

// ---- The thread of this class

void DeviceRelay::work(const std::stop_token& stop) {
  std::stop_callback wake(stop, [this] {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  id_ = std::this_thread::get_id();
  while (true) {
    if (!is_busy()) permit_.reset();
    changed_.notify_all();
    changed_.wait(lock, [&] { return stop.stop_requested() || is_busy(); });
    if (!is_busy()) return;
    if (can_land() || (failure_ && !flights_.empty())) {
      land(lock);
    } else if (failure_) {
      changed_.wait(lock, [this] { return !filling_ || !flights_.empty(); });
    } else {
      lock.unlock();
      pass_point();
      lock.lock();
    }
  }
}

// Returns, too, when there is no point any more to be waited for, and when one has failed.
void DeviceRelay::pass_point() {
  const uint64_t next = passed_ + 1;
  const auto is_reached = [&] {
    const uint32_t reached = std::atomic_ref(words_->reached).load(std::memory_order_acquire);
    return static_cast<int32_t>(reached - static_cast<uint32_t>(next)) >= 0;
  };
  if (!await(is_reached, Awaited::kDevice)) return;
  board_.advance(next);
  if (!await([&] { return board_.all_at(next); }, Awaited::kOthers)) return;
  store(words_->open, static_cast<uint32_t>(next));
  passed_ = next;
}

template <class Condition>
bool DeviceRelay::await(Condition has_come, Awaited awaited) {
  DeviceWait wait(host_);
  bool by_fabric = false;  // Then a device waits for the others'.
  while (!has_come()) {
    const std::optional<Fault> fault = find_fault(wait.since());
    if (fault) {
      // On a board that is frozen all members see the same.
      if (fault->status) host_.give_up(*fault->status);
      board_.freeze();
      if (awaited == Awaited::kOthers && has_come()) return true;
      fail(*fault);
      return false;
    }
    wait.pause(awaited == Awaited::kOthers || by_fabric);
    std::lock_guard lock(mutex_);
    if (!is_busy() || can_land()) return false;
    by_fabric = !flights_.empty() && flights_.front().fabric != nullptr;
  }
  return true;
}

// What the driver alone would tell, that the device has failed, another thread asks it: that one may have to wait for
// its locks.
std::optional<DeviceRelay::Fault> DeviceRelay::find_fault(Time since) {
  if (host_.is_over()) return Fault{};
  std::unique_lock lock(mutex_);
  if (flights_.empty()) return std::nullopt;
  const Flight& first = flights_.front();
  for (const Flight& flight : flights_) {
    if (!flight.queued.ok()) return Fault{flight.queued.prefixed(flight.what)};
  }
  const Time now = Clock::now();
  if (first.deadline.expired(now)) {
    return Fault{Status(Code::kTimeout, "the devices did not come so far in time").prefixed(first.what)};
  }
  if (asked_.valid() && asked_.wait_for(Duration::zero()) == std::future_status::ready) {
    const Status health = asked_.get();
    if (!health.ok()) return Fault{health.prefixed(first.what)};
    asked_at_ = now;
  }
  if (!asked_.valid() && now >= std::max(since, asked_at_) + kAskEvery) {
    asked_ = std::async(std::launch::async, [this, end = first.end] { return devices_.has_happened(end).status(); });
  }
  if (first.fabric == nullptr || ++looks_ % kLooksForOne != 0) return std::nullopt;
  const std::shared_ptr<FabricLink> fabric = first.fabric;
  const std::string what = first.what;
  lock.unlock();
  return find_fault_of(*fabric, what);
}

std::optional<DeviceRelay::Fault> DeviceRelay::find_fault_of(FabricLink& fabric, const std::string& what) {
  const Status health = fabric.poll().status();
  if (health.ok()) return std::nullopt;
  host_.wait_over(kReasonLimit);
  return host_.is_over() ? Fault{} : Fault{health.prefixed(what)};
}

// First the queue is opened: why takes its time to be known.
void DeviceRelay::fail(const Fault& fault) {
  store(words_->spoilt, 1);
  store(words_->open, static_cast<uint32_t>(passed_) + kFarAhead);
  std::string what = "an operation on a device";
  std::set<std::shared_ptr<FabricLink>> fabrics;
  {
    std::lock_guard lock(mutex_);
    if (!flights_.empty()) what = flights_.front().what;
    for (const Flight& flight : flights_) fabrics.insert(flight.fabric);
  }
  for (const std::shared_ptr<FabricLink>& fabric : fabrics) {
    if (fabric != nullptr) fabric->abort();
  }
  const Status why = fault.status ? *fault.status : host_.why_over(what);
  std::lock_guard lock(mutex_);
  failure_ = why;
}

// It stays in the list until its owner knows: whoever waits until nothing is under way must not be too early.
void DeviceRelay::land(std::unique_lock<std::mutex>& lock) {
  const Flight flight = std::move(flights_.front());
  const bool succeeded = flight.last <= passed_;
  Status outcome = succeeded ? Status() : *failure_;
  lock.unlock();
  if (!succeeded) {
    if (flight.touched_after && *flight.touched_after <= passed_) outcome = outcome.with_contents_lost();
    if (flight.fabric != nullptr) flight.fabric->abort();  // It may have come after the failure.
    const Deadline limit = flight.fabric != nullptr ? Deadline::after(kDrainLimit) : Deadline::never();
    while (flight.end != nullptr && !limit.expired()) {
      const Result<bool> ended = devices_.has_happened(flight.end);
      if (!ended.ok() || *ended) break;
      std::unique_lock waiting(mutex_);
      changed_.wait_for(waiting, kDrainPause);
    }
  }
  flight.landed(outcome);
  lock.lock();
  flights_.pop_front();
}

}  // namespace horo::group
