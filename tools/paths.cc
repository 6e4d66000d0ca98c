#include "tools/paths.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "common/concat.h"

namespace weightless::tools {

namespace fs = std::filesystem;

std::string ProgramFolder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? "." : program.parent_path().string();
}

absl::StatusOr<std::string> FindModel(const std::string& model, const std::string& model_dir) {
  std::error_code error;
  if (fs::exists(model, error)) return model;
  std::string looked_in = model;
  if (model.find('/') == std::string::npos) {
    const fs::path program = ProgramFolder();
    std::vector<fs::path> folders;
    if (!model_dir.empty()) folders.emplace_back(model_dir);
    folders.push_back(program.parent_path() / "share/weightless/models");  // bin/ of a bundle
    folders.push_back(program.parent_path().parent_path().parent_path() / "models");  // build/P/bin
    for (const fs::path& folder : folders) {
      const fs::path candidate = folder / model;
      if (fs::exists(candidate, error)) return candidate.string();
      looked_in = Concat(looked_in, ", ", candidate.string());
    }
  }
  return absl::NotFoundError(
      Concat("model '", model, "' is not there (looked for ", looked_in, ")"));
}

}  // namespace weightless::tools
