// One execution of a collective operation of a graph.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/tensorflow/status.h"

#include "horo/api/horo.h"

namespace horo::tensorflow {

/// What the attributes of a node say.
struct Collective {
  const Api* api = nullptr;
  horo_kind kind = HORO_ALLREDUCE;
  std::string name;
  std::string path;      ///< Of the calls by which the node has come into its graph.
  bool at_call = false;  ///< It is a part of the name.
  int64_t place = 0;     ///< In the token: what number this operation has of those with its name.
  bool grouped = false;
  horo_reduce_op reduction = HORO_SUM;
  int root = 0;
  int set = 0;
  double prescale = 1;
  double postscale = 1;
};

/// The calls of functions by which a node has come into its graph, "PartitionedCall_1/" say, out of the node's name
/// there; "" if it was in this graph from the beginning.
std::string calls_in(std::string_view node);

/// Added to numbers that are the same in all calls of a function. The path of calls is a part of these names, too.
constexpr int32_t kByPath = 1 << 20;

/// The library's number, or -1.
int dtype_of(TF_DataType type);

/// Owns itself from start() on: it dies when it has run `done`, on the thread that finishes last, which is one of
/// TensorFlow's or one of the library's. Inputs and outputs live until then.
class Call {
 public:
  static void start(const Collective& collective, TF_OpKernelContext* context, std::function<void()> done);

 private:
  struct Slot {
    Call* call = nullptr;
    int index = 0;
    TF_DataType type = 0;
    horo_dtype dtype = HORO_BYTE;
    std::string name;
    std::vector<int64_t> shape;
    TF_Tensor* input = nullptr;  ///< Null where the output has taken its place.
    TF_Tensor* output = nullptr;
  };

  Call(const Collective& collective, TF_OpKernelContext* context, std::function<void()> done);
  ~Call();

  std::string name_here();
  /// Of this operation among those that have its name; they are written in functions that are called several times.
  int32_t number();
  bool take_inputs();
  bool take(Slot& slot);
  bool take_splits();
  void* allocate(Slot& slot, const int64_t* shape, size_t dimensions);
  static void* allocate_slot(void* slot, const int64_t* shape, size_t dimensions);
  void hand_in();
  horo_tensor describe(Slot& slot);
  static void finished(void* call, const horo_status* status);
  /// Called when tensors were handed in and when they are done; the second one ends this.
  void arrive();
  void end();
  void deliver_rows();
  size_t bytes() const;

  const Collective& collective_;
  const Api& api_;
  TF_OpKernelContext* const context_;
  const std::function<void()> done_;
  Outcome outcome_;
  std::vector<Slot> slots_;
  std::vector<uint64_t> splits_;
  horo_handle* handle_ = nullptr;
  std::atomic<int> arrived_ = 0;
  bool alone_ = false;  ///< Nothing else was under way when it began.
};

}  // namespace horo::tensorflow
