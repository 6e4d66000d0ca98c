#include "router/field_reader.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <charconv>
#include <cmath>

#include "common/concat.h"
#include "router/api_error.h"

namespace weightless::router {
namespace {

namespace json = boost::json;

bool IsNothing(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return true;
    case json::kind::bool_:
      return !value.get_bool();
    case json::kind::string:
      return value.get_string().empty() || value.get_string() == "none";
    case json::kind::array:
      return value.get_array().empty();
    case json::kind::object:
      return value.get_object().empty();
    default:
      return false;
  }
}

// The shortest text that reads back as the same number.
std::string Shown(double number) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), number).ptr);
}

}  // namespace

std::string_view KindName(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
      return "an integer";
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "a value";
}

std::optional<int64_t> AsInteger(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double()) {
    constexpr double kExact = 9007199254740992.0;  // 2^53: beyond, a double names no one integer
    const double number = value.get_double();
    if (std::abs(number) <= kExact && std::trunc(number) == number) {
      return static_cast<int64_t>(number);
    }
  }
  return std::nullopt;
}

FieldReader::FieldReader(const json::object& object, std::string path)
    : object_(object), path_(std::move(path)) {}

std::string FieldReader::PathOf(std::string_view name) const {
  return path_.empty() ? std::string(name) : Concat(path_, ".", name);
}

void FieldReader::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void FieldReader::Fail(std::string_view name, std::string_view code, std::string_view message) {
  const std::string path = PathOf(name);
  Fail(FieldError(path, code, Concat(path, " ", message)));
}

void FieldReader::Absorb(const FieldReader& nested) {
  Fail(nested.status());
  num_unknown_inside_ += nested.num_unknown();
}

void FieldReader::FailType(std::string_view name, std::string_view wanted,
                           const json::value& value) {
  Fail(name, "invalid_type", Concat("must be ", wanted, ", not ", KindName(value)));
}

const json::value* FieldReader::Find(std::string_view name) {
  known_.insert(std::string(name));
  if (!ok()) return nullptr;
  const auto field = object_.find(name);
  if (field == object_.end() || field->value().is_null()) return nullptr;
  return &field->value();
}

const json::array* FieldReader::Array(std::string_view name, size_t max_size) {
  const json::value* value = Find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    FailType(name, "an array", *value);
    return nullptr;
  }
  if (value->get_array().size() > max_size) {
    Fail(name, "out_of_range",
         Concat("has ", value->get_array().size(), " elements, more than ", max_size));
    return nullptr;
  }
  return &value->get_array();
}

const json::object* FieldReader::Object(std::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) {
    FailType(name, "an object", *value);
    return nullptr;
  }
  return &value->get_object();
}

void FieldReader::Bool(std::string_view name, bool& out) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_bool()) return FailType(name, "a boolean", *value);
  out = value->get_bool();
}

void FieldReader::Int(std::string_view name, int64_t min, int64_t max, int64_t& out) {
  std::optional<int64_t> read;
  Int(name, min, max, read);
  if (read) out = *read;
}

void FieldReader::Int(std::string_view name, int64_t min, int64_t max,
                      std::optional<int64_t>& out) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_number()) return FailType(name, "an integer", *value);
  const std::optional<int64_t> number = AsInteger(*value);
  if (!number && value->is_double() && std::abs(value->get_double()) < 1e15) {
    return FailType(name, "an integer", *value);
  }
  if (!number || *number < min || *number > max) {
    const std::string shown = number ? std::to_string(*number) : "a number of that size";
    return Fail(name, "out_of_range", Concat(shown, " is not in [", min, ", ", max, "]"));
  }
  out = *number;
}

void FieldReader::FloatIn(std::string_view name, double min, bool open, double max,
                          std::optional<double>& out) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_number()) return FailType(name, "a number", *value);
  const double number = value->to_number<double>();
  if (!(open ? number > min : number >= min) || !(number <= max)) {
    return Fail(name, "out_of_range",
                Concat(Shown(number), " is not in ", open ? "(" : "[", min, ", ", max, "]"));
  }
  out = number;
}

void FieldReader::Float(std::string_view name, double min, double max, std::optional<double>& out) {
  FloatIn(name, min, /*open=*/false, max, out);
}

void FieldReader::FloatAbove(std::string_view name, double min, double max,
                             std::optional<double>& out) {
  FloatIn(name, min, /*open=*/true, max, out);
}

void FieldReader::String(std::string_view name, size_t max_bytes, std::string& out) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return FailType(name, "a string", *value);
  const json::string& text = value->get_string();
  if (text.size() > max_bytes) {
    return Fail(name, "out_of_range", Concat("has ", text.size(), " bytes, more than ", max_bytes));
  }
  out.assign(text.data(), text.size());
}

void FieldReader::Refuse(std::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr || IsNothing(*value)) return;
  Fail(name, "unsupported_field", "is not supported");
}

int FieldReader::num_unknown() const {
  int num_unknown = num_unknown_inside_;
  for (const auto& field : object_) {
    if (!known_.contains(std::string(field.key()))) ++num_unknown;
  }
  return num_unknown;
}

void ReadTokenIds(FieldReader& reader, std::string_view name, const json::array& array,
                  int vocab_size, std::vector<int32_t>& out) {
  out.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const std::optional<int64_t> id = AsInteger(array[i]);
    if (!id) {
      const std::string element = Concat(name, "[", i, "]");
      return reader.Fail(element, "invalid_type",
                         Concat("must be an integer, not ", KindName(array[i])));
    }
    if (*id < 0 || *id >= vocab_size) {
      const std::string element = Concat(name, "[", i, "]");
      return reader.Fail(element, "out_of_range",
                         Concat(*id, " is not a token id in [0, ", vocab_size, ")"));
    }
    out.push_back(static_cast<int32_t>(*id));
  }
}

}  // namespace weightless::router
