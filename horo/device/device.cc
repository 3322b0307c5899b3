#include "horo/device/device.h"

#include "horo/base/text.h"

namespace horo::device {

Devices::~Devices() {
  for (const auto& [memory, allocation] : allocations_) plugin_.free(allocation.device, allocation.memory.base);
}

namespace {

constexpr size_t kManyAwaited = 16;

Status status_of(const horo_device_plugin& plugin, int code) {
  if (code == 0) return {};
  return {static_cast<Code>(code), text(plugin.name, ": ", plugin.last_error())};
}

}  // namespace

Status Event::precede(int device, void* stream) const {
  return status_of(plugin_, plugin_.stream_wait(device, stream, event_));
}

Status Devices::status(int code) const { return status_of(plugin_, code); }

std::string Devices::describe() const {
  std::string words(4096, '\0');
  plugin_.describe(words.data(), words.size());
  words.resize(words.find('\0'));
  return words;
}

Status Devices::usable() const {
  std::lock_guard lock(mutex_);
  char words[16] = "";
  if (!usable_) usable_ = status(plugin_.describe(words, sizeof words));
  return *usable_;
}

Result<EventHandle> Devices::record(int device, void* stream) const {
  void* event = nullptr;
  HORO_TRY(status(plugin_.record(device, stream, &event)));
  return std::make_shared<const Event>(plugin_, event);
}

Result<Exported> Devices::allocate(int device, uint64_t bytes) {
  Exported made;
  void* memory = nullptr;
  HORO_TRY(status(plugin_.allocate(device, bytes, &memory)));
  if (Status exported = status(plugin_.export_memory(device, memory, made.handle.data())); !exported.ok()) {
    plugin_.free(device, memory);
    return exported;
  }
  made.base = static_cast<std::byte*>(memory);
  made.bytes = bytes;
  std::lock_guard lock(mutex_);
  made.id = ++ids_;
  allocations_[made.base] = Allocation{device, made};
  return made;
}

void Devices::free(const std::byte* memory) {
  std::unique_lock lock(mutex_);
  auto found = allocations_.find(memory);
  if (found == allocations_.end()) return;
  const Allocation allocation = found->second;
  allocations_.erase(found);
  lock.unlock();
  plugin_.free(allocation.device, allocation.memory.base);
}

std::optional<Exported> Devices::find_exported(const std::byte* memory, uint64_t bytes) const {
  std::lock_guard lock(mutex_);
  auto after = allocations_.upper_bound(memory);
  if (after == allocations_.begin()) return std::nullopt;
  const Exported& found = std::prev(after)->second.memory;
  const auto offset = static_cast<uint64_t>(memory - found.base);
  if (offset > found.bytes || bytes > found.bytes - offset) return std::nullopt;
  return found;
}

Status Devices::cast(int device, void* stream, const horo_device_cast_terms& terms,
                     std::span<const horo_device_cast> arrays) const {
  if (arrays.empty()) return {};
  return status(plugin_.cast(device, stream, &terms, arrays.data(), arrays.size()));
}

Result<std::byte*> Devices::import(int device, const Handle& handle) const {
  void* memory = nullptr;
  HORO_TRY(status(plugin_.import_memory(device, handle.data(), &memory)));
  return static_cast<std::byte*>(memory);
}

Result<std::byte*> Devices::allocate_host(int device, uint64_t bytes) const {
  void* memory = nullptr;
  HORO_TRY(status(plugin_.allocate_host(device, bytes, &memory)));
  return static_cast<std::byte*>(memory);
}

Result<Identity> Devices::identify(int device) const {
  Identity identity{};
  HORO_TRY(status(plugin_.identify(device, &identity)));
  return identity;
}

Result<int> Devices::fabric_version() const {
  if (plugin_.fabric_version == nullptr) {
    return Status(Code::kNotFound, text(plugin_.name, ": no library operates between these devices"));
  }
  int version = 0;
  HORO_TRY(status(plugin_.fabric_version(&version)));
  return version;
}

Result<FabricId> Devices::fabric_id() const {
  FabricId id{};
  HORO_TRY(status(plugin_.fabric_id(id.data())));
  return id;
}

Result<bool> Devices::when_pending(int code) const {
  if (code == HORO_DEVICE_PENDING) return false;
  HORO_TRY(status(code));
  return true;
}

Result<std::unique_ptr<Communicator>> Communicator::open(const Devices& devices, int device, const FabricId& id,
                                                         int members, int member) {
  void* made = nullptr;
  HORO_TRY(devices.when_pending(devices.table().open_communicator(device, id.data(), members, member, &made)).status());
  return std::unique_ptr<Communicator>(new Communicator(devices, made));
}

Result<bool> Communicator::poll() const {
  return devices_.when_pending(devices_.table().poll_communicator(communicator_));
}

void Communicator::end(bool abort) {
  if (communicator_ != nullptr) devices_.table().close_communicator(communicator_, abort ? 1 : 0);
  communicator_ = nullptr;
}

Result<std::unique_ptr<Queue>> Queue::open(const Devices& devices, int device) {
  void* queue = nullptr;
  HORO_TRY(devices.status(devices.table().open_queue(device, &queue)));
  return std::unique_ptr<Queue>(new Queue(devices, device, queue));
}

Queue::~Queue() { devices_.table().close_queue(queue_); }

Status Queue::wait(const EventHandle& event) {
  if (event == nullptr) return {};
  HORO_ASSIGN(const bool happened, devices_.has_happened(event));
  if (happened) return {};
  while (awaited_.size() >= kManyAwaited) {
    HORO_ASSIGN(const bool gone, devices_.has_happened(awaited_.front()));
    if (!gone) break;
    awaited_.pop_front();
  }
  empty_ = false;
  HORO_TRY(devices_.status(devices_.table().queue_wait(queue_, event->get())));
  awaited_.push_back(event);
  return {};
}

Status Queue::copy(std::span<const horo_device_copy> pieces) {
  if (pieces.empty()) return {};
  empty_ = false;
  return devices_.status(devices_.table().queue_copy(queue_, pieces.data(), pieces.size()));
}

Status Queue::copy(std::byte* to, const std::byte* from, uint64_t bytes) {
  if (bytes == 0 || to == from) return {};
  const horo_device_copy piece{to, from, bytes};
  return copy(std::span(&piece, 1));
}

Status Queue::transfer(std::byte* to, const std::byte* from, uint64_t bytes) {
  if (bytes == 0) return {};
  empty_ = false;
  return devices_.status(devices_.table().queue_transfer(queue_, to, from, bytes));
}

Status Queue::reduce(const horo_device_reduction& reduction) {
  if (reduction.count == 0) return {};
  empty_ = false;
  return devices_.status(devices_.table().queue_reduce(queue_, &reduction));
}

Status Queue::finish(bool may_spin) {
  if (empty_) return {};
  empty_ = true;
  Status status = devices_.status(devices_.table().queue_finish(queue_, may_spin ? 1 : 0));
  awaited_.clear();
  return status;
}

Result<bool> Queue::collective(const Communicator& communicator, const horo_device_collective& collective) {
  empty_ = false;
  return devices_.when_pending(devices_.table().queue_collective(queue_, communicator.get(), &collective));
}

Result<EventHandle> Queue::record() const {
  void* event = nullptr;
  HORO_TRY(devices_.status(devices_.table().queue_record(queue_, &event)));
  return std::make_shared<const Event>(devices_.table(), event);
}

Status Queue::signal(uint32_t* word, uint32_t value) {
  empty_ = false;
  return devices_.status(devices_.table().queue_signal(queue_, word, value));
}

Status Queue::hold(const uint32_t* word, uint32_t value) {
  empty_ = false;
  return devices_.status(devices_.table().queue_hold(queue_, word, value));
}

Status Queue::guard(const uint32_t* word) const { return devices_.status(devices_.table().queue_guard(queue_, word)); }

std::unique_ptr<HoldPermit> HoldPermit::take(const Devices& devices, int device) {
  if (devices.table().may_hold(device) == 0) return nullptr;
  return std::unique_ptr<HoldPermit>(new HoldPermit(devices, device));
}

Result<bool> Queue::poll() {
  Result<bool> ran = devices_.when_pending(devices_.table().queue_poll(queue_));
  if (ran.ok() && *ran) awaited_.clear();
  return ran;
}

}  // namespace horo::device
