// Typed look-ups in one object of a request body, strict about types.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"

namespace weightless::router {

// Each look-up leaves `out` alone when the field is absent or null. The first error sticks, later
// look-ups do nothing, and status() has it at the end, with code and param. A number may be spelled
// 3.0 where an integer belongs; a string never stands for a number.
class FieldReader {
 public:
  // `path` names the object in messages: "" for the body, "stream_options", "messages[0]".
  FieldReader(const boost::json::object& object, std::string path);

  void Bool(std::string_view name, bool& out);
  void Int(std::string_view name, int64_t min, int64_t max, int64_t& out);
  void Int(std::string_view name, int64_t min, int64_t max, std::optional<int64_t>& out);
  void Float(std::string_view name, double min, double max, std::optional<double>& out);
  // The same for values above, not at, `min`.
  void FloatAbove(std::string_view name, double min, double max, std::optional<double>& out);
  void String(std::string_view name, size_t max_bytes, std::string& out);

  // The value of a field with a shape of its own; null when it is absent, null or an error stuck.
  const boost::json::value* Find(std::string_view name);
  const boost::json::array* Array(std::string_view name, size_t max_size);
  const boost::json::object* Object(std::string_view name);

  // A field that is understood and has no effect here.
  void Accept(std::string_view name) { known_.insert(std::string(name)); }
  // A field that is refused unless it is absent, null, false, "none" or empty.
  void Refuse(std::string_view name);

  void Fail(absl::Status status);
  // An error about the field `name`.
  void Fail(std::string_view name, std::string_view code, std::string_view message);
  // The error and the unknown fields of an object inside this one.
  void Absorb(const FieldReader& nested);

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  std::string PathOf(std::string_view name) const;
  // Fields no look-up has asked for, and those of the objects absorbed.
  int num_unknown() const;

 private:
  void FailType(std::string_view name, std::string_view wanted, const boost::json::value& value);
  void FloatIn(std::string_view name, double min, bool open, double max,
               std::optional<double>& out);

  const boost::json::object& object_;
  const std::string path_;
  absl::flat_hash_set<std::string> known_;
  int num_unknown_inside_ = 0;
  absl::Status status_;
};

// "a string", "an integer", ...: what a value is, for messages.
std::string_view KindName(const boost::json::value& value);

// The integer a value is, if it is one (3.0 is) and fits.
std::optional<int64_t> AsInteger(const boost::json::value& value);

// Token ids in [0, vocab_size); errors name the element.
void ReadTokenIds(FieldReader& reader, std::string_view name, const boost::json::array& array,
                  int vocab_size, std::vector<int32_t>& out);

}  // namespace weightless::router
