// Every function of ddp.h with null in place of what it needs: an error, never a crash.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "horo/api/ddp.h"
#include "horo/api/header_testing.h"

namespace {

std::string words_of(horo_status* status) {
  std::string words = status == nullptr ? "" : horo_status_message(status);
  horo_status_free(status);
  return words;
}

template <class Value>
std::string unless(Value expected, Value value) {
  return value == expected ? horo_last_error() : "an unexpected value";
}

std::map<std::string, std::function<std::string()>> null_calls() {
  static size_t number = 0;
  static uint64_t offset = 0;
  static int64_t bucket_number = 0;
  static unsigned events = 0;
  static horo_reducer* reducer = nullptr;
  static horo_memory* memory = nullptr;
  static horo_reducer_options options = HORO_REDUCER_OPTIONS_INIT;
  static horo_bucket bucket = HORO_BUCKET_INIT;
  static horo_hook_options hook = HORO_HOOK_OPTIONS_INIT;
  static horo_reduction_statistics statistics = HORO_REDUCTION_STATISTICS_INIT;
  return {
      {"horo_reducer_create", [] { return words_of(horo_reducer_create(nullptr, &options, &reducer)); }},
      {"horo_reducer_bucket_count", [] { return unless(int64_t{-1}, horo_reducer_bucket_count(nullptr)); }},
      {"horo_reducer_bucket", [] { return words_of(horo_reducer_bucket(nullptr, 0, &bucket)); }},
      {"horo_reducer_slot", [] { return words_of(horo_reducer_slot(nullptr, 0, &number, &offset)); }},
      {"horo_reducer_memory", [] { return words_of(horo_reducer_memory(nullptr, 0, &memory)); }},
      {"horo_reducer_prepare_forward", [] { return words_of(horo_reducer_prepare_forward(nullptr, nullptr)); }},
      {"horo_reducer_prepare_backward",
       [] { return words_of(horo_reducer_prepare_backward(nullptr, 1, nullptr, nullptr, 0)); }},
      {"horo_reducer_ready", [] { return words_of(horo_reducer_ready(nullptr, 0, &number, &events)); }},
      {"horo_reducer_ready_all", [] { return words_of(horo_reducer_ready_all(nullptr, &events)); }},
      {"horo_reducer_end_backward", [] { return words_of(horo_reducer_end_backward(nullptr, &events)); }},
      {"horo_reducer_take", [] { return words_of(horo_reducer_take(nullptr, &bucket_number)); }},
      {"horo_reducer_launched", [] { return words_of(horo_reducer_launched(nullptr, 0, &events)); }},
      {"horo_reducer_deliver", [] { return words_of(horo_reducer_deliver(nullptr, 0, nullptr)); }},
      {"horo_reducer_all_launched", [] { return unless(-1, horo_reducer_all_launched(nullptr)); }},
      {"horo_reducer_under_way", [] { return unless(-1, horo_reducer_under_way(nullptr)); }},
      {"horo_reducer_fail", [] { return words_of(horo_reducer_fail(nullptr, HORO_INTERNAL, "why")); }},
      {"horo_reducer_finish", [] { return words_of(horo_reducer_finish(nullptr, -1, nullptr, nullptr)); }},
      {"horo_reducer_set_hook", [] { return words_of(horo_reducer_set_hook(nullptr, &hook)); }},
      {"horo_reducer_set_divisor", [] { return words_of(horo_reducer_set_divisor(nullptr, 1)); }},
      {"horo_reducer_set_sample_rate", [] { return words_of(horo_reducer_set_sample_rate(nullptr, 1)); }},
      {"horo_reducer_set_static_graph", [] { return words_of(horo_reducer_set_static_graph(nullptr)); }},
      {"horo_reducer_statistics", [] { return words_of(horo_reducer_statistics(nullptr, &statistics)); }},
      {"horo_reducer_ready_order", [] { return unless(size_t{0}, horo_reducer_ready_order(nullptr, nullptr, 0)); }},
      {"horo_pack",
       [] {
         horo_pack(&number, nullptr, sizeof number);
         return std::string(horo_last_error());
       }},
      {"horo_reducer_destroy",
       [] {
         horo_reducer_destroy(nullptr);  // As free() does.
         return std::string("invalid-argument: horo_reducer_destroy takes null");
       }},
  };
}

TEST(ApiDdpNull, EveryFunctionAnswersNullWithAnErrorThatNamesIt) {
  for (const auto& [function, call] : null_calls()) {
    const std::string words = call();
    EXPECT_NE(words.find("invalid-argument"), std::string::npos) << function << ": '" << words << "'";
    EXPECT_NE(words.find(function), std::string::npos) << function << ": '" << words << "'";
    EXPECT_NE(words.find("null"), std::string::npos) << function << ": '" << words << "'";
  }
}

TEST(ApiDdpNull, TheTableLeavesNoFunctionOfTheHeaderOut) {
  std::set<std::string> walked;
  for (const auto& [function, call] : null_calls()) walked.insert(function);
  EXPECT_EQ(horo::test::declared_functions(HORO_API_DDP_HEADER), walked);
}

}  // namespace
