// What happens in a child that is forked off a process with engines.
//
// The child has none of the engine's threads, and must not keep its sockets open: with a forked data-loading worker
// alive, the death of a rank would show no end of file for as long as the worker lives. So a handler closes all of
// horo's descriptors in the child and marks its engines, which refuse every call from then on and do nothing when they
// are destroyed. Internal mappings are not inherited (MADV_DONTFORK).
#pragma once

#include <cstdint>

namespace horo::group {

class Control;

/// How many forks lie between this process and the first of its ancestors that asked: another number than before says
/// that this is a child. It costs no system call.
uint32_t forks();

void track_fork(Control& control);
void untrack_fork(Control& control);

}  // namespace horo::group
