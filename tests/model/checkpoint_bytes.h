// Writes small checkpoint files, right or wrong on purpose.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weightless::model {

struct TensorBytes {
  std::string name;
  std::string dtype;  // safetensors: as in the header
  std::vector<int64_t> shape;
  std::string data;
};

// A safetensors file of these tensors, one after the other.
std::string SafetensorsFile(const std::vector<TensorBytes>& tensors);
// Any header text before any data.
std::string SafetensorsFile(std::string_view header, std::string_view data);

// The bytes of a little-endian number.
template <typename T>
std::string Raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Collects a GGUF file. Counts, version and magic can be set to lie.
class GgufWriter {
 public:
  void AddString(std::string_view key, std::string_view value);
  void AddU32(std::string_view key, uint32_t value) { AddRaw(key, 4, Raw(value)); }
  void AddU64(std::string_view key, uint64_t value) { AddRaw(key, 10, Raw(value)); }
  void AddF32(std::string_view key, float value) { AddRaw(key, 6, Raw(value)); }
  void AddBool(std::string_view key, bool value) { AddRaw(key, 7, std::string(1, value ? 1 : 0)); }
  void AddBools(std::string_view key, const std::vector<bool>& values);
  void AddInts(std::string_view key, const std::vector<int32_t>& values);
  void AddFloats(std::string_view key, const std::vector<float>& values);
  void AddStrings(std::string_view key, const std::vector<std::string>& values);
  // value: the bytes after the type.
  void AddRaw(std::string_view key, uint32_t type, std::string_view value);

  // Data is placed at the next multiple of 32.
  void AddTensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                 std::string_view data);
  void AddTensorAt(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                   uint64_t offset);

  // With an alignment of 32.
  std::string File() const;

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t num_tensors = 0;
  uint64_t num_keys = 0;

 private:
  std::string metadata_;
  std::string directory_;
  std::string data_;
};

// A Gemma 3 model of two layers (hidden 32, 2 heads of 16, 1 kv head, inner 64, 8 tokens) with
// deterministic values; layer 1 is full.
std::string TinyConfigJson();
// As it is saved: F32 tensors below `prefix`.
std::vector<TensorBytes> TinyTensors(std::string_view prefix);
// The metadata, without tensors; the keys of `skip` are left out.
GgufWriter TinyGgufMetadata(const std::vector<std::string_view>& skip = {});
// The same tensors as TinyTensors, with the norm rule applied.
void AddTinyGgufTensors(GgufWriter& writer);

}  // namespace weightless::model
