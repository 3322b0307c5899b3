# A test walks through every function that the header declares.
if(TARGET horo_api_test)
  target_compile_definitions(horo_api_test PRIVATE HORO_API_HEADER="${folder}/horo.h")
endif()
