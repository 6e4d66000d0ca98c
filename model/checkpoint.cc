#include "model/checkpoint.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "common/concat.h"
#include "common/status.h"
#include "model/gguf.h"
#include "model/gguf_header.h"
#include "model/identity.h"
#include "model/mapped_file.h"
#include "model/safetensors.h"
#include "model/tensor_layout.h"

namespace weightless::model {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = 1 << 20;

struct SmallFile {
  const char* name;
  uint64_t max_bytes;
};
constexpr SmallFile kModelFiles[] = {
    {"config.json", kMiB},
    {"generation_config.json", kMiB},
    {"tokenizer.json", 64 * kMiB},
    {"tokenizer.model", 16 * kMiB},
    {"tokenizer_config.json", 8 * kMiB},
    {"chat_template.jinja", kMiB},
};
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = 16 * kMiB;

// A checkpoint and the files its tensors lie in.
class FileCheckpoint : public Checkpoint {
 public:
  static absl::StatusOr<std::unique_ptr<Checkpoint>> OpenGguf(const fs::path& path);
  // `weights`: one file, or none to find them in the directory.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> OpenSafetensors(const fs::path& directory,
                                                                     const fs::path& weights);

 private:
  absl::StatusOr<std::string_view> Map(const fs::path& path);
  absl::Status ReadModelFiles(const fs::path& directory);
  absl::Status ReadConfig(const fs::path& directory);
  absl::Status ReadShards(const fs::path& directory, const fs::path& weights);

  std::vector<std::unique_ptr<MappedFile>> files_;
};

absl::StatusOr<std::string_view> FileCheckpoint::Map(const fs::path& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open(path.string()));
  files_.push_back(std::move(file));
  return files_.back()->bytes();
}

absl::StatusOr<std::unique_ptr<Checkpoint>> FileCheckpoint::OpenGguf(const fs::path& path) {
  auto checkpoint = std::make_unique<FileCheckpoint>();
  ASSIGN_OR_RETURN(const std::string_view bytes, checkpoint->Map(path));
  ASSIGN_OR_RETURN(const GgufHeader header, GgufHeader::Parse(bytes, path.string()));
  ASSIGN_OR_RETURN(checkpoint->config_, GgufConfig(header));
  RETURN_IF_ERROR(AddGgufTensors(header, bytes, checkpoint->tensors_));
  RETURN_IF_ERROR(CheckTensors(path.string(), DenseProjections(checkpoint->config_),
                               checkpoint->config_, checkpoint->tensors_));
  checkpoint->name_ = path.stem().string();
  checkpoint->model_files_.emplace("gguf_header", bytes.substr(0, header.size_bytes()));
  return checkpoint;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> FileCheckpoint::OpenSafetensors(
    const fs::path& directory, const fs::path& weights) {
  auto checkpoint = std::make_unique<FileCheckpoint>();
  RETURN_IF_ERROR(checkpoint->ReadModelFiles(directory));
  RETURN_IF_ERROR(checkpoint->ReadConfig(directory));
  RETURN_IF_ERROR(checkpoint->ReadShards(directory, weights));
  RETURN_IF_ERROR(CheckTensors(directory.string(), DenseProjections(checkpoint->config_),
                               checkpoint->config_, checkpoint->tensors_));
  // "models/x/" and "." have names too.
  std::error_code error;
  const fs::path absolute = fs::weakly_canonical(directory, error);
  checkpoint->name_ = (error ? directory : absolute).filename().string();
  return checkpoint;
}

absl::Status FileCheckpoint::ReadModelFiles(const fs::path& directory) {
  for (const SmallFile& file : kModelFiles) {
    absl::StatusOr<std::string> contents =
        ReadSmallFile((directory / file.name).string(), file.max_bytes);
    if (absl::IsNotFound(contents.status())) continue;
    RETURN_IF_ERROR(contents.status());
    model_files_.emplace(file.name, *std::move(contents));
  }
  return absl::OkStatus();
}

absl::Status FileCheckpoint::ReadConfig(const fs::path& directory) {
  const auto config = model_files_.find("config.json");
  if (config == model_files_.end()) {
    return absl::NotFoundError(Concat((directory / "config.json").string(),
                                      ": no such file; a checkpoint directory has one"));
  }
  ASSIGN_OR_RETURN(config_, ParseConfigJson(config->second, (directory / "config.json").string()));
  const auto generation = model_files_.find("generation_config.json");
  if (generation == model_files_.end()) return absl::OkStatus();
  return MergeGenerationConfig(generation->second, (directory / "generation_config.json").string(),
                               config_);
}

absl::Status FileCheckpoint::ReadShards(const fs::path& directory, const fs::path& weights) {
  std::vector<fs::path> paths;
  const fs::path single = weights.empty() ? directory / "model.safetensors" : weights;
  std::error_code error;
  if (!weights.empty() || fs::exists(single, error)) {
    paths.push_back(single);
  } else {
    const std::string index = (directory / kIndexName).string();
    absl::StatusOr<std::string> text = ReadSmallFile(index, kMaxIndexBytes);
    if (absl::IsNotFound(text.status())) {
      return absl::NotFoundError(
          Concat(directory.string(), ": neither model.safetensors nor ", kIndexName, " is there"));
    }
    RETURN_IF_ERROR(text.status());
    ASSIGN_OR_RETURN(const std::vector<std::string> shards, ParseShardIndex(*text, index));
    for (const std::string& shard : shards) paths.push_back(directory / shard);
  }
  for (const fs::path& path : paths) {
    ASSIGN_OR_RETURN(const std::string_view bytes, Map(path));
    RETURN_IF_ERROR(AddSafetensors(bytes, path.string(), tensors_));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path) {
  const fs::path file(path);
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (fs::is_directory(status)) return FileCheckpoint::OpenSafetensors(file, {});
  if (!fs::exists(status)) return absl::NotFoundError(Concat(path, ": no such file or directory"));
  if (file.extension() == ".gguf") return FileCheckpoint::OpenGguf(file);
  if (file.extension() == ".safetensors") {
    const fs::path directory = file.has_parent_path() ? file.parent_path() : fs::path(".");
    return FileCheckpoint::OpenSafetensors(directory, file);
  }
  return absl::InvalidArgumentError(
      Concat(path, ": neither a directory nor a .gguf or .safetensors file"));
}

const Tensor* Checkpoint::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

std::string Checkpoint::Identity() const { return DigestModel(config_, tensors_); }

}  // namespace weightless::model
