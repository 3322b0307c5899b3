# Finds OpenSSL 3. With HORO_STATIC_OPENSSL its archives are tried in a small shared library first: objects that are not
# position-independent fail there, and the shared OpenSSL is taken instead.
if(HORO_STATIC_OPENSSL)
  set(OPENSSL_USE_STATIC_LIBS ON)
  find_package(OpenSSL 3 QUIET)
  if(OpenSSL_FOUND)
    file(WRITE ${CMAKE_BINARY_DIR}/openssl_probe/probe.c
      "#include <openssl/ssl.h>\nvoid* horo_probe(void) { return SSL_CTX_new(TLS_method()); }\n")
    file(WRITE ${CMAKE_BINARY_DIR}/openssl_probe/CMakeLists.txt
      "cmake_minimum_required(VERSION 3.22)\nproject(probe C)\nset(CMAKE_POSITION_INDEPENDENT_CODE ON)\n"
      "set(OPENSSL_USE_STATIC_LIBS ON)\nfind_package(Threads)\nfind_package(OpenSSL REQUIRED)\n"
      "add_library(probe SHARED probe.c)\ntarget_link_libraries(probe PRIVATE OpenSSL::SSL Threads::Threads)\n")
    try_compile(HORO_STATIC_OPENSSL_WORKS ${CMAKE_BINARY_DIR}/openssl_probe/build ${CMAKE_BINARY_DIR}/openssl_probe
      probe)
  endif()
  if(NOT HORO_STATIC_OPENSSL_WORKS)
    message(STATUS "OpenSSL's archives are missing or not position-independent: linking the shared OpenSSL")
    unset(OPENSSL_USE_STATIC_LIBS)
    foreach(variable OPENSSL_SSL_LIBRARY OPENSSL_CRYPTO_LIBRARY)
      unset(${variable} CACHE)
    endforeach()
  endif()
endif()
find_package(OpenSSL 3 REQUIRED)
