# A test walks through every function that the header declares, and another through the tests that knobs name.
if(TARGET horo_api_test)
  target_compile_definitions(horo_api_test PRIVATE HORO_API_HEADER="${folder}/horo.h" HORO_API_DDP_HEADER="${folder}/ddp.h"
    HORO_API_OBSERVE_HEADER="${folder}/observe.h" HORO_API_DOOR_HEADER="${folder}/door.h"
    HORO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
