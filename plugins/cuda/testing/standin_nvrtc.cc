// Stand-in of NVRTC (libnvrtc.so.12): what it compiles is the list of options, which the stand-in of the driver reads.
#include <cstring>
#include <string>

#include "plugins/cuda/testing/standin.h"

extern "C" {
HORO_STANDIN int nvrtcVersion(int* major, int* minor) {
  *major = 12;
  *minor = 0;
  return 0;
}
HORO_STANDIN int nvrtcCreateProgram(std::string** program, const char*, const char*, int, const char* const*,
                                    const char* const*) {
  *program = new std::string;
  return 0;
}
HORO_STANDIN int nvrtcDestroyProgram(std::string** program) {
  delete *program;
  return 0;
}
HORO_STANDIN int nvrtcCompileProgram(std::string* program, int count, const char* const* options) {
  for (int i = 0; i < count; ++i) *program += std::string(options[i]) + " ";
  return 0;
}
HORO_STANDIN int nvrtcGetCUBINSize(const std::string* program, size_t* bytes) {
  *bytes = program->size() + 1;
  return 0;
}
HORO_STANDIN int nvrtcGetCUBIN(const std::string* program, char* code) {
  std::memcpy(code, program->c_str(), program->size() + 1);
  return 0;
}
HORO_STANDIN int nvrtcGetProgramLogSize(const std::string*, size_t* bytes) {
  *bytes = 1;
  return 0;
}
HORO_STANDIN int nvrtcGetProgramLog(const std::string*, char* log) {
  *log = '\0';
  return 0;
}
HORO_STANDIN const char* nvrtcGetErrorString(int) { return "said by the stand-in"; }
}
