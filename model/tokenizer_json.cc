// Tokenizer::FromTokenizerJson: the file of the Hugging Face tokenizers library, restricted to what
// Gemma uses. A feature that would change the ids and is not supported is an error.
#include <boost/json/value.hpp>
#include <utility>

#include "common/concat.h"
#include "common/json.h"
#include "common/status.h"
#include "model/json_fields.h"
#include "model/tokenizer_parts.h"
#include "model/utf8.h"

namespace weightless::model {
namespace {

namespace json = boost::json;

bool HasStringPattern(const json::object& object, std::string_view expected) {
  const json::value* pattern = FindSet(object, "pattern");
  return pattern != nullptr && pattern->is_object() &&
         IsString(pattern->get_object(), "String", expected);
}

absl::Status CheckNormalizer(const json::object& root) {
  const json::value* value = FindSet(root, "normalizer");
  if (value != nullptr && value->is_object()) {
    const json::object& object = value->get_object();
    if (IsString(object, "type", "Replace") && HasStringPattern(object, " ") &&
        IsString(object, "content", kSpaceMark)) {
      return absl::OkStatus();
    }
  }
  return Invalid("normalizer: only the replacement of spaces by U+2581 is supported");
}

// Null, or a split at spaces: no space is left after the normalizer.
absl::Status CheckPreTokenizer(const json::object& root) {
  const json::value* value = FindSet(root, "pre_tokenizer");
  if (value == nullptr) return absl::OkStatus();
  if (value->is_object() && IsString(value->get_object(), "type", "Split") &&
      HasStringPattern(value->get_object(), " ")) {
    return Annotate(RequireBool(value->get_object(), "invert", false), "pre_tokenizer");
  }
  return Invalid("pre_tokenizer: only a split at spaces is supported");
}

// Decoding is fixed: U+2581 to space, byte fallback, all joined; a decoder that does more, such as
// stripping a leading space, would give other text.
absl::Status CheckDecoder(const json::object& root) {
  const json::value* value = FindSet(root, "decoder");
  if (value == nullptr) return absl::OkStatus();
  const json::value* steps = value->is_object() && IsString(value->get_object(), "type", "Sequence")
                                 ? FindSet(value->get_object(), "decoders")
                                 : nullptr;
  if (steps == nullptr || !steps->is_array()) {
    return Invalid("decoder: only a sequence of decoders is supported");
  }
  for (const json::value& step : steps->get_array()) {
    const bool known = step.is_object() && (IsString(step.get_object(), "type", "ByteFallback") ||
                                            IsString(step.get_object(), "type", "Fuse") ||
                                            (IsString(step.get_object(), "type", "Replace") &&
                                             HasStringPattern(step.get_object(), kSpaceMark) &&
                                             IsString(step.get_object(), "content", " ")));
    if (known) continue;
    const json::value* type = step.is_object() ? FindSet(step.get_object(), "type") : nullptr;
    return Invalid("decoder: step ", ShowJson(type == nullptr ? step : *type),
                   " is not supported; only U+2581 to space, ByteFallback and Fuse are");
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const json::object& model) {
  if (!IsString(model, "type", "BPE")) {
    const json::value* type = FindSet(model, "type");
    return Invalid("model.type is ", type == nullptr ? "missing" : ShowJson(*type),
                   "; only \"BPE\" is supported");
  }
  for (const std::string_view key :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const json::value* value = FindSet(model, key)) {
      if (value->is_string() && value->get_string().empty()) continue;
      return Invalid("model.", key, " is ", ShowJson(*value), "; only null is supported");
    }
  }
  const json::value* fallback = FindSet(model, "byte_fallback");
  if (fallback == nullptr || !fallback->is_bool() || !fallback->get_bool()) {
    return Invalid("model.byte_fallback is not true; nothing else is supported");
  }
  return Annotate(RequireBool(model, "ignore_merges", false), "model");
}

absl::Status ReadVocabulary(const json::object& model, Vocabulary& vocabulary) {
  const json::value* vocab = FindSet(model, "vocab");
  if (vocab == nullptr || !vocab->is_object()) return Invalid("model.vocab is not an object");
  const json::object& pieces = vocab->get_object();
  if (pieces.size() > static_cast<size_t>(Vocabulary::kMaxTokens)) {
    return Invalid("model.vocab has ", pieces.size(), " pieces, limit ", Vocabulary::kMaxTokens);
  }
  for (const json::key_value_pair& entry : pieces) {
    const std::string_view piece(entry.key().data(), entry.key().size());
    const json::value& id = entry.value();
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= Vocabulary::kMaxTokens) {
      return Invalid("model.vocab: the id of ", Quoted(piece), " is not an integer in [0, ",
                     Vocabulary::kMaxTokens, ")");
    }
    const absl::Status added =
        vocabulary.Add(static_cast<int32_t>(id.get_int64()), piece, Vocabulary::Flags{});
    if (!added.ok()) return Annotate(added, "model.vocab");
  }
  return absl::OkStatus();
}

absl::StatusOr<Merge> ReadMerge(const json::value& entry, const Vocabulary& vocabulary) {
  if (entry.is_array() && entry.get_array().size() == 2 && entry.get_array()[0].is_string() &&
      entry.get_array()[1].is_string()) {
    return ResolveMerge(vocabulary, View(entry.get_array()[0].get_string()),
                        View(entry.get_array()[1].get_string()));
  }
  // Older files join the two by a space, which no piece contains.
  if (entry.is_string()) {
    const std::string_view both = View(entry.get_string());
    const size_t space = both.find(' ');
    if (space != std::string_view::npos && both.find(' ', space + 1) == std::string_view::npos) {
      return ResolveMerge(vocabulary, both.substr(0, space), both.substr(space + 1));
    }
  }
  return Invalid(ShowJson(entry), " is not a pair of pieces");
}

absl::Status ReadMerges(const json::object& model, TokenizerParts& parts) {
  const json::value* merges = FindSet(model, "merges");
  if (merges == nullptr || !merges->is_array()) return Invalid("model.merges is not an array");
  const json::array& entries = merges->get_array();
  if (entries.size() > kMaxMerges) {
    return Invalid("model.merges has ", entries.size(), " entries, limit ", kMaxMerges);
  }
  parts.merges.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    absl::StatusOr<Merge> merge = ReadMerge(entries[i], parts.vocabulary);
    if (!merge.ok()) return Annotate(merge.status(), Concat("model.merges[", i, "]"));
    parts.merges.push_back(*merge);
  }
  return absl::OkStatus();
}

