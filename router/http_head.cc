#include "router/http_head.h"

#include <charconv>

#include "absl/strings/match.h"
#include "common/concat.h"
#include "common/status.h"
#include "router/api_error.h"
#include "router/random_id.h"

namespace weightless::router {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;

absl::Status Bad(std::string_view message) {
  return ErrorWithCode(absl::StatusCode::kInvalidArgument, "bad_request", message);
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

bool SameName(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase(View(a), View(b));
}

// The values of all fields of a name.
struct FieldValues {
  int count = 0;
  std::string_view first;
};

FieldValues ValuesOf(std::span<const HeaderField> fields, std::string_view name) {
  FieldValues values;
  for (const HeaderField& field : fields) {
    if (!SameName(field.name, name)) continue;
    if (values.count++ == 0) values.first = field.value;
  }
  return values;
}

absl::Status CheckFraming(const RawHead& raw) {
  const FieldValues length = ValuesOf(raw.fields, "Content-Length");
  const FieldValues coding = ValuesOf(raw.fields, "Transfer-Encoding");
  const FieldValues host = ValuesOf(raw.fields, "Host");
  if (length.count > 1) return Bad("more than one Content-Length");
  if (length.count == 1 && (length.first.empty() || length.first.find_first_not_of("0123456789") !=
                                                        std::string_view::npos)) {
    return Bad("Content-Length is not a number");
  }
  if (coding.count > 0 && length.count > 0) {
    return Bad("both Content-Length and Transfer-Encoding");
  }
  if (coding.count > 1 || (coding.count == 1 && !SameName(coding.first, "chunked"))) {
    return Bad("a Transfer-Encoding other than chunked");
  }
  if (coding.count > 0 && raw.version < 11) return Bad("Transfer-Encoding in HTTP/1.0");
  if (host.count > 1) return Bad("more than one Host");
  if (host.count == 0 && raw.version >= 11) return Bad("no Host");
  return absl::OkStatus();
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The path of a target, in origin or absolute form, without its query.
absl::StatusOr<std::string> PathOf(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(View(target), View(scheme))) continue;
    target.remove_prefix(std::min(target.find_first_of("/?#", scheme.size()), target.size()));
    if (!target.starts_with('/')) target = "/";
    break;
  }
  if (!target.starts_with('/')) return Bad(Concat("the target ", Quoted(target), " is no path"));
  target = target.substr(0, target.find_first_of("?#"));
  std::string path;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] != '%') {
      path += target[i];
      continue;
    }
    const int high = i + 2 < target.size() ? HexValue(target[i + 1]) : -1;
    const int low = high >= 0 ? HexValue(target[i + 2]) : -1;
    if (low < 0) return Bad(Concat("the target ", Quoted(target), " has a broken % escape"));
    path += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return path;
}

bool IsRequestId(std::string_view id) {
  if (id.empty() || id.size() > kMaxRequestIdBytes) return false;
  for (const char c : id) {
    const bool is_alnum =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!is_alnum && std::string_view("._:/+=@-").find(c) == std::string_view::npos) return false;
  }
  return true;
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Error";
  }
}

}  // namespace

absl::StatusOr<RequestHead> ReadRequestHead(const RawHead& raw) {
  RETURN_IF_ERROR(CheckFraming(raw));
  RequestHead head;
  HttpRequest& request = head.request;
  ASSIGN_OR_RETURN(request.path, PathOf(raw.target));
  head.is_head = raw.method == "HEAD";
  request.method = head.is_head ? "GET" : std::string(raw.method);
  request.content_type = ValuesOf(raw.fields, "Content-Type").first;
  request.content_encoding = ValuesOf(raw.fields, "Content-Encoding").first;
  const FieldValues authorization = ValuesOf(raw.fields, "Authorization");
  if (authorization.count > 1) return Bad("more than one Authorization");
  request.authorization = authorization.first;
  const std::string_view id = ValuesOf(raw.fields, "X-Request-Id").first;
  request.request_id = IsRequestId(id) ? std::string(id) : RandomHexId();
  const FieldValues expect = ValuesOf(raw.fields, "Expect");
  if (expect.count > 0 && !SameName(expect.first, "100-continue")) {
    return ErrorWithCode(absl::StatusCode::kUnimplemented, "expectation_failed",
                         Concat("cannot meet the expectation ", Quoted(expect.first)));
  }
  head.expects_continue = expect.count > 0 && raw.version >= 11;
  return head;
}

std::string ResponseHeadText(const HttpResponse& response, const ResponseFraming& framing,
                             std::string_view request_id, absl::Time now) {
  std::string text =
      Concat("HTTP/1.1 ", response.status, " ", ReasonPhrase(response.status),
             "\r\nDate: ", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", now, absl::UTCTimeZone()),
             "\r\nContent-Type: ", response.content_type);
  if (framing.content_length) {
    text += Concat("\r\nContent-Length: ", *framing.content_length);
  } else if (framing.version >= 11) {
    text += "\r\nTransfer-Encoding: chunked";
  }
  text += Concat("\r\nX-Request-Id: ", request_id);
  for (const auto& [name, value] : response.headers) text += Concat("\r\n", name, ": ", value);
  if (!framing.keep_alive) {
    text += "\r\nConnection: close";
  } else if (framing.version < 11) {
    text += "\r\nConnection: keep-alive";
  }
  text += "\r\n\r\n";
  return text;
}

HttpResponse EventStreamResponse() {
  HttpResponse response;
  response.content_type = "text/event-stream; charset=utf-8";
  response.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  return response;
}

std::string ChunkSizeLine(size_t size) {
  char digits[16];
  char* const end = std::to_chars(digits, digits + sizeof(digits), size, 16).ptr;
  std::string line(digits, end);
  line += "\r\n";
  return line;
}

}  // namespace weightless::router
