// Where a process stands in a job that a program puts together itself.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "horo/api/horo.h"

namespace horo::python {

/// Rank, size, store, job, key, settings: horo.meeting.Place.
using Place = std::tuple<int, int, std::optional<std::string>, std::string, std::optional<nanobind::bytes>,
                         std::vector<std::string>>;

/// The same for the C API. Points into the place, which must outlive it; made under the interpreter's lock.
class PlaceOptions {
 public:
  explicit PlaceOptions(const Place& place) {
    const auto& [rank, size, store, job, key, settings] = place;
    for (const std::string& setting : settings) words_.push_back(setting.c_str());
    words_.push_back(nullptr);
    options_.rank = rank;
    options_.size = size;
    options_.store = store ? store->c_str() : nullptr;
    options_.job = job.c_str();
    options_.settings = words_.data();
    options_.key = key ? key->data() : nullptr;
    options_.key_bytes = key ? key->size() : 0;
  }
  PlaceOptions(const PlaceOptions&) = delete;
  PlaceOptions& operator=(const PlaceOptions&) = delete;

  const horo_engine_options& get() const { return options_; }

 private:
  std::vector<const char*> words_;
  horo_engine_options options_ = HORO_ENGINE_OPTIONS_INIT;
};

}  // namespace horo::python
