// Which gradients of a step have come. What happens for every gradient is done here, without Python code; everything
// else is left to python/horo/torch/gradients.py.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backward_pass.h"
#include "reduction.h"
#include "tensor_reader.h"

namespace horo::python {

/// Gradients that are handed in together.
struct Parcel {
  int size = 0;
  int missing = 0;  ///< So many of them have not come.
};

class Arrivals;

/// A parameter. Called as the hook that torch runs when its gradient is complete.
class Slot {
 public:
  nanobind::object param;
  nanobind::object arrivals;   ///< Arrivals.
  nanobind::object gradients;  ///< A weak reference to Python's Gradients.
  int left = 0;                ///< Backward passes until its gradient is complete.
  bool sent = false;           ///< Since the last synchronize().

  /// None: travels alone.
  const nanobind::object& parcel() const { return parcel_; }
  void set_parcel(nanobind::object parcel);
  Parcel* counts() const { return counts_; }
  /// What it is handed in as, or None.
  const nanobind::object& native() const { return native_; }
  void set_native(nanobind::object native);
  Reduction* reduction() const { return reduction_; }
  uint64_t reduced_bytes() const { return reduced_bytes_; }
  /// The place of the gradient in a bucket, or None: without gaps.
  const nanobind::object& view() const { return view_; }
  void set_view(nanobind::object view);

  /// Copies a gradient to its place if it lies in the same way; false otherwise.
  bool copy_in(const TensorView& gradient) const;
  /// Whether its gradient, if it comes as the last one did, is moved in with the others of its bucket.
  bool moves_later() const { return moved_ && place_bytes_ <= kSmall; }
  bool moved() const { return moved_; }
  void set_moved(bool moved) { moved_ = moved; }
  uint64_t place_bytes() const { return place_bytes_; }
  /// For the garbage collector.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  nanobind::object parcel_ = nanobind::none(), native_ = nanobind::none(), view_ = nanobind::none();
  Parcel* counts_ = nullptr;
  Reduction* reduction_ = nullptr;
  uint64_t reduced_bytes_ = 0;
  /// Bytes. One small gradient after the other takes half the time of each when it comes, when this code and what it
  /// uses of torch have to be fetched again; large ones are copied while they are in the cache.
  static constexpr uint64_t kSmall = 64 << 10;

  std::byte* place_ = nullptr;
  uint64_t place_bytes_ = 0;
  bool moved_ = false;
  int dtype_ = 0;
  std::vector<int64_t> shape_, strides_;
};

/// Of one optimizer. Under the interpreter's lock.
class Arrivals {
 public:
  /// `current_pass` gives the number of the backward pass that a hook runs in.
  Arrivals(nanobind::object world, nanobind::object reader, nanobind::object current_pass, uint64_t enough);

  nanobind::object runtime = nanobind::none();  ///< That operations are handed in to. None: all is left to Python.
  nanobind::object era = nanobind::none();      ///< world.era, the same object, as long as the ranks are the same.
  bool synchronized = false;
  int64_t sent = 0;
  int64_t pass = -1;  ///< Whose end is watched.

  bool read(nanobind::handle tensor, TensorView& view) { return reader_.read(tensor, view); }
  /// A hook's work. Throws what Python raises.
  void arrived(nanobind::handle self, Slot& slot);
  /// A gradient that is complete and travels alone. True when enough of them have come.
  bool add(nanobind::object slot, uint64_t bytes);
  size_t pending() const { return pending_.size(); }
  nanobind::list take_pending();
  /// The next backward pass is the first of a step.
  void reset(const nanobind::dict& slots, int passes);
  /// Moves the gradients of slots that were sent to their places in a bucket, but for those that are there already.
  /// Returns the slots whose gradient is not as the last one was: nothing has happened to those.
  nanobind::list move_in(const nanobind::list& slots);
  /// Hands in the gradients of slots as they lie; None, and nothing is handed in, if one of them lies otherwise or is
  /// none to reduce. As reduce() does it.
  nanobind::object hand_in(const nanobind::list& slots, int set, bool together, bool waits);

 private:
  /// What is left to do for a gradient that has come.
  enum class Rest : uint8_t { kAll, kNone, kFlush, kSend };
  Rest take(nanobind::handle self, Slot& slot);
  Rest count(nanobind::handle self, Slot& slot, uint64_t bytes);
  /// Of a slot in a bucket. False: it lies otherwise than its place, and nothing has happened.
  bool move(Slot& slot, const TensorView& gradient);
  bool is_usual(const Slot& slot) const;

  const nanobind::object world_, reader_object_;
  BackwardPass current_pass_;
  TensorReader& reader_;
  const uint64_t enough_;
  const nanobind::object runtime_name_, era_name_, grad_name_, requires_grad_name_;
  std::vector<nanobind::object> pending_;
  uint64_t pending_bytes_ = 0;
};

}  // namespace horo::python
