#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bindings.h"

#include "horo/api/door.h"

namespace nb = nanobind;

namespace horo::python {

namespace {

struct Close {
  void operator()(horo_door* door) const { horo_door_close(door); }
};
using Door = std::unique_ptr<horo_door, Close>;

Door open(const Job& job) {
  horo_door* door = nullptr;
  check(horo_door_open(job.runtime.get(), &door));
  return Door(door);
}

std::pair<std::vector<int>, std::vector<int>> look(horo_door* door) {
  horo_changes found = HORO_CHANGES_INIT;
  check(horo_door_look(door, &found));
  return {{found.newcomers, found.newcomers + found.newcomer_count},
          {found.leavers, found.leavers + found.leaver_count}};
}

std::string begin(horo_door* door) {
  char name[32] = {};
  check(horo_door_begin(door, name));
  return name;
}

/// What Python holds; nothing once it is closed.
struct Opened {
  Door door;
};

}  // namespace

void bind_door(nb::module_& module) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Opened>(module, "Door", "Where processes wait to enter the job; for rank 0.")
      .def(
          "__init__", [](Opened* self, const Job& job) { new (self) Opened{open(job)}; }, nb::arg("runtime"),
          Unlocked())
      .def(
          "news", [](Opened& self, double timeout) { return horo_door_news(self.door.get(), timeout); },
          nb::arg("timeout"), Unlocked())
      .def(
          "look", [](Opened& self) { return look(self.door.get()); }, Unlocked(),
          "Seats of those who wait, and of those who are to leave.")
      .def(
          "begin", [](Opened& self) { return begin(self.door.get()); }, Unlocked(), "The name of a new generation.")
      .def(
          "admit",
          [](Opened& self, const std::string& name, int size, size_t count) {
            check(horo_door_admit(self.door.get(), name.c_str(), size, count));
          },
          nb::arg("generation"), nb::arg("size"), nb::arg("count"), Unlocked(),
          "Lets in the first `count` of those who were seen last: the last ranks of `size`.")
      .def(
          "close", [](Opened& self) { self.door.reset(); }, Unlocked());
}

}  // namespace horo::python
