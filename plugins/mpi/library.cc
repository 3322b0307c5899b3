// Which MPI this process uses.
#include <algorithm>
#include <vector>

#include "plugins/mpi/mpi.h"
#include "plugins/mpi/mpich.h"
#include "plugins/mpi/openmpi.h"

#include "horo/base/text.h"

namespace horo::mpi {

namespace {

bool has_any(std::string_view words, std::span<const std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return words.find(part) != words.npos; });
}

/// What it says about itself, which can be asked before it is initialised.
Result<std::string> words_of(const DynamicLibrary& library) {
  int (*version)(char*, int*) = nullptr;
  const Symbol table[] = {symbol("MPI_Get_library_version", &version)};
  HORO_TRY(library.bind(table));
  std::string words(kMostText, '\0');
  int length = 0;
  version(words.data(), &length);
  words.resize(static_cast<size_t>(std::clamp(length, 0, static_cast<int>(kMostText))));
  return words;
}

Result<Library> recognise(const DynamicLibrary& library) {
  HORO_ASSIGN(const std::string words, words_of(library));
  const bool open_mpi = has_any(words, OpenMpi::kVersionWords);
  if (open_mpi || has_any(words, Mpich::kVersionWords)) return Library{library, open_mpi};
  return Status(Code::kIncompatible, text(library.name(), " is neither Open MPI nor of MPICH's family: ", words));
}

void add(std::vector<std::string>& names, std::span<const char* const> files) {
  for (const char* file : files) {
    if (std::ranges::find(names, file) == names.end()) names.emplace_back(file);
  }
}

}  // namespace

std::string library_version(const DynamicLibrary& library) {
  const Result<std::string> words = words_of(library);
  if (!words.ok()) return library.name();
  // One line, without the packager's remarks.
  std::string name = words->substr(0, std::min(words->find_first_of(",\n"), words->size()));
  std::ranges::replace(name, '\t', ' ');
  return name;
}

Result<Library> find_library(const char* file, const std::string& flavor) {
  std::vector<std::string> names;
  if (flavor == "mpich") add(names, Mpich::kFiles);
  if (flavor != "mpich") add(names, OpenMpi::kFiles);
  std::vector<std::string> all = names;
  add(all, OpenMpi::kFiles);
  add(all, Mpich::kFiles);
  if (auto loaded = DynamicLibrary::find_loaded(all); loaded.ok()) return recognise(*loaded);
  const std::vector<std::string> named =
      file == nullptr ? (flavor.empty() ? all : names) : std::vector{std::string(file)};
  auto opened = DynamicLibrary::open(named);
  if (!opened.ok()) {
    return opened.status().prefixed(
        "no MPI library was found (install Open MPI or MPICH, name the file in HORO_MPI_LIBRARY, or set "
        "HORO_CONTROLLER=horo to do without MPI)");
  }
  return recognise(*opened);
}

}  // namespace horo::mpi
