// The header of a GGUF file (version 3, little endian): typed metadata and the tensor directory,
// read from untrusted bytes. Nothing here looks at tensor data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace weightless::model {

// Every integer type is an int64_t (a u64 beyond its range becomes a double), f32 and f64 are
// double, and arrays have the element types below. Strings point into the bytes that were parsed.
using GgufStrings = std::vector<std::string_view>;
using GgufInts = std::vector<int64_t>;
using GgufFloats = std::vector<float>;
using GgufBools = std::vector<bool>;
using GgufValue = std::variant<bool, int64_t, double, std::string_view, GgufStrings, GgufInts,
                               GgufFloats, GgufBools>;

struct GgufTensorInfo {
  std::string_view name;
  int num_dims = 0;
  std::array<int64_t, 4> dims = {1, 1, 1, 1};  // dims[0] is contiguous; each at least 1
  uint32_t type = 0;                           // ggml type number
  uint64_t offset = 0;                         // from the start of the data section
};

// Immutable after Parse, so thread-safe. Points into `bytes`, which must outlive it.
class GgufHeader {
 public:
  // Bounds of what is accepted; real files have some 60 keys, 900 tensors and 16 MiB.
  static constexpr uint64_t kMaxKeys = 4096;
  static constexpr uint64_t kMaxTensors = 65536;
  static constexpr uint64_t kMaxNameBytes = 65535;
  static constexpr uint64_t kMaxHeaderBytes = 64 << 20;
  static constexpr int64_t kMaxDim = int64_t{1} << 40;

  // bytes: the whole file, or any prefix that holds the header. name: the file's, for messages.
  // kInvalidArgument names file, field, value and limit: wrong magic or version, anything that ends
  // after the bytes do, duplicate keys or tensor names, nested arrays, zero or huge dimensions.
  static absl::StatusOr<GgufHeader> Parse(std::string_view bytes, std::string_view name);

  // The value of any type, or null.
  const GgufValue* Find(std::string_view key) const;

  // Typed look-ups: nullopt or null when the key is absent, kInvalidArgument when it has another
  // type. GetFloat accepts integers.
  absl::StatusOr<std::optional<bool>> GetBool(std::string_view key) const;
  absl::StatusOr<std::optional<int64_t>> GetInt(std::string_view key) const;
  absl::StatusOr<std::optional<double>> GetFloat(std::string_view key) const;
  absl::StatusOr<std::optional<std::string_view>> GetString(std::string_view key) const;
  // Array: GgufStrings, GgufInts, GgufFloats or GgufBools.
  template <typename Array>
  absl::StatusOr<const Array*> GetArray(std::string_view key) const {
    const GgufValue* value = Find(key);
    if (value == nullptr) return static_cast<const Array*>(nullptr);
    if (const Array* array = std::get_if<Array>(value)) return array;
    return WrongType(key, *value);
  }

  const std::vector<GgufTensorInfo>& tensors() const { return tensors_; }
  const std::string& name() const { return name_; }
  // Bytes of the header: the tensor directory ends here.
  uint64_t size_bytes() const { return size_bytes_; }
  // Start of the data section: size_bytes() rounded up to general.alignment.
  uint64_t data_offset() const { return data_offset_; }
  uint64_t alignment() const { return alignment_; }

 private:
  absl::Status WrongType(std::string_view key, const GgufValue& value) const;
  absl::Status ReadAlignment();

  std::string name_;
  absl::flat_hash_map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensorInfo> tensors_;
  uint64_t size_bytes_ = 0;
  uint64_t data_offset_ = 0;
  uint64_t alignment_ = 32;
};

}  // namespace weightless::model
