#include "arrivals.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "horo/api/ddp.h"

namespace nb = nanobind;

namespace horo::python {

namespace {

constexpr uint64_t kLongCopy = 1 << 20;  // Bytes: other threads of Python run meanwhile.

nb::object name(const char* text) { return nb::steal(PyUnicode_InternFromString(text)); }

nb::object get(nb::handle of, const nb::object& what) {
  PyObject* value = PyObject_GetAttr(of.ptr(), what.ptr());
  if (value == nullptr) nb::raise_python_error();
  return nb::steal(value);
}

bool same_layout(const TensorView& one, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  if (!std::equal(one.shape.begin(), one.shape.end(), shape.begin(), shape.end())) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1 && one.strides[i] != strides[i]) return false;
  }
  return true;
}

}  // namespace

void Slot::set_parcel(nb::object parcel) {
  counts_ = parcel.is_none() ? nullptr : nb::cast<Parcel*>(parcel);
  parcel_ = std::move(parcel);
}

void Slot::set_native(nb::object native) {
  reduction_ = native.is_none() ? nullptr : nb::cast<Reduction*>(native);
  reduced_bytes_ = reduction_ == nullptr ? 0 : reduction_->bytes();
  native_ = std::move(native);
}

void Slot::set_view(nb::object view) {
  TensorView found;
  place_ = nullptr;
  moved_ = false;
  if (!view.is_none() && nb::inst_ptr<Arrivals>(arrivals)->read(view, found)) {
    place_ = found.data;
    place_bytes_ = found.bytes;
    dtype_ = found.dtype;
    shape_.assign(found.shape.begin(), found.shape.end());
    strides_.assign(found.strides.begin(), found.strides.end());
  }
  view_ = std::move(view);
}

bool Slot::copy_in(const TensorView& gradient) const {
  if (place_ == nullptr || gradient.dtype != dtype_ || !same_layout(gradient, shape_, strides_)) return false;
  if (gradient.bytes < kLongCopy) {
    std::memcpy(place_, gradient.data, gradient.bytes);
    return true;
  }
  const nb::gil_scoped_release released;  // Whoever calls has the gradient, and the hook has this.
  horo_pack(place_, gradient.data, gradient.bytes);
  return true;
}

int Slot::traverse(visitproc visit, void* arg) const {
  for (const nb::object* one : {&param, &arrivals, &gradients, &parcel_, &native_, &view_}) Py_VISIT(one->ptr());
  return 0;
}

void Slot::clear() {
  for (nb::object* one : {&param, &arrivals, &gradients, &parcel_, &native_, &view_}) *one = nb::none();
  counts_ = nullptr;
  reduction_ = nullptr;
  place_ = nullptr;
}

Arrivals::Arrivals(nb::object world, nb::object reader, nb::object current_pass, uint64_t enough)
    : world_(std::move(world)),
      reader_object_(std::move(reader)),
      current_pass_(std::move(current_pass)),
      reader_(nb::cast<TensorReader&>(reader_object_)),
      enough_(enough),
      runtime_name_(name("_runtime")),
      era_name_(name("_era")),
      grad_name_(name("grad")),
      requires_grad_name_(name("requires_grad")) {}

bool Arrivals::is_usual(const Slot& slot) const {
  if (runtime.is_none() || slot.sent || slot.left <= 0) return false;
  // A job that goes on without some ranks has the runtime that it had, in another era.
  return get(world_, runtime_name_).is(runtime) && get(world_, era_name_).is(era);
}

// Nothing has changed when all is left to Python. What was handed in before as it lay is looked at once, in hand_in().
Arrivals::Rest Arrivals::take(nb::handle self, Slot& slot) {
  if (!is_usual(slot)) return Rest::kAll;
  const bool alone = slot.view().is_none() && slot.counts() == nullptr;
  if (alone && slot.reduction() != nullptr) return count(self, slot, slot.reduced_bytes());
  if (slot.moves_later()) return count(self, slot, slot.place_bytes());
  const nb::object gradient = get(slot.param, grad_name_);
  TensorView found;
  if (!reader_.read(gradient, found) || get(gradient, requires_grad_name_).ptr() != Py_False) return Rest::kAll;
  if (!slot.view().is_none() && !gradient.is(slot.view()) && !move(slot, found)) return Rest::kAll;
  return count(self, slot, found.bytes);
}

