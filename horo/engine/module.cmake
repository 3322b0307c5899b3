# The same bits on every machine: no products that are rounded only after the addition.
set_source_files_properties(horo/engine/adasum.cc PROPERTIES COMPILE_OPTIONS -ffp-contract=off
  SKIP_PRECOMPILE_HEADERS ON)
# Timelines are read back by a parser that is not ours.
if(TARGET horo_engine_test)
  find_package(nlohmann_json 3.10 REQUIRED)
  target_link_libraries(horo_engine_test PRIVATE nlohmann_json::nlohmann_json)
endif()
