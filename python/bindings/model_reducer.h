// A reducer and the objects of Python that it reads and sets: what happens for every gradient is done here, without
// Python code.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensor_reader.h"

#include "horo/api/ddp.hpp"

namespace horo::python {

/// What a parameter is made of; see horo_parameter.
struct ParameterForm {
  std::string name;
  int dtype = 0;
  std::vector<int64_t> shape, strides;  ///< Strides may be empty: row by row.
  int device = 0;
  bool sparse = false;
};

/// Under the interpreter's lock, except where it waits or copies much.
class ModelReducer {
 public:
  ModelReducer(nanobind::object group, nanobind::object reader, std::vector<ParameterForm> forms,
               horo_reducer_options options);
  ModelReducer(const ModelReducer&) = delete;
  ModelReducer& operator=(const ModelReducer&) = delete;
  ~ModelReducer();

  Reducer& reducer() { return *reducer_; }
  const Reducer& reducer() const { return *reducer_; }
  const nanobind::object& group() const { return group_; }
  size_t count() const { return parameters_.size(); }

  nanobind::object on_bucket = nanobind::none(), on_launched = nanobind::none(), on_odd = nanobind::none();
  void set_views(const nanobind::object& views);

  /// Waits only where an iteration was left unfinished, and once for the rebuild, which no signal interrupts.
  bool prepare_forward();
  void prepare_backward(bool synchronize, const std::vector<std::pair<size_t, uintptr_t>>& unused);
  /// What torch calls with a parameter whose gradient is complete.
  void arrived(size_t index, nanobind::handle param);
  void ready(size_t index, uintptr_t address);
  void ready_all();
  void end_backward();
  void deliver(size_t bucket, uintptr_t address);
  void fail(const std::string& why, bool follows);
  std::vector<int> finish();

  /// For the garbage collector.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Parameter {
    ParameterForm form;
    uint64_t bytes = 0;
    nanobind::object view = nanobind::none();
    nanobind::object param;  ///< From its hook to finish().
    uintptr_t address = 0;   ///< Where its gradient was.
    /// A large one, which may be reduced where it lies, until no operation is under way. Not the garbage collector's.
    nanobind::object gradient;
  };

  bool lies_as(const Parameter& parameter, const TensorView& gradient) const;
  /// Where the gradient lies, if it can be taken as it is.
  std::byte* address_of(const Parameter& parameter, nanobind::handle gradient);
  unsigned hand_in(size_t index, const void* gradient);
  void take_gradient(size_t index, nanobind::handle param);
  void follow(unsigned events);
  /// Runs `body`; what it throws ends the iteration on all ranks first.
  template <class Body>
  void ending_on_error(Body body);
  /// `follows`: because another rank failed before.
  void end(const std::string& why, bool follows) noexcept;
  void show_views(const std::vector<horo_outcome>& outcomes);
  void let_go();
  void let_go_of_gradients();

  nanobind::object group_, reader_object_;
  TensorReader& reader_;
  const bool views_;
  std::vector<Parameter> parameters_;
  const nanobind::object grad_name_;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace horo::python
