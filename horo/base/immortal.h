// Values that are made at first use and never destroyed.
//
// A function's static object dies when the process calls exit(), while threads of the library may still run: a rank
// that exits with work in flight must not find its tables freed.
#pragma once

#include <new>

namespace horo {

/// static const Immortal<std::vector<int>> kList([] { return ...; });   kList->front()
template <class T>
class Immortal {
 public:
  template <class Make>
  explicit Immortal(Make make) {
    new (storage_) T(make());
  }
  Immortal(const Immortal&) = delete;
  Immortal& operator=(const Immortal&) = delete;

  const T& operator*() const { return *reinterpret_cast<const T*>(storage_); }
  const T* operator->() const { return &**this; }

 private:
  alignas(T) unsigned char storage_[sizeof(T)];
};

}  // namespace horo
