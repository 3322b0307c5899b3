# What the Hello tells the peer about this build.
set_source_files_properties(${folder}/hello.cc PROPERTIES COMPILE_DEFINITIONS HORO_VERSION="${PROJECT_VERSION}")
