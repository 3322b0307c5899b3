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

inline constexpr BoolKnob kAsyncCompletion{
    {.name = "HORO_ASYNC_COMPLETION",
     .legacy = "HOROVOD_ENABLE_ASYNC_COMPLETION",
     .fallback = "0",
     .help = "Whether synchronize(), and operations that wait, let the current stream wait for a result on a GPU, and "
             "the thread only for the other ranks to come.",
     .test = "test_waiting::test_where_asked_for_the_stream_waits_for_results_on_a_gpu"}};

inline constexpr TextKnob kHandedKey{
    {.name = "HORO_KEY",
     .help = "The job's key as 64 hexadecimal digits, for launchers that have nothing but the environment; Python's "
             "init() takes it out of there. HORO_KEY_FILE and HORO_KEY_FD keep it from what is started meanwhile.",
     .test = "test_meeting::test_a_key_in_the_environment_is_taken_out_of_it"}};

inline constexpr BoolKnob kTrustSpark{
    {.name = "HORO_TRUST_SPARK",
     .fallback = "0",
     .help = "Whether horo.spark.run() hands code and the job's key to a Spark that does not authenticate connections.",
     .test = "test_spark::test_a_cluster_that_authenticates_nobody_is_refused_unless_it_is_trusted"}};

inline constexpr IntegerKnob kElasticTimeout{
    {.name = "HORO_ELASTIC_TIMEOUT",
     .legacy = "HOROVOD_ELASTIC_TIMEOUT",
     .fallback = "600",
     .help =
         "Seconds within which all ranks that are left must come to go on after a loss (elastic.run); for which they "
         "wait for others where fewer than HORO_ELASTIC_MIN_RANKS are left; and for which a process that comes later "
         "waits until the job takes it in.",
     .minimum = 1,
     .test = "test_elastic_job::test_a_rank_that_does_not_come_is_waited_for_as_long_as_told"}};

inline constexpr IntegerKnob kElasticMinRanks{
    {.name = "HORO_ELASTIC_MIN_RANKS",
     .fallback = "1",
     .help = "With fewer ranks left than this an elastic job waits for others.",
     .minimum = 1,
     .test = "test_elastic_job::test_the_job_ends_when_too_few_are_left"}};

inline constexpr IntegerKnob kElasticMaxRanks{
    {.name = "HORO_ELASTIC_MAX_RANKS",
     .fallback = "0",
     .help = "An elastic job does not grow beyond this; 0: without limit.",
     .minimum = 0,
     .test = "test_elastic_growth::test_a_job_does_not_grow_beyond_its_limit"}};

inline constexpr IntegerKnob kResetLimit{
    {.name = "HORO_RESET_LIMIT",
     .legacy = "HOROVOD_RESET_LIMIT",
     .fallback = "0",
     .help = "How often training may begin anew from its last commit (elastic.run); 0: without limit.",
     .minimum = 0,
     .test = "test_elastic::test_the_number_of_resets_can_be_limited"}};

inline constexpr const Knob* kPythonKnobs[] = {&kShadowHorovod,   &kWaitInBackward,  &kAsyncCompletion,
                                               &kHandedKey,       &kTrustSpark,      &kElasticTimeout,
                                               &kElasticMinRanks, &kElasticMaxRanks, &kResetLimit};

}  // namespace horo::api
