#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <optional>

#include "common/concat.h"
#include "common/json.h"
#include "common/status.h"
#include "loadtest/dataset.h"
#include "loadtest/text_file.h"

namespace weightless::loadtest {
namespace {

namespace json = boost::json;

constexpr int64_t kMaxOutputTokens = 4'000'000;

struct Item {
  std::vector<Message> messages;
  std::string completion;  // what the recorded model answered
  std::optional<size_t> output_tokens;
};

class JsonlDataset : public Dataset {
 public:
  explicit JsonlDataset(std::vector<Prompt> prompts) : prompts_(std::move(prompts)) {}
  Prompt Get(uint64_t index) const override { return prompts_[index % prompts_.size()]; }
  std::optional<uint64_t> size() const override { return prompts_.size(); }

 private:
  const std::vector<Prompt> prompts_;
};

std::optional<std::string> TextIn(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(value->get_string().data(), value->get_string().size());
}

std::string RoleOf(const std::string& from) {
  if (from == "human" || from == "user") return "user";
  return from == "system" ? "system" : "assistant";
}

// Reads turns up to the first of the user; the next one is the recorded answer.
absl::Status ReadTurns(const json::array& turns, const char* role_key, const char* text_key,
                       Item& item) {
  bool was_asked = false;
  for (const json::value& turn : turns) {
    const json::object* object = turn.if_object();
    const auto from = object == nullptr ? std::nullopt : TextIn(*object, role_key);
    const auto text = object == nullptr ? std::nullopt : TextIn(*object, text_key);
    if (!from || !text) {
      return absl::InvalidArgumentError(Concat("a turn lacks ", role_key, " or ", text_key));
    }
    const std::string role = RoleOf(*from);
    if (was_asked) {
      item.completion = *text;
      return absl::OkStatus();
    }
    if (role == "assistant") continue;  // an answer to nothing
    item.messages.push_back({role, *text});
    was_asked = role == "user";
  }
  if (was_asked) return absl::OkStatus();
  return absl::InvalidArgumentError("no turn of a user");
}

absl::StatusOr<Item> ReadItem(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) return absl::InvalidArgumentError("not a JSON object");
  Item item;
  item.completion = TextIn(*object, "completion").value_or("");
  if (const json::value* turns = object->if_contains("conversations"); turns && turns->is_array()) {
    RETURN_IF_ERROR(ReadTurns(turns->get_array(), "from", "value", item));
  } else if (turns = object->if_contains("messages"); turns && turns->is_array()) {
    RETURN_IF_ERROR(ReadTurns(turns->get_array(), "role", "content", item));
  } else if (const auto prompt = TextIn(*object, "prompt")) {
    item.messages.push_back({"user", *prompt});
  } else {
    return absl::InvalidArgumentError("neither conversations, messages nor prompt");
  }
  if (const json::value* tokens = object->if_contains("output_tokens")) {
    const int64_t* count = tokens->if_int64();
    if (count == nullptr || *count < 1 || *count > kMaxOutputTokens) {
      return absl::InvalidArgumentError(
          Concat("output_tokens is not between 1 and ", kMaxOutputTokens));
    }
    item.output_tokens = static_cast<size_t>(*count);
  }
  return item;
}

absl::StatusOr<std::vector<Item>> ReadItems(std::string_view text) {
  std::vector<Item> items;
  const auto add = [&items](const json::value& value) -> absl::Status {
    ASSIGN_OR_RETURN(Item item, ReadItem(value));
    items.push_back(std::move(item));
    return absl::OkStatus();
  };
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '[') {
    ASSIGN_OR_RETURN(const json::value all, ParseJson(text));
    for (size_t i = 0; i < all.get_array().size(); ++i) {
      const absl::Status status = add(all.get_array()[i]);
      if (!status.ok()) {
        return absl::InvalidArgumentError(Concat("item ", i, ": ", std::string(status.message())));
      }
    }
  } else {
    RETURN_IF_ERROR(ForEachLine(text, [&](std::string_view line) -> absl::Status {
      ASSIGN_OR_RETURN(const json::value value, ParseJson(line));
      return add(value);
    }));
  }
  if (items.empty()) return absl::InvalidArgumentError("the dataset is empty");
  return items;
}

void Shuffle(std::vector<Item>& items, uint64_t seed) {
  Random random(seed);
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.Below(i)]);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> MakeJsonlDataset(std::string_view text,
                                                          const DatasetConfig& config,
                                                          uint64_t seed,
                                                          const TokenCounter& count) {
  ASSIGN_OR_RETURN(std::vector<Item> items, ReadItems(text));
  Shuffle(items, seed);
  std::vector<std::string> texts;
  for (const Item& item : items) {
    std::string joined;
    for (const Message& message : item.messages) joined += message.content;
    texts.push_back(std::move(joined));
    texts.push_back(item.completion);
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> counts, count(texts));
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < items.size(); ++i) {
    Random random(seed, i);
    const LengthRange range = config.output_tokens;
    Prompt prompt{.messages = std::move(items[i].messages),
                  .num_tokens = counts[2 * i],
                  .max_tokens = random.Between(range.low, range.high)};
    if (!config.output_is_given) {
      const size_t recorded = items[i].output_tokens.value_or(counts[2 * i + 1]);
      if (recorded > 0) prompt.max_tokens = recorded;
    }
    prompts.push_back(std::move(prompt));
  }
  return std::make_unique<JsonlDataset>(std::move(prompts));
}

}  // namespace weightless::loadtest
