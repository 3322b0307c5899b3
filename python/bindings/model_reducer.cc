#include "model_reducer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "bind_group.h"

namespace nb = nanobind;

namespace horo::python {

namespace {

/// Below this a copy is over before another thread has the interpreter's lock, and no gradient stays where it is.
constexpr uint64_t kMuch = 1 << 20;

nb::object get(nb::handle of, const nb::object& what) {
  PyObject* value = PyObject_GetAttr(of.ptr(), what.ptr());
  if (value == nullptr) nb::raise_python_error();
  return nb::steal(value);
}

std::unique_ptr<Reducer> make(const Group& group, const std::vector<ParameterForm>& forms,
                              horo_reducer_options options) {
  std::vector<horo_parameter> parameters;
  for (const ParameterForm& form : forms) {
    horo_parameter one = HORO_PARAMETER_INIT;
    one.name = form.name.c_str();
    one.dtype = static_cast<horo_dtype>(form.dtype);
    one.shape = form.shape.data();
    one.dimensions = form.shape.size();
    one.strides = form.strides.empty() ? nullptr : form.strides.data();
    one.device = form.device;
    one.sparse = form.sparse ? 1 : 0;
    parameters.push_back(one);
  }
  options.parameters = parameters.data();
  options.parameter_count = parameters.size();
  const nb::gil_scoped_release release;
  return std::make_unique<Reducer>(group, options);
}

/// Waits without the interpreter's lock; Ctrl-C ends it, and what was waited for goes on.
template <class Wait>
void interruptibly(Wait wait) {
  while (true) {
    horo_status* status = nullptr;
    {
      const nb::gil_scoped_release release;
      status = wait();
    }
    if (horo_status_code(status) != HORO_INTERRUPTED) return check(status);
    horo_status_free(status);
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
  }
}

/// What the others are told. Of several ranks' reasons one that did not follow from another is shown.
horo_code failure_code(bool follows) { return follows ? HORO_MISMATCH : HORO_INVALID_ARGUMENT; }

std::vector<int64_t> row_by_row(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0; step *= std::max<int64_t>(shape[i], 1)) strides[i] = step;
  return strides;
}

}  // namespace

ModelReducer::ModelReducer(nb::object group, nb::object reader, std::vector<ParameterForm> forms,
                           horo_reducer_options options)
    : group_(std::move(group)),
      reader_object_(std::move(reader)),
      reader_(nb::cast<TensorReader&>(reader_object_)),
      views_(options.views != 0),
      grad_name_(nb::steal(PyUnicode_InternFromString("grad"))),
      reducer_(make(nb::cast<OrderedGroup&>(group_).group, forms, options)) {
  for (ParameterForm& form : forms) {
    Parameter parameter;
    parameter.bytes = horo_dtype_size(static_cast<horo_dtype>(form.dtype));
    for (int64_t extent : form.shape) parameter.bytes *= static_cast<uint64_t>(extent);
    if (form.strides.empty()) form.strides = row_by_row(form.shape);
    parameter.form = std::move(form);
    parameters_.push_back(std::move(parameter));
  }
}

ModelReducer::~ModelReducer() {
  const nb::gil_scoped_release release;
  reducer_.reset();
}

void ModelReducer::set_views(const nb::object& views) {
  if (!views.is_none() && nb::len(views) != count()) throw nb::value_error("one view for each parameter");
  for (size_t i = 0; i < count(); ++i) {
    parameters_[i].view = views.is_none() ? nb::object(nb::none()) : nb::object(views[i]);
  }
}

bool ModelReducer::prepare_forward() {
  let_go();
  int rebuilt = 0;
  interruptibly([&] { return horo_reducer_prepare_forward(reducer_->get(), &rebuilt); });
  let_go_of_gradients();
  return rebuilt == 1;
}