absl::Status ReadAddedEntry(const json::value& entry, Vocabulary& vocabulary) {
  if (!entry.is_object()) return Invalid("is ", ShowJson(entry), ", not an object");
  const json::value* id = FindSet(entry.get_object(), "id");
  if (id == nullptr || !id->is_int64() || id->get_int64() < 0 ||
      id->get_int64() >= Vocabulary::kMaxTokens) {
    return Invalid("id is not an integer in [0, ", Vocabulary::kMaxTokens, ")");
  }
  const int32_t token_id = static_cast<int32_t>(id->get_int64());
  if (vocabulary.flags(token_id).added) return Invalid("id ", token_id, " is given twice");
  return ReadAddedToken(token_id, entry.get_object(), vocabulary);
}

absl::Status ReadAddedTokens(const json::object& root, Vocabulary& vocabulary) {
  const json::value* tokens = FindSet(root, "added_tokens");
  if (tokens == nullptr) return absl::OkStatus();
  if (!tokens->is_array()) return Invalid("added_tokens is not an array");
  for (size_t i = 0; i < tokens->get_array().size(); ++i) {
    const absl::Status status = ReadAddedEntry(tokens->get_array()[i], vocabulary);
    if (!status.ok()) return Annotate(status, Concat("added_tokens[", i, "]"));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizerParts> ReadTokenizer(std::string_view text) {
  ASSIGN_OR_RETURN(const json::value document, ParseJson(text));
  if (!document.is_object()) return Invalid("the file is not a JSON object");
  const json::object& root = document.get_object();
  const json::value* model = FindSet(root, "model");
  if (model == nullptr || !model->is_object()) return Invalid("model is not an object");
  RETURN_IF_ERROR(CheckModel(model->get_object()));
  RETURN_IF_ERROR(CheckNormalizer(root));
  RETURN_IF_ERROR(CheckPreTokenizer(root));
  RETURN_IF_ERROR(CheckDecoder(root));
  TokenizerParts parts;
  RETURN_IF_ERROR(ReadVocabulary(model->get_object(), parts.vocabulary));
  RETURN_IF_ERROR(ReadMerges(model->get_object(), parts));
  RETURN_IF_ERROR(ReadAddedTokens(root, parts.vocabulary));
  parts.bos_id = parts.vocabulary.Find("<bos>");
  return parts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromTokenizerJson(std::string_view text,
                                                                        std::string_view name) {
  absl::StatusOr<TokenizerParts> parts = ReadTokenizer(text);
  if (!parts.ok()) return Annotate(parts.status(), name);
  return MakeTokenizer(*std::move(parts), name);
}

}  // namespace weightless::model
