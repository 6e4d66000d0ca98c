#include "model/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/concat.h"
#include "common/status.h"

namespace weightless::model {
namespace {

static_assert(std::endian::native == std::endian::little);

// Value types as numbered in the file.
enum class WireType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12
};

// Reads values off the front of the file; every read is checked against its end.
class Cursor {
 public:
  Cursor(std::string_view bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::InvalidArgumentError(Concat(file_, ": ", parts...));
  }

  template <typename T>
  absl::StatusOr<T> Read(std::string_view what) {
    RETURN_IF_ERROR(Need(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  absl::StatusOr<std::string_view> ReadString(std::string_view what, uint64_t max_bytes) {
    ASSIGN_OR_RETURN(const uint64_t size, Read<uint64_t>(what));
    if (size > max_bytes) return Error(what, " of ", size, " bytes exceeds ", max_bytes);
    RETURN_IF_ERROR(Need(size, what));
    const std::string_view text = bytes_.substr(position_, size);
    position_ += size;
    return text;
  }

  absl::Status Need(uint64_t size, std::string_view what) const {
    if (size <= remaining()) return absl::OkStatus();
    return Error(what, " at byte ", position_, " needs ", size, " bytes, the header has ",
                 remaining(), " left");
  }

 private:
  const std::string_view bytes_;
  const std::string_view file_;
  size_t position_ = 0;
};

template <typename T>
absl::StatusOr<GgufValue> ReadNumber(Cursor& in, std::string_view what) {
  ASSIGN_OR_RETURN(const T value, in.Read<T>(what));
  if constexpr (std::is_same_v<T, uint64_t>) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return GgufValue(static_cast<double>(value));
    }
  }
  if constexpr (std::is_floating_point_v<T>) {
    return GgufValue(static_cast<double>(value));
  } else {
    return GgufValue(static_cast<int64_t>(value));
  }
}

// `count` numbers of type T.
template <typename T, typename Array>
absl::StatusOr<GgufValue> ReadNumbers(Cursor& in, std::string_view what, uint64_t count) {
  if (count > in.remaining() / sizeof(T)) {
    return in.Error(what, ": array of ", count, " elements exceeds the ", in.remaining(),
                    " bytes left in the header");
  }
  Array array;
  array.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const T value, in.Read<T>(what));
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return in.Error(what, ": array holds ", value, ", beyond 63 bits");
      }
    }
    if constexpr (std::is_same_v<Array, GgufBools>) {
      array.push_back(value != 0);
    } else {
      array.push_back(static_cast<typename Array::value_type>(value));
    }
  }
  return GgufValue(std::move(array));
}

absl::StatusOr<GgufValue> ReadStrings(Cursor& in, std::string_view what, uint64_t count) {
  if (count > in.remaining() / sizeof(uint64_t)) {  // each string has at least its length
    return in.Error(what, ": array of ", count, " strings exceeds the ", in.remaining(),
                    " bytes left in the header");
  }
  GgufStrings array;
  array.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const std::string_view text,
                     in.ReadString("array string", GgufHeader::kMaxHeaderBytes));
    array.push_back(text);
  }
  return GgufValue(std::move(array));
}

absl::StatusOr<GgufValue> ReadArray(Cursor& in, std::string_view what) {
  ASSIGN_OR_RETURN(const uint32_t type, in.Read<uint32_t>(what));
  ASSIGN_OR_RETURN(const uint64_t count, in.Read<uint64_t>(what));
  switch (static_cast<WireType>(type)) {
    case WireType::kU8:
      return ReadNumbers<uint8_t, GgufInts>(in, what, count);
    case WireType::kI8:
      return ReadNumbers<int8_t, GgufInts>(in, what, count);
    case WireType::kU16:
      return ReadNumbers<uint16_t, GgufInts>(in, what, count);
    case WireType::kI16:
      return ReadNumbers<int16_t, GgufInts>(in, what, count);
    case WireType::kU32:
      return ReadNumbers<uint32_t, GgufInts>(in, what, count);
    case WireType::kI32:
      return ReadNumbers<int32_t, GgufInts>(in, what, count);
    case WireType::kU64:
      return ReadNumbers<uint64_t, GgufInts>(in, what, count);
    case WireType::kI64:
      return ReadNumbers<int64_t, GgufInts>(in, what, count);
    case WireType::kF32:
      return ReadNumbers<float, GgufFloats>(in, what, count);
    case WireType::kF64:
      return ReadNumbers<double, GgufFloats>(in, what, count);
    case WireType::kBool:
      return ReadNumbers<uint8_t, GgufBools>(in, what, count);
    case WireType::kString:
      return ReadStrings(in, what, count);
    case WireType::kArray:
      break;
  }
  return in.Error(what, ": array has elements of type ", type,
                  "; nested arrays and types above 12 are not supported");
}

