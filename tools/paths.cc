#include "tools/paths.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "common/concat.h"

namespace weightless::tools {

namespace fs = std::filesystem;

namespace {

// The only .gguf file of a folder that is no Hugging Face checkpoint; else the path itself.
std::string ResolveFolder(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error) || fs::exists(path / "config.json", error)) return path;
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".gguf") found.push_back(entry.path());
  }
  return found.size() == 1 ? found.front() : path.string();
}

}  // namespace

std::string ProgramFolder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? "." : program.parent_path().string();
}

absl::StatusOr<std::string> FindModel(const std::string& model, const std::string& model_dir) {
  std::error_code error;
  if (fs::exists(model, error)) return ResolveFolder(model);
  std::string looked_in = model;
  if (model.find('/') == std::string::npos) {
    const fs::path program = ProgramFolder();
    std::vector<fs::path> folders;
    if (!model_dir.empty()) folders.emplace_back(model_dir);
    folders.push_back(program.parent_path() / "share/weightless/models");  // bin/ of a bundle
    folders.push_back(program.parent_path().parent_path().parent_path() / "models");  // build/P/bin
    for (const fs::path& folder : folders) {
      const fs::path candidate = folder / model;
      if (fs::exists(candidate, error)) return ResolveFolder(candidate);
      looked_in = Concat(looked_in, ", ", candidate.string());
    }
  }
  return absl::NotFoundError(
      Concat("model '", model, "' is not there (looked for ", looked_in, ")"));
}

}  // namespace weightless::tools
