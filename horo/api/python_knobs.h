// Knobs that the Python package reads itself, some before this library is loaded. They stand here so that they are
// documented, checked and never taken for a misspelt name. Their tests are functions of tests/python:
// "file::test_name".
#pragma once

#include "horo/base/knob.h"

namespace horo::api {

inline constexpr BoolKnob kShadowHorovod{
    {.name = "HORO_SHADOW_HOROVOD",
     .fallback = "0",
     .help = "Whether `import horovod` means horo in Python even where Horovod itself is installed.",
     .test = "test_horovod_names::test_shadowing_puts_these_names_in_front"}};

inline constexpr BoolKnob kWaitInBackward{
    {.name = "HORO_WAIT_IN_BACKWARD",
     .fallback = "1",
     .help = "Whether a backward pass of PyTorch ends when the gradients are those of all ranks; else step() waits.",
     .test = "test_optimizer::test_without_waiting_in_backward_gradients_are_averages_after_synchronize"}};

inline constexpr const Knob* kPythonKnobs[] = {&kShadowHorovod, &kWaitInBackward};

}  // namespace horo::api
