// Every function of horo.h, door.h and observe.h with null in place of what it needs: an error, never a crash.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "horo/api/door.h"
#include "horo/api/header_testing.h"
#include "horo/api/observe.h"

namespace {

/// Empty for success, else the words; frees it.
std::string words_of(horo_status* status) {
  std::string words = status == nullptr ? "" : horo_status_message(status);
  horo_status_free(status);
  return words;
}

template <class Value>
std::string unless(Value expected, Value value) {
  return value == expected ? horo_last_error() : "an unexpected value";
}

/// Does nothing and says nothing, as free() does.
template <class Function>
std::string silent(const Function& function) {
  function();
  return "";
}

struct NullCall {
  const char* function;
  std::function<std::string()> call;
  bool complains = true;  ///< False where null is a meaningful argument.
};

std::vector<NullCall> null_calls() {
  static horo_operation operation = HORO_OPERATION_INIT;
  static horo_engine_options options = HORO_ENGINE_OPTIONS_INIT;
  static horo_request* request = nullptr;
  static horo_group* group = nullptr;
  static horo_engine* engine = nullptr;
  static horo_store* store = nullptr;
  static void* memory = nullptr;
  static float value = 0;
  static int rank = 0;
  static horo_tensor tensor = HORO_TENSOR_INIT;
  static horo_result result = HORO_RESULT_INIT;
  static horo_handle* handle = nullptr;
  static horo_memory* shared = nullptr;
  static size_t count = 0;
  static horo_operation_metrics operation_metrics;
  static horo_set_metrics set_metrics;
  return {
      {"horo_status_code", [] { return horo_status_code(nullptr) == HORO_OK ? "" : "not ok"; }, false},
      {"horo_status_message", [] { return std::string(horo_status_message(nullptr)) == "ok" ? "" : "not ok"; }, false},
      {"horo_status_lost", [] { return horo_status_lost(nullptr, nullptr, 3) == 0 ? "" : "some"; }, false},
      {"horo_status_operation", [] { return horo_status_operation(nullptr) == 0 ? "" : "one"; }, false},
      {"horo_status_contents_intact", [] { return horo_status_contents_intact(nullptr) == 1 ? "" : "no"; }, false},
      {"horo_status_free", [] { return silent([] { horo_status_free(nullptr); }); }, false},
      {"horo_last_error", [] { return horo_last_error() != nullptr ? "" : "null"; }, false},
      {"horo_version", [] { return horo_version() != nullptr ? "" : "null"; }, false},
      {"horo_code_name", [] { return horo_code_name(HORO_OK) != nullptr ? "" : "null"; }, false},
      {"horo_dtype_size", [] { return horo_dtype_size(static_cast<horo_dtype>(99)) == 0 ? "" : "some"; }, false},
      {"horo_knobs_help", [] { return horo_knobs_help() != nullptr ? "" : "null"; }, false},
      {"horo_knobs_markdown", [] { return horo_knobs_markdown() != nullptr ? "" : "null"; }, false},
      {"horo_engine_start", [] { return words_of(horo_engine_start(nullptr, &engine)); }},
      {"horo_engine_start", [] { return words_of(horo_engine_start(&options, nullptr)); }},
      {"horo_engine_shutdown", [] { return silent([] { horo_engine_shutdown(nullptr); }); }, false},
      {"horo_engine_destroy", [] { return silent([] { horo_engine_destroy(nullptr); }); }, false},
      {"horo_engine_rank", [] { return unless(-1, horo_engine_rank(nullptr)); }},
      {"horo_engine_size", [] { return unless(-1, horo_engine_size(nullptr)); }},
      {"horo_engine_local_rank", [] { return unless(-1, horo_engine_local_rank(nullptr)); }},
      {"horo_engine_local_size", [] { return unless(-1, horo_engine_local_size(nullptr)); }},
      {"horo_engine_epoch", [] { return unless(UINT64_MAX, horo_engine_epoch(nullptr)); }},
      {"horo_engine_members", [] { return unless(size_t{0}, horo_engine_members(nullptr, &rank, 1)); }},
      {"horo_engine_world", [] { return horo_engine_world(nullptr) == nullptr ? horo_last_error() : "a world"; }},
      {"horo_buffer_allocate", [] { return words_of(horo_buffer_allocate(nullptr, 10, &memory)); }},
      {"horo_buffer_free", [] { return silent([] { horo_buffer_free(nullptr, nullptr); }); }, false},
      {"horo_buffer_free",
       [] {
         horo_buffer_free(nullptr, &value);
         return std::string(horo_last_error());
       }},
      {"horo_memory_register", [] { return words_of(horo_memory_register(nullptr, &value, 4)); }},
      {"horo_memory_unregister", [] { return words_of(horo_memory_unregister(nullptr, &value)); }},
      {"horo_group_create", [] { return words_of(horo_group_create(nullptr, &rank, 1, &group)); }},
      {"horo_group_destroy", [] { return silent([] { horo_group_destroy(nullptr); }); }, false},
      {"horo_group_rank", [] { return unless(-1, horo_group_rank(nullptr)); }},
      {"horo_group_size", [] { return unless(-1, horo_group_size(nullptr)); }},
      {"horo_group_transport", [] { return *horo_group_transport(nullptr) == 0 ? horo_last_error() : "one"; }},
      {"horo_group_algorithm", [] { return *horo_group_algorithm(nullptr) == 0 ? horo_last_error() : "one"; }},
      {"horo_group_run", [] { return words_of(horo_group_run(nullptr, &operation, &value, &value)); }},
      {"horo_group_run_interruptible",
       [] { return words_of(horo_group_run_interruptible(nullptr, &operation, &value, &value, &request)); }},
      {"horo_group_run_interruptible",
       [] { return words_of(horo_group_run_interruptible(nullptr, &operation, &value, &value, nullptr)); }},
      {"horo_group_submit",
       [] { return words_of(horo_group_submit(nullptr, &operation, &value, &value, nullptr, nullptr, &request)); }},
      {"horo_request_done", [] { return unless(-1, horo_request_done(nullptr)); }},
      {"horo_request_wait", [] { return words_of(horo_request_wait(nullptr, 0)); }},
      {"horo_devices_describe", [] { return horo_devices_describe(nullptr, nullptr) != nullptr ? "" : "null"; }, false},
      {"horo_request_wait_interruptible", [] { return words_of(horo_request_wait_interruptible(nullptr, -1)); }},
      {"horo_request_destroy", [] { return silent([] { horo_request_destroy(nullptr); }); }, false},
      {"horo_allreduce", [] { return words_of(horo_allreduce(nullptr, &value, &value, 1, HORO_F32, HORO_SUM)); }},
      {"horo_broadcast", [] { return words_of(horo_broadcast(nullptr, &value, 1, HORO_F32, 0)); }},
      {"horo_allgather", [] { return words_of(horo_allgather(nullptr, &value, &value, 1, HORO_F32)); }},
      {"horo_reducescatter",
       [] { return words_of(horo_reducescatter(nullptr, &value, &value, 1, HORO_F32, HORO_SUM)); }},
      {"horo_alltoall", [] { return words_of(horo_alltoall(nullptr, &value, &value, 1, HORO_F32)); }},
      {"horo_barrier", [] { return words_of(horo_barrier(nullptr)); }},
      {"horo_runtime_start", [] { return words_of(horo_runtime_start(nullptr, nullptr)); }},
      {"horo_runtime_shutdown", [] { return silent([] { horo_runtime_shutdown(nullptr); }); }, false},
      {"horo_runtime_destroy", [] { return silent([] { horo_runtime_destroy(nullptr); }); }, false},
      {"horo_runtime_rank", [] { return unless(-1, horo_runtime_rank(nullptr)); }},
      {"horo_runtime_size", [] { return unless(-1, horo_runtime_size(nullptr)); }},
      {"horo_runtime_local_rank", [] { return unless(-1, horo_runtime_local_rank(nullptr)); }},
      {"horo_runtime_local_size", [] { return unless(-1, horo_runtime_local_size(nullptr)); }},
      {"horo_runtime_cross_rank", [] { return unless(-1, horo_runtime_cross_rank(nullptr)); }},
      {"horo_runtime_cross_size", [] { return unless(-1, horo_runtime_cross_size(nullptr)); }},
      {"horo_runtime_is_homogeneous", [] { return unless(-1, horo_runtime_is_homogeneous(nullptr)); }},
      {"horo_runtime_run", [] { return words_of(horo_runtime_run(nullptr, 0, &tensor, 1, &handle)); }},
      {"horo_runtime_submit_each",
       [] { return words_of(horo_runtime_submit_each(nullptr, 0, &tensor, 1, 0, &handle)); }},
      {"horo_runtime_run_for", [] { return words_of(horo_runtime_run_for(nullptr, 0, &tensor, 1, 1.0, &handle)); }},
      {"horo_runtime_start_timeline", [] { return words_of(horo_runtime_start_timeline(nullptr, "t", 0)); }},
      {"horo_runtime_operation_metrics",
       [] { return words_of(horo_runtime_operation_metrics(nullptr, 0, HORO_ALLREDUCE, &operation_metrics)); }},
      {"horo_runtime_set_metrics", [] { return words_of(horo_runtime_set_metrics(nullptr, 0, &set_metrics)); }},
      {"horo_runtime_metrics_text", [] { return unless(size_t{0}, horo_runtime_metrics_text(nullptr, nullptr, 0)); }},
      {"horo_runtime_stop_timeline", [] { return words_of(horo_runtime_stop_timeline(nullptr)); }},
      {"horo_runtime_submit",
       [] { return words_of(horo_runtime_submit(nullptr, 0, &tensor, 1, nullptr, nullptr, &handle)); }},
      {"horo_runtime_epoch", [] { return unless(uint64_t{0}, horo_runtime_epoch(nullptr)); }},
      {"horo_runtime_reform", [] { return words_of(horo_runtime_reform(nullptr, 0)); }},
      {"horo_runtime_publish", [] { return silent([] { horo_runtime_publish(nullptr); }); }, false},
      {"horo_runtime_acquire", [] { return horo_runtime_acquire() == nullptr ? "" : "one"; }, false},
      {"horo_runtime_release", [] { return silent([] { horo_runtime_release(nullptr); }); }, false},
      {"horo_runtime_join", [] { return words_of(horo_runtime_join(nullptr, 0, &handle)); }},
      {"horo_handle_done", [] { return unless(-1, horo_handle_done(nullptr)); }},
      {"horo_handle_wait", [] { return words_of(horo_handle_wait(nullptr, 0)); }},
      {"horo_handle_answer", [] { return unless(int64_t{-1}, horo_handle_answer(nullptr)); }},
      {"horo_handle_result", [] { return words_of(horo_handle_result(nullptr, 0, &result)); }},
      {"horo_handle_destroy", [] { return silent([] { horo_handle_destroy(nullptr); }); }, false},
      {"horo_runtime_allocate", [] { return words_of(horo_runtime_allocate(nullptr, 1, &shared)); }},
      {"horo_memory_address", [] { return unless<void*>(nullptr, horo_memory_address(nullptr)); }},
      {"horo_memory_destroy", [] { return silent([] { horo_memory_destroy(nullptr); }); }, false},
      {"horo_runtime_add_set", [] { return words_of(horo_runtime_add_set(nullptr, &rank, 1, &rank)); }},
      {"horo_runtime_remove_set", [] { return words_of(horo_runtime_remove_set(nullptr, 1)); }},
      {"horo_runtime_set_numbers", [] { return unless(size_t{0}, horo_runtime_set_numbers(nullptr, &rank, 1)); }},
      {"horo_runtime_group", [] { return words_of(horo_runtime_group(nullptr, &rank, 1, &group)); }},
      {"horo_runtime_decline", [] { return words_of(horo_runtime_decline(nullptr)); }},
      {"horo_store_serve", [] { return words_of(horo_store_serve(nullptr, "job", nullptr, 0, &store)); }},
      {"horo_store_address", [] { return unless(std::string(), std::string(horo_store_address(nullptr))); }},
      {"horo_store_destroy", [] { return silent([] { horo_store_destroy(nullptr); }); }, false},
      {"horo_store_ask_to_leave", [] { return words_of(horo_store_ask_to_leave(nullptr, 0, "")); }},
      {"horo_store_newcomer_ended", [] { return words_of(horo_store_newcomer_ended(nullptr, 0)); }},
      {"horo_door_open", [] { return words_of(horo_door_open(nullptr, nullptr)); }},
      {"horo_door_news", [] { return unless(-1, horo_door_news(nullptr, 0)); }},
      {"horo_door_look", [] { return words_of(horo_door_look(nullptr, nullptr)); }},
      {"horo_door_begin", [] { return words_of(horo_door_begin(nullptr, nullptr)); }},
      {"horo_door_admit", [] { return words_of(horo_door_admit(nullptr, nullptr, 0, 0)); }},
      {"horo_door_close", [] { return silent([] { horo_door_close(nullptr); }); }, false},
      {"horo_group_give_up", [] { return words_of(horo_group_give_up(nullptr, "why")); }},
      {"horo_runtime_set_ranks", [] { return words_of(horo_runtime_set_ranks(nullptr, 0, &rank, 1, &count)); }},
  };
}

TEST(ApiNull, EveryFunctionAnswersNullWithAnErrorThatNamesIt) {
  for (const NullCall& one : null_calls()) {
    const std::string words = one.call();
    if (!one.complains) {
      EXPECT_EQ(words, "") << one.function;
      continue;
    }
    EXPECT_NE(words.find("invalid-argument"), std::string::npos) << one.function << ": '" << words << "'";
    EXPECT_TRUE(words.find("null") != std::string::npos || words.find("needs") != std::string::npos ||
                words.find("no place") != std::string::npos)
        << one.function << " does not say what is missing: " << words;
  }
}

TEST(ApiNull, TheWordsOfACallWithoutAStatusNameTheCall) {
  EXPECT_EQ(horo_engine_rank(nullptr), -1);
  EXPECT_STREQ(horo_last_error(), "invalid-argument: horo_engine_rank: the engine is null");
  EXPECT_EQ(horo_group_size(nullptr), -1);
  EXPECT_STREQ(horo_last_error(), "invalid-argument: horo_group_size: the group is null");
}

TEST(ApiNull, TheTableLeavesNoFunctionOfTheHeadersOut) {
  std::set<std::string> declared, walked;
  for (const char* name : {HORO_API_HEADER, HORO_API_DOOR_HEADER, HORO_API_OBSERVE_HEADER}) {
    declared.merge(horo::test::declared_functions(name));
  }
  for (const NullCall& one : null_calls()) walked.insert(one.function);
  EXPECT_GE(declared.size(), 40u);
  EXPECT_EQ(declared, walked);
}

}  // namespace
