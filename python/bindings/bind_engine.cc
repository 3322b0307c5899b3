// Jobs that a program puts together itself: a store to meet at, and an engine for each rank.
#include <nanobind/ndarray.h>

#include <numeric>
#include <optional>
#include <string>

#include "bind_group.h"
#include "place.h"

#include "horo/api/door.h"

namespace nb = nanobind;

namespace horo::python {

namespace {

class MeetingStore {
 public:
  MeetingStore(const std::string& address, const std::string& job, const std::optional<nb::bytes>& key) {
    check(horo_store_serve(address.c_str(), job.c_str(), key ? key->data() : nullptr, key ? key->size() : 0, &store_));
  }
  MeetingStore(const MeetingStore&) = delete;
  MeetingStore& operator=(const MeetingStore&) = delete;
  ~MeetingStore() { close(); }

  std::string address() const { return horo_store_address(store_); }
  void ask_to_leave(int seat, const std::string& why) { check(horo_store_ask_to_leave(store_, seat, why.c_str())); }
  void newcomer_ended(int seat) { check(horo_store_newcomer_ended(store_, seat)); }
  void close() {
    const nb::gil_scoped_release release;
    horo_store_destroy(std::exchange(store_, nullptr));
  }

 private:
  horo_store* store_ = nullptr;
};

/// An engine, and whether this is still the process that it belongs to.
struct EnginePlace {
  explicit EnginePlace(const horo_engine_options& options)
      : engine(std::make_unique<Engine>(options)), keeper(std::make_shared<Keeper>()) {}
  EnginePlace(EnginePlace&&) = default;
  ~EnginePlace() {
    const nb::gil_scoped_release release;
    engine.reset();
  }

  std::unique_ptr<Engine> engine;
  std::shared_ptr<Keeper> keeper;  ///< Of the world's requests.
};

void start(EnginePlace* self, int rank, int size, std::optional<std::string> store, std::string job,
           std::optional<nb::bytes> key, std::vector<std::string> settings) {
  const Place place(rank, size, std::move(store), std::move(job), std::move(key), std::move(settings));
  const PlaceOptions options(place);
  const nb::gil_scoped_release release;
  new (self) EnginePlace(options.get());
}

OrderedGroup world_of(const nb::object& self) {
  auto& place = nb::cast<EnginePlace&>(self);
  std::vector<int> ranks(static_cast<size_t>(place.engine->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  OrderedGroup world(place.engine->world(), std::move(ranks), self, place.keeper);
  world.engine = place.engine->get();
  return world;
}

OrderedGroup group_of(const nb::object& self, std::vector<int> ranks) {
  Engine& engine = *nb::cast<EnginePlace&>(self).engine;
  OrderedGroup group = make_group(engine, std::move(ranks), self);
  group.engine = engine.get();
  return group;
}

/// Bytes of the engine, which they keep alive.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> allocate(const nb::object& self, size_t bytes) {
  auto memory = nb::cast<EnginePlace&>(self).engine->allocate<uint8_t>(bytes);
  struct Owner {
    nb::object engine;
    decltype(memory) bytes;
  };
  uint8_t* address = memory.get();
  auto owner = std::make_unique<Owner>(Owner{self, std::move(memory)});
  nb::capsule capsule(owner.get(), [](void* one) noexcept {
    auto* all = static_cast<Owner*>(one);
    all->bytes.reset();  // Before the engine may go.
    delete all;
  });
  (void)owner.release();
  return {address, {bytes}, capsule};
}

void shutdown(EnginePlace& self) {
  {
    const nb::gil_scoped_release release;
    self.engine->shutdown();
  }
  self.keeper->clear();
}

/// A function of the engine, as one of its place.
template <auto function>
constexpr auto of = [](EnginePlace& self) { return (*self.engine.*function)(); };

}  // namespace

void bind_engine(nb::module_& module) {
  nb::class_<MeetingStore>(module, "Store", "Where the ranks of a job meet. Serves until it is closed.")
      .def(nb::init<const std::string&, const std::string&, const std::optional<nb::bytes>&>(), nb::arg("address"),
           nb::arg("job"), nb::arg("key").none())
      .def_prop_ro("address", &MeetingStore::address)
      .def("ask_to_leave", &MeetingStore::ask_to_leave, nb::arg("seat"), nb::arg("why"),
           nb::call_guard<nb::gil_scoped_release>(), "Its slot is gone: it leaves when the job commits next.")
      .def("newcomer_ended", &MeetingStore::newcomer_ended, nb::arg("seat"), nb::call_guard<nb::gil_scoped_release>(),
           "A process that was to enter the job has ended: nobody waits for it.")
      .def("close", &MeetingStore::close);
  nb::class_<EnginePlace>(module, "Engine", "This process's place in a job that the program puts together itself.")
      .def("__init__", &start, nb::arg("rank"), nb::arg("size"), nb::arg("store").none(), nb::arg("job"),
           nb::arg("key").none(), nb::arg("settings"))
      .def("rank", of<&Engine::rank>)
      .def("size", of<&Engine::size>)
      .def("local_rank", of<&Engine::local_rank>)
      .def("local_size", of<&Engine::local_size>)
      .def("members", of<&Engine::members>, nb::call_guard<nb::gil_scoped_release>(), "Ranks that are left.")
      .def("world", &world_of, "The group of all ranks.")
      .def("group", &group_of, nb::arg("ranks"),
           "A group of these ranks (rising), which all of them make in the same order.")
      .def(
          "open_messages", [](EnginePlace& self) { check(horo_messages_open(self.engine->get())); },
          nb::call_guard<nb::gil_scoped_release>(),
          "Called once by all ranks, in the order of the world's operations: Group.send and receive work from then on.")
      .def("allocate", &allocate, nb::arg("bytes"), "Memory that the other ranks of this host can read.")
      .def("shutdown", &shutdown);
}

}  // namespace horo::python