bool Arrivals::move(Slot& slot, const TensorView& gradient) {
  slot.set_moved(slot.copy_in(gradient));
  if (!slot.moved()) return false;
  if (PyObject_SetAttr(slot.param.ptr(), grad_name_.ptr(), slot.view().ptr()) != 0) nb::raise_python_error();
  return true;
}

nb::list Arrivals::move_in(const nb::list& slots) {
  nb::list others;
  for (nb::handle object : slots) {
    Slot& slot = nb::cast<Slot&>(object);
    if (!slot.sent) continue;
    const nb::object gradient = get(slot.param, grad_name_);
    if (gradient.is(slot.view())) continue;
    TensorView found;
    const bool plain = reader_.read(gradient, found) && get(gradient, requires_grad_name_).ptr() == Py_False;
    if (!plain || !move(slot, found)) {
      slot.set_moved(false);
      others.append(object);
    }
  }
  return others;
}

Arrivals::Rest Arrivals::count(nb::handle self, Slot& slot, uint64_t bytes) {
  synchronized = false;
  if (--slot.left > 0) return Rest::kNone;
  slot.sent = true;
  ++sent;
  if (slot.counts() != nullptr) return --slot.counts()->missing == 0 ? Rest::kSend : Rest::kNone;
  return add(nb::borrow(self), bytes) ? Rest::kFlush : Rest::kNone;
}

void Arrivals::arrived(nb::handle self, Slot& slot) {
  const Rest rest = take(self, slot);
  nb::object gradients;
  if (rest != Rest::kNone) {
    gradients = slot.gradients();
    if (gradients.is_none()) return;
    if (rest == Rest::kAll) {
      gradients.attr("arrived")(self);
      return;
    }
    rest == Rest::kFlush ? gradients.attr("flush")() : slot.parcel().attr("send")(gradients);
  }
  if (current_pass_.number() == pass) return;
  if (!gradients.is_valid()) gradients = slot.gradients();
  if (!gradients.is_none()) gradients.attr("watch_end")();
}

bool Arrivals::add(nb::object slot, uint64_t bytes) {
  pending_.push_back(std::move(slot));
  pending_bytes_ += bytes;
  return pending_bytes_ >= enough_;
}

nb::list Arrivals::take_pending() {
  nb::list slots;
  for (const nb::object& slot : pending_) slots.append(slot);
  pending_.clear();
  pending_bytes_ = 0;
  return slots;
}

void Arrivals::reset(const nb::dict& slots, int passes) {
  synchronized = false;
  sent = 0;
  pending_.clear();
  pending_bytes_ = 0;
  for (auto [param, object] : slots) {
    Slot& slot = nb::cast<Slot&>(object);
    slot.left = passes;
    slot.sent = false;
    if (slot.counts() != nullptr) slot.counts()->missing = slot.counts()->size;
  }
}

nb::object Arrivals::hand_in(const nb::list& slots, int set, bool together, bool waits) {
  nb::list memory;
  std::vector<const Reduction*> reductions;
  reductions.reserve(nb::len(slots));
  for (nb::handle object : slots) {
    const Slot& slot = nb::cast<Slot&>(object);
    nb::object gradient = get(slot.param, grad_name_);
    Reduction* reduction = slot.reduction();
    TensorView found;
    if (reduction == nullptr || !reader_.read(gradient, found) || !found.contiguous) return nb::none();
    if (get(gradient, requires_grad_name_).ptr() != Py_False) return nb::none();
    if (found.dtype != reduction->dtype ||
        !std::equal(found.shape.begin(), found.shape.end(), reduction->shape.begin(), reduction->shape.end())) {
      return nb::none();
    }
    reduction->input = reduction->output = reinterpret_cast<uintptr_t>(found.data);
    reductions.push_back(reduction);
    memory.append(std::move(gradient));
  }
  return nb::cast(reduce(nb::cast<Job&>(runtime), reductions, set, std::move(memory), together, waits));
}

}  // namespace horo::python
