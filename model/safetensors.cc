#include "model/safetensors.h"

#include <algorithm>
#include <bit>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstring>
#include <optional>
#include <set>

#include "common/concat.h"
#include "common/json.h"
#include "common/status.h"

namespace weightless::model {
namespace {

namespace json = boost::json;

static_assert(std::endian::native == std::endian::little);

constexpr size_t kMaxRank = 8;
constexpr int64_t kMaxElements = int64_t{1} << 40;

template <typename... Parts>
absl::Status Invalid(std::string_view file, const Parts&... parts) {
  return absl::InvalidArgumentError(Concat(file, ": ", parts...));
}

struct Dtype {
  const char* name;
  int64_t bytes;
  std::optional<StorageType> type;  // what a text tensor may be
};
constexpr Dtype kDtypes[] = {
    {"F32", 4, StorageType::kF32}, {"F16", 2, StorageType::kF16}, {"BF16", 2, StorageType::kBF16},
    {"F64", 8, std::nullopt},      {"I64", 8, std::nullopt},      {"U64", 8, std::nullopt},
    {"I32", 4, std::nullopt},      {"U32", 4, std::nullopt},      {"I16", 2, std::nullopt},
    {"U16", 2, std::nullopt},      {"I8", 1, std::nullopt},       {"U8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},     {"F8_E4M3", 1, std::nullopt},  {"F8_E5M2", 1, std::nullopt},
};

// One entry of the header; offsets count from the start of the data.
struct Entry {
  std::string_view name;
  const Dtype* dtype = nullptr;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

absl::StatusOr<int64_t> ToCount(const json::value& value, std::string_view file,
                                std::string_view name, std::string_view field) {
  const int64_t* count = value.if_int64();
  if (count == nullptr || *count < 0) {
    return Invalid(file, "tensor ", Quoted(name), " ", field,
                   " has an entry that is not a count below 2^63");
  }
  return *count;
}

absl::StatusOr<Entry> ReadEntry(std::string_view file, std::string_view name,
                                const json::value& value) {
  const json::object* object = value.if_object();
  const json::value* dtype = object == nullptr ? nullptr : object->if_contains("dtype");
  const json::value* shape = object == nullptr ? nullptr : object->if_contains("shape");
  const json::value* offsets = object == nullptr ? nullptr : object->if_contains("data_offsets");
  if (dtype == nullptr || !dtype->is_string() || shape == nullptr || !shape->is_array() ||
      offsets == nullptr || !offsets->is_array() || offsets->as_array().size() != 2) {
    return Invalid(file, "tensor ", Quoted(name), " is not {dtype, shape, data_offsets: [2]}");
  }
  Entry entry;
  entry.name = name;
  for (const Dtype& known : kDtypes) {
    if (dtype->as_string() == known.name) entry.dtype = &known;
  }
  if (entry.dtype == nullptr) {
    return Invalid(file, "tensor ", Quoted(name), " has the unknown dtype ",
                   Quoted(dtype->as_string().c_str()));
  }
  if (shape->as_array().size() > kMaxRank) {
    return Invalid(file, "tensor ", Quoted(name), " has ", shape->as_array().size(),
                   " dimensions, more than ", kMaxRank);
  }
  int64_t num_elements = 1;
  for (const json::value& dim : shape->as_array()) {
    ASSIGN_OR_RETURN(const int64_t size, ToCount(dim, file, name, "shape"));
    if (size > 0 && num_elements > kMaxElements / size) {
      return Invalid(file, "tensor ", Quoted(name), " has more than ", kMaxElements, " elements");
    }
    num_elements *= size;
    entry.shape.push_back(size);
  }
  ASSIGN_OR_RETURN(const int64_t begin,
                   ToCount(offsets->as_array()[0], file, name, "data_offsets"));
  ASSIGN_OR_RETURN(const int64_t end, ToCount(offsets->as_array()[1], file, name, "data_offsets"));
  if (begin > end || end - begin != num_elements * entry.dtype->bytes) {
    return Invalid(file, "tensor ", Quoted(name), " lies at [", begin, ", ", end,
                   "), its shape needs ", num_elements * entry.dtype->bytes, " bytes");
  }
  entry.begin = static_cast<uint64_t>(begin);
  entry.end = static_cast<uint64_t>(end);
  return entry;
}

// The entries cover the data exactly, one after the other.
absl::Status CheckCoverage(std::string_view file, std::vector<const Entry*> order,
                           uint64_t data_bytes) {
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t end = 0;
  for (const Entry* entry : order) {
    if (entry->begin != end) {
      return Invalid(file, "tensor ", Quoted(entry->name), " begins at ", entry->begin,
                     " of the data, the one before it ends at ", end);
    }
    end = entry->end;
  }
  if (end == data_bytes) return absl::OkStatus();
  return Invalid(file, "tensors end at ", end, " of the data, the file has ", data_bytes,
                 " bytes of it");
}

bool ConsumePrefix(std::string_view& name, std::string_view prefix) {
  if (name.substr(0, prefix.size()) != prefix) return false;
  name.remove_prefix(prefix.size());
  return true;
}

bool IsIgnored(std::string_view name) {
  ConsumePrefix(name, "model.");
  for (const std::string_view tower : {"vision_tower.", "multi_modal_projector.", "audio_tower.",
                                       "embed_vision.", "embed_audio."}) {
    if (name.substr(0, tower.size()) == tower) return true;
  }
  return false;
}

// The name without its prefix family; empty for a name outside all of them.
std::string_view CanonicalName(std::string_view name) {
  for (const std::string_view prefix :
       {"model.language_model.", "language_model.model.", "model."}) {
    std::string_view rest = name;
    if (ConsumePrefix(rest, prefix)) return rest;
  }
  if (name == "lm_head.weight" || name == "language_model.lm_head.weight") return "lm_head.weight";
  return {};
}

absl::Status AddEntry(std::string_view file, std::string_view data, uint64_t data_offset,
                      const Entry& entry, TensorMap& tensors) {
  if (IsIgnored(entry.name)) return absl::OkStatus();
  const std::string_view name = CanonicalName(entry.name);
  const auto invalid = [&](const auto&... parts) {
    return Invalid(file, "tensor ", Quoted(entry.name), parts...);
  };
  if (name.empty()) return invalid(" is not below a known prefix of text tensors");
  if (!entry.dtype->type.has_value()) {
    return invalid(" is ", entry.dtype->name, "; text tensors must be F32, F16 or BF16");
  }
  if (entry.shape.empty() || entry.shape.size() > 2 || entry.begin == entry.end) {
    return invalid(" has ", entry.shape.size(), " dimensions and ", entry.end - entry.begin,
                   " bytes; text tensors have 1 or 2 dimensions, none of them zero");
  }
  if ((data_offset + entry.begin) % static_cast<uint64_t>(entry.dtype->bytes) != 0) {
    return invalid(" begins at byte ", data_offset + entry.begin, ", not a multiple of ",
                   entry.dtype->bytes);
  }
  const std::string_view bytes = data.substr(entry.begin, entry.end - entry.begin);
  Tensor tensor{std::string(name), *entry.dtype->type, entry.shape,
                std::as_bytes(std::span(bytes.data(), bytes.size()))};
  if (!tensors.emplace(tensor.name, std::move(tensor)).second) {
    return invalid(" occurs twice, perhaps below two prefixes or in two shards");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddSafetensors(std::string_view bytes, std::string_view file, TensorMap& tensors) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return Invalid(file, "not a safetensors file: it has ", bytes.size(), " bytes");
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const uint64_t limit =
      std::min<uint64_t>(kMaxSafetensorsHeaderBytes, bytes.size() - sizeof(header_bytes));
  if (header_bytes > limit) {
    return Invalid(file, "not a safetensors file: header length ", header_bytes, " exceeds ",
                   limit);
  }
  const uint64_t data_offset = sizeof(header_bytes) + header_bytes;
  const std::string_view data = bytes.substr(data_offset);
  absl::StatusOr<json::value> header =
      ParseJson(bytes.substr(sizeof(header_bytes), header_bytes), {.max_depth = 8});
  if (!header.ok()) return Invalid(file, "header: ", std::string(header.status().message()));
  if (!header->is_object()) return Invalid(file, "header: not a JSON object");
  const json::object& object = header->as_object();
  if (object.size() > kMaxSafetensorsEntries) {
    return Invalid(file, "header: ", object.size(), " entries exceed ", kMaxSafetensorsEntries);
  }

  std::vector<Entry> entries;
  entries.reserve(object.size());
  for (const auto& field : object) {
    if (field.key() == "__metadata__") continue;
    const std::string_view name(field.key().data(), field.key().size());
    ASSIGN_OR_RETURN(Entry entry, ReadEntry(file, name, field.value()));
    entries.push_back(std::move(entry));
  }
  std::vector<const Entry*> order;
  for (const Entry& entry : entries) order.push_back(&entry);
  RETURN_IF_ERROR(CheckCoverage(file, std::move(order), data.size()));
  for (const Entry& entry : entries) {
    RETURN_IF_ERROR(AddEntry(file, data, data_offset, entry, tensors));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ParseShardIndex(std::string_view text,
                                                         std::string_view file) {
  absl::StatusOr<json::value> index = ParseJson(text, {.max_depth = 8});
  if (!index.ok()) return Invalid(file, std::string(index.status().message()));
  const json::object* top = index->if_object();
  const json::value* field = top == nullptr ? nullptr : top->if_contains("weight_map");
  const json::object* weight_map = field == nullptr ? nullptr : field->if_object();
  if (weight_map == nullptr) return Invalid(file, "weight_map is missing or not an object");
  std::set<std::string> shards;
  for (const auto& entry : *weight_map) {
    const json::string* shard = entry.value().if_string();
    const std::string_view name =
        shard == nullptr ? std::string_view() : std::string_view(shard->data(), shard->size());
    constexpr std::string_view kSuffix = ".safetensors";
    if (name.size() <= kSuffix.size() || name.substr(name.size() - kSuffix.size()) != kSuffix ||
        name.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos) {
      return Invalid(file, "weight_map names ", Quoted(name),
                     ", which is not the plain name of a .safetensors file");
    }
    shards.emplace(name);
    if (shards.size() > kMaxShards)
      return Invalid(file, "weight_map has over ", kMaxShards, " shards");
  }
  if (shards.empty()) return Invalid(file, "weight_map is empty");
  return std::vector<std::string>(shards.begin(), shards.end());
}

}  // namespace weightless::model