void ModelReducer::prepare_backward(bool synchronize, const std::vector<std::pair<size_t, uintptr_t>>& unused) {
  let_go();
  std::vector<size_t> numbers;
  std::vector<const void*> gradients;
  for (const auto& [number, address] : unused) {
    if (number >= count()) throw nb::index_error("there is no such parameter");
    numbers.push_back(number);
    gradients.push_back(reinterpret_cast<const void*>(address));
    parameters_[number].address = address;
  }
  {
    const nb::gil_scoped_release release;
    check(horo_reducer_prepare_backward(reducer_->get(), synchronize ? 1 : 0, numbers.data(), gradients.data(),
                                        numbers.size()));
  }
  let_go_of_gradients();
}

bool ModelReducer::lies_as(const Parameter& parameter, const TensorView& gradient) const {
  const auto& [name, dtype, shape, strides, device, sparse] = parameter.form;
  if (gradient.dtype != dtype ||
      !std::equal(gradient.shape.begin(), gradient.shape.end(), shape.begin(), shape.end())) {
    return false;
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1 && gradient.strides[i] != strides[i]) return false;
  }
  return true;
}

std::byte* ModelReducer::address_of(const Parameter& parameter, nb::handle gradient) {
  TensorView found;
  return reader_.read(gradient, found) && lies_as(parameter, found) ? found.data : nullptr;
}

unsigned ModelReducer::hand_in(size_t index, const void* gradient) {
  if (index >= count()) throw nb::index_error("there is no such parameter");
  std::optional<nb::gil_scoped_release> release;
  if (parameters_[index].bytes >= kMuch) release.emplace();
  return reducer_->ready(index, gradient);
}

void ModelReducer::take_gradient(size_t index, nb::handle param) {
  Parameter& parameter = parameters_[index];
  const nb::object gradient = get(param, grad_name_);
  parameter.param = nb::borrow(param);
  if (parameter.form.sparse) {
    follow(hand_in(index, gradient.is_none() ? nullptr : &parameter));  // Not read: only that there is one counts.
    return;
  }
  const std::byte* address = gradient.is_none() ? nullptr : address_of(parameter, gradient);
  if (address == nullptr && !gradient.is_none() && parameter.bytes > 0) {
    if (on_odd.is_none()) throw nb::type_error("a gradient does not lie as its parameter does");
    on_odd(index, param);
    return;
  }
  if (!views_ && parameter.bytes >= kMuch) parameter.gradient = gradient;
  const unsigned events = hand_in(index, address);
  const bool moves = views_ && (events & HORO_READY_TAKEN) != 0 && !parameter.view.is_none();
  if (moves && !gradient.is(parameter.view) &&
      PyObject_SetAttr(param.ptr(), grad_name_.ptr(), parameter.view.ptr()) != 0) {
    nb::raise_python_error();
  }
  follow(events);
}

void ModelReducer::arrived(size_t index, nb::handle param) {
  ending_on_error([&] { take_gradient(index, param); });
}

void ModelReducer::ready(size_t index, uintptr_t address) {
  ending_on_error([&] {
    if (index < count()) parameters_[index].address = address;
    follow(hand_in(index, reinterpret_cast<const void*>(address)));
  });
}

void ModelReducer::ready_all() {
  ending_on_error([&] { follow(reducer_->ready_all()); });
}

void ModelReducer::end_backward() {
  ending_on_error([&] { follow(reducer_->end_backward()); });
}

void ModelReducer::follow(unsigned events) {
  while ((events & HORO_READY_TAKE) != 0) {
    int64_t bucket = -1;
    interruptibly([&] { return horo_reducer_take(reducer_->get(), &bucket); });
    if (bucket < 0) break;
    if (on_bucket.is_none()) throw nb::type_error("a bucket is the caller's, but on_bucket() was not called");
    on_bucket(bucket);
    events = (events & ~unsigned{HORO_READY_TAKE}) | reducer_->launched(static_cast<size_t>(bucket));
  }
  if ((events & HORO_READY_ALL_LAUNCHED) != 0 && !on_launched.is_none()) on_launched();
}

