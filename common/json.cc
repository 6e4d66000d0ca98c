#include "common/json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value.hpp>
#include <boost/json/value_stack.hpp>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/concat.h"

namespace weightless {
namespace {

namespace json = boost::json;
using json::error_code;
using json::string_view;

// Builds a value from parser events as json::parser does, and refuses a key that an object already
// has.
class StrictHandler {
 public:
  static constexpr size_t max_object_size = json::object::max_size();
  static constexpr size_t max_array_size = json::array::max_size();
  static constexpr size_t max_key_size = json::string::max_size();
  static constexpr size_t max_string_size = json::string::max_size();

  explicit StrictHandler(json::storage_ptr storage) { stack_.reset(std::move(storage)); }
  json::value Release() { return stack_.release(); }
  const std::string& duplicate_key() const { return duplicate_key_; }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    keys_.emplace_back();
    return true;
  }
  bool on_object_end(size_t n, error_code&) {
    keys_.pop_back();
    stack_.push_object(n);
    return true;
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(size_t n, error_code&) {
    stack_.push_array(n);
    return true;
  }
  bool on_key_part(string_view s, size_t, error_code&) {
    key_.append(s.data(), s.size());
    stack_.push_chars(s);
    return true;
  }
  bool on_key(string_view s, size_t, error_code& ec) {
    key_.append(s.data(), s.size());
    stack_.push_key(s);
    if (!keys_.back().insert(key_).second) {
      duplicate_key_ = key_;
      ec = json::error::extra_data;
      return false;
    }
    key_.clear();
    return true;
  }
  bool on_string_part(string_view s, size_t, error_code&) {
    stack_.push_chars(s);
    return true;
  }
  bool on_string(string_view s, size_t, error_code&) {
    stack_.push_string(s);
    return true;
  }
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(int64_t i, string_view, error_code&) {
    stack_.push_int64(i);
    return true;
  }
  bool on_uint64(uint64_t u, string_view, error_code&) {
    stack_.push_uint64(u);
    return true;
  }
  bool on_double(double d, string_view, error_code&) {
    stack_.push_double(d);
    return true;
  }
  bool on_bool(bool b, error_code&) {
    stack_.push_bool(b);
    return true;
  }
  bool on_null(error_code&) {
    stack_.push_null();
    return true;
  }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

 private:
  json::value_stack stack_;
  std::vector<absl::flat_hash_set<std::string>> keys_;  // of each open object
  std::string key_;
  std::string duplicate_key_;
};

}  // namespace

absl::StatusOr<boost::json::value> ParseJson(std::string_view text, JsonLimits limits) {
  json::parse_options options;
  options.max_depth = limits.max_depth;
  json::basic_parser<StrictHandler> parser(options, json::storage_ptr());
  error_code ec;
  const size_t read = parser.write_some(false, text.data(), text.size(), ec);
  if (!parser.handler().duplicate_key().empty() ||
      (ec == json::error::extra_data && !parser.done())) {
    return absl::InvalidArgumentError(Concat("JSON has the key ",
                                             Quoted(parser.handler().duplicate_key()),
                                             " twice in one object (byte ", read, ")"));
  }
  if (ec) {
    return absl::InvalidArgumentError(
        absl::StrCat("not valid JSON: ", ec.message(), " at byte ", read));
  }
  for (size_t i = read; i < text.size(); ++i) {
    if (std::string_view(" \t\r\n").find(text[i]) == std::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("not valid JSON: extra data after the value at byte ", i));
    }
  }
  return parser.handler().Release();
}

}  // namespace weightless