absl::StatusOr<GgufValue> ReadValue(Cursor& in, std::string_view what, uint32_t type) {
  switch (static_cast<WireType>(type)) {
    case WireType::kU8:
      return ReadNumber<uint8_t>(in, what);
    case WireType::kI8:
      return ReadNumber<int8_t>(in, what);
    case WireType::kU16:
      return ReadNumber<uint16_t>(in, what);
    case WireType::kI16:
      return ReadNumber<int16_t>(in, what);
    case WireType::kU32:
      return ReadNumber<uint32_t>(in, what);
    case WireType::kI32:
      return ReadNumber<int32_t>(in, what);
    case WireType::kU64:
      return ReadNumber<uint64_t>(in, what);
    case WireType::kI64:
      return ReadNumber<int64_t>(in, what);
    case WireType::kF32:
      return ReadNumber<float>(in, what);
    case WireType::kF64:
      return ReadNumber<double>(in, what);
    case WireType::kBool: {
      ASSIGN_OR_RETURN(const uint8_t value, in.Read<uint8_t>(what));
      return GgufValue(value != 0);
    }
    case WireType::kString: {
      ASSIGN_OR_RETURN(const std::string_view text,
                       in.ReadString(what, GgufHeader::kMaxHeaderBytes));
      return GgufValue(text);
    }
    case WireType::kArray:
      return ReadArray(in, what);
  }
  return in.Error(what, " has value type ", type, ", above 12");
}

absl::StatusOr<GgufTensorInfo> ReadTensorInfo(Cursor& in) {
  GgufTensorInfo info;
  ASSIGN_OR_RETURN(info.name, in.ReadString("tensor name", GgufHeader::kMaxNameBytes));
  ASSIGN_OR_RETURN(const uint32_t num_dims, in.Read<uint32_t>("tensor dimensions"));
  if (num_dims < 1 || num_dims > info.dims.size()) {
    return in.Error("tensor ", Quoted(info.name), " has ", num_dims, " dimensions, not 1 to ",
                    info.dims.size());
  }
  info.num_dims = static_cast<int>(num_dims);
  int64_t num_elements = 1;
  for (size_t i = 0; i < num_dims; ++i) {
    ASSIGN_OR_RETURN(const uint64_t dim, in.Read<uint64_t>("tensor dimension"));
    if (dim < 1 || dim > static_cast<uint64_t>(GgufHeader::kMaxDim / num_elements)) {
      return in.Error("tensor ", Quoted(info.name), " dimension ", i, " is ", dim,
                      "; each must be at least 1 and their product at most ", GgufHeader::kMaxDim);
    }
    info.dims[i] = static_cast<int64_t>(dim);
    num_elements *= info.dims[i];
  }
  ASSIGN_OR_RETURN(info.type, in.Read<uint32_t>("tensor type"));
  ASSIGN_OR_RETURN(info.offset, in.Read<uint64_t>("tensor offset"));
  return info;
}

const char* TypeName(const GgufValue& value) {
  static constexpr const char* kNames[] = {"bool",     "integer",   "float",   "string",
                                           "string[]", "integer[]", "float[]", "bool[]"};
  return kNames[value.index()];
}

}  // namespace

