// What tests ask of the stand-in of NCCL, and see of it.
#pragma once

namespace horo::cuda::standin {

struct Behaviour {
  int refuses = -1;    ///< This member's communicator cannot be made.
  int fails_on = -1;   ///< This member's next operation fails, later.
  bool stuck = false;  ///< No operation ever ends.
};

}  // namespace horo::cuda::standin

extern "C" {
/// From now on; what was recorded is forgotten.
void horo_standin_begin(const horo::cuda::standin::Behaviour* behaviour);
/// What a member has called, a line each. Good until the thread's next call.
const char* horo_standin_calls(int member);
}