void ModelReducer::deliver(size_t bucket, uintptr_t address) {
  const nb::gil_scoped_release release;
  reducer_->deliver(bucket, reinterpret_cast<const void*>(address));
}

void ModelReducer::fail(const std::string& why, bool follows) { reducer_->fail(why, failure_code(follows)); }

template <class Body>
void ModelReducer::ending_on_error(Body body) {
  try {
    body();
  } catch (const nb::python_error& error) {
    end(error.what(), false);
    throw;
  } catch (const Error& error) {
    end(error.what(), error.code() == HORO_MISMATCH);
    throw;
  } catch (const std::exception& error) {
    end(error.what(), false);
    throw;
  }
}

// Others wait for what this rank will not give. A signal ends the wait: they are told by the next call then.
void ModelReducer::end(const std::string& why, bool follows) noexcept {
  const nb::gil_scoped_release release;
  horo_status* status = horo_reducer_fail(reducer_->get(), failure_code(follows), why.c_str());
  const bool under_way = status == nullptr;
  horo_status_free(status);
  if (under_way) horo_status_free(horo_reducer_finish(reducer_->get(), -1, nullptr, nullptr));
}

std::vector<int> ModelReducer::finish() {
  end_backward();
  std::vector<void*> outputs(count(), nullptr);
  for (size_t i = 0; i < count() && !views_; ++i) {
    Parameter& parameter = parameters_[i];
    outputs[i] = parameter.param.is_valid() ? address_of(parameter, get(parameter.param, grad_name_))
                                            : reinterpret_cast<void*>(parameter.address);
  }
  std::vector<horo_outcome> outcomes(count(), HORO_REDUCED);
  while (true) {
    horo_status* status = nullptr;
    {
      const nb::gil_scoped_release release;
      status = horo_reducer_finish(reducer_->get(), 1, outputs.data(), outcomes.data());
    }
    const horo_code code = horo_status_code(status);
    if (code != HORO_TIMEOUT && code != HORO_INTERRUPTED) {
      if (status == nullptr && views_) show_views(outcomes);
      let_go();
      let_go_of_gradients();
      check(status);
      return {outcomes.begin(), outcomes.end()};
    }
    horo_status_free(status);
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
  }
}

// Where the hook could not: the gradient was packed at the end, or lay otherwise.
void ModelReducer::show_views(const std::vector<horo_outcome>& outcomes) {
  for (size_t i = 0; i < count(); ++i) {
    const Parameter& parameter = parameters_[i];
    if (outcomes[i] != HORO_REDUCED || !parameter.param.is_valid() || parameter.view.is_none()) continue;
    if (get(parameter.param, grad_name_).is(parameter.view)) continue;
    if (PyObject_SetAttr(parameter.param.ptr(), grad_name_.ptr(), parameter.view.ptr()) != 0) nb::raise_python_error();
  }
}

void ModelReducer::let_go() {
  for (Parameter& parameter : parameters_) {
    parameter.param.reset();
    parameter.address = 0;
  }
}

void ModelReducer::let_go_of_gradients() {
  for (Parameter& parameter : parameters_) parameter.gradient.reset();
}

int ModelReducer::traverse(visitproc visit, void* arg) const {
  for (const nb::object* one : {&on_bucket, &on_launched, &on_odd, &group_, &reader_object_}) Py_VISIT(one->ptr());
  for (const Parameter& parameter : parameters_) {
    Py_VISIT(parameter.view.ptr());
    Py_VISIT(parameter.param.ptr());
  }
  return 0;
}

void ModelReducer::clear() {
  on_bucket = on_launched = on_odd = nb::none();
  for (Parameter& parameter : parameters_) {
    parameter.view = nb::none();
    parameter.param.reset();
  }
}

}  // namespace horo::python