absl::StatusOr<GgufHeader> GgufHeader::Parse(std::string_view bytes, std::string_view name) {
  Cursor in(bytes.substr(0, kMaxHeaderBytes), name);
  ASSIGN_OR_RETURN(const uint32_t magic, in.Read<uint32_t>("magic"));
  if (magic != 0x46554747) return in.Error("not a GGUF file: it does not begin with \"GGUF\"");
  ASSIGN_OR_RETURN(const uint32_t version, in.Read<uint32_t>("version"));
  if (version != 3) return in.Error("GGUF version ", version, " is not 3");
  ASSIGN_OR_RETURN(const uint64_t num_tensors, in.Read<uint64_t>("tensor count"));
  ASSIGN_OR_RETURN(const uint64_t num_keys, in.Read<uint64_t>("metadata count"));
  if (num_tensors > kMaxTensors) {
    return in.Error("tensor count ", num_tensors, " exceeds ", kMaxTensors);
  }
  if (num_keys > kMaxKeys) return in.Error("metadata count ", num_keys, " exceeds ", kMaxKeys);

  GgufHeader header;
  header.name_ = std::string(name);
  for (uint64_t i = 0; i < num_keys; ++i) {
    ASSIGN_OR_RETURN(const std::string_view key, in.ReadString("metadata key", kMaxNameBytes));
    ASSIGN_OR_RETURN(const uint32_t type, in.Read<uint32_t>("metadata type"));
    ASSIGN_OR_RETURN(GgufValue value, ReadValue(in, Concat("metadata ", Quoted(key)), type));
    if (!header.metadata_.emplace(key, std::move(value)).second) {
      return in.Error("metadata ", Quoted(key), " occurs twice");
    }
  }
  absl::flat_hash_set<std::string_view> names;
  for (uint64_t i = 0; i < num_tensors; ++i) {
    ASSIGN_OR_RETURN(const GgufTensorInfo info, ReadTensorInfo(in));
    if (!names.insert(info.name).second) {
      return in.Error("tensor ", Quoted(info.name), " occurs twice");
    }
    header.tensors_.push_back(info);
  }
  header.size_bytes_ = in.position();
  RETURN_IF_ERROR(header.ReadAlignment());
  return header;
}

absl::Status GgufHeader::ReadAlignment() {
  constexpr int64_t kMaxAlignment = 1 << 20;
  ASSIGN_OR_RETURN(const std::optional<int64_t> alignment, GetInt("general.alignment"));
  if (alignment.has_value()) {
    if (*alignment < 1 || *alignment > kMaxAlignment ||
        !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
      return absl::InvalidArgumentError(Concat(name_, ": general.alignment ", *alignment,
                                               " is not a power of two up to ", kMaxAlignment));
    }
    alignment_ = static_cast<uint64_t>(*alignment);
  }
  data_offset_ = (size_bytes_ + alignment_ - 1) / alignment_ * alignment_;
  return absl::OkStatus();
}

const GgufValue* GgufHeader::Find(std::string_view key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

absl::Status GgufHeader::WrongType(std::string_view key, const GgufValue& value) const {
  return absl::InvalidArgumentError(
      Concat(name_, ": metadata \"", key, "\" is of the wrong type, ", TypeName(value)));
}

absl::StatusOr<std::optional<bool>> GgufHeader::GetBool(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (const bool* flag = std::get_if<bool>(value)) return std::optional<bool>(*flag);
  return WrongType(key, *value);
}

absl::StatusOr<std::optional<int64_t>> GgufHeader::GetInt(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  if (const int64_t* number = std::get_if<int64_t>(value)) return std::optional<int64_t>(*number);
  return WrongType(key, *value);
}

absl::StatusOr<std::optional<double>> GgufHeader::GetFloat(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  if (const double* number = std::get_if<double>(value)) return std::optional<double>(*number);
  if (const int64_t* number = std::get_if<int64_t>(value)) {
    return std::optional<double>(static_cast<double>(*number));
  }
  return WrongType(key, *value);
}

absl::StatusOr<std::optional<std::string_view>> GgufHeader::GetString(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (const auto* text = std::get_if<std::string_view>(value)) {
    return std::optional<std::string_view>(*text);
  }
  return WrongType(key, *value);
}

}  // namespace weightless::model
