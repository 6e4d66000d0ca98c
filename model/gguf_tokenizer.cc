// Tokenizer::FromGguf: the tokenizer.ggml.* metadata.
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/concat.h"
#include "common/status.h"
#include "model/gguf_header.h"
#include "model/piece_merges.h"
#include "model/tokenizer_parts.h"
#include "model/utf8.h"

namespace weightless::model {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";
enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

template <typename Array>
absl::StatusOr<const Array*> RequireArray(const GgufHeader& header, std::string_view key) {
  ASSIGN_OR_RETURN(const Array* array, header.GetArray<Array>(key));
  if (array == nullptr) return Invalid(header.name(), ": ", key, " is missing");
  return array;
}

absl::Status CheckSize(const GgufHeader& header, std::string_view key, size_t size,
                       size_t num_tokens) {
  if (size == num_tokens) return absl::OkStatus();
  return Invalid(header.name(), ": ", key, " has ", size, " entries, but ", kTokens, " has ",
                 num_tokens);
}

absl::Status CheckFeatures(const GgufHeader& header) {
  for (const std::string_view key :
       {"tokenizer.ggml.add_space_prefix", "tokenizer.ggml.remove_extra_whitespaces"}) {
    ASSIGN_OR_RETURN(const std::optional<bool> value, header.GetBool(key));
    if (value.value_or(false)) {
      return Invalid(header.name(), ": ", key, " is true; only false is supported");
    }
  }
  if (header.Find("tokenizer.ggml.precompiled_charsmap") != nullptr) {
    return Invalid(header.name(), ": tokenizer.ggml.precompiled_charsmap is not supported");
  }
  return absl::OkStatus();
}

// Converters write <mask> and <unusedN> as control tokens though nothing flags them special.
bool IsPlaceholder(std::string_view piece) {
  if (piece == "<mask>") return true;
  constexpr std::string_view kPrefix = "<unused";
  if (!piece.starts_with(kPrefix) || !piece.ends_with(">")) return false;
  const std::string_view digits = piece.substr(kPrefix.size(), piece.size() - kPrefix.size() - 1);
  return !digits.empty() &&
         std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Converters turn U+2581 of user-defined tokens into spaces; here pieces spell it.
std::string WithSpaceMarks(std::string_view piece) {
  std::string marked;
  for (const char c : piece) {
    if (c == ' ') {
      marked += kSpaceMark;
    } else {
      marked += c;
    }
  }
  return marked;
}

absl::Status ReadVocabulary(const GgufHeader& header, Vocabulary& vocabulary) {
  ASSIGN_OR_RETURN(const GgufStrings* tokens, RequireArray<GgufStrings>(header, kTokens));
  ASSIGN_OR_RETURN(const GgufInts* types, RequireArray<GgufInts>(header, kTypes));
  RETURN_IF_ERROR(CheckSize(header, kTypes, types->size(), tokens->size()));
  if (tokens->size() > static_cast<size_t>(Vocabulary::kMaxTokens)) {
    return Invalid(header.name(), ": ", kTokens, " has ", tokens->size(), " entries, limit ",
                   Vocabulary::kMaxTokens);
  }
  for (size_t i = 0; i < tokens->size(); ++i) {
    const std::string_view piece = (*tokens)[i];
    const int64_t type = (*types)[i];
    const bool control = type == kUnknown || type == kControl;
    if (type < kNormal || type > kByte) {
      return Invalid(header.name(), ": ", kTypes, "[", i, "] is ", type, ", not in [1, 6]");
    }
    const Vocabulary::Flags flags = {.added = control || type == kUserDefined,
                                     .special = control && !IsPlaceholder(piece),
                                     .unused = type == kUnused};
    const absl::Status status =
        type == kUserDefined ? vocabulary.Add(static_cast<int32_t>(i), WithSpaceMarks(piece), flags)
                             : vocabulary.Add(static_cast<int32_t>(i), piece, flags);
    if (!status.ok()) return Annotate(status, Concat(header.name(), ": ", kTokens));
  }
  return absl::OkStatus();
}

absl::Status MergesByScore(const GgufHeader& header, TokenizerParts& parts) {
  ASSIGN_OR_RETURN(const GgufFloats* scores, RequireArray<GgufFloats>(header, kScores));
  RETURN_IF_ERROR(
      CheckSize(header, kScores, scores->size(), static_cast<size_t>(parts.vocabulary.size())));
  for (size_t i = 0; i < scores->size(); ++i) {
    if (!std::isfinite((*scores)[i])) {
      return Invalid(header.name(), ": ", kScores, "[", i, "] is not finite");
    }
  }
  absl::StatusOr<std::vector<Merge>> merges = MergesFromScores(parts.vocabulary, *scores);
  if (!merges.ok()) return Annotate(merges.status(), header.name());
  parts.merges = *std::move(merges);
  return absl::OkStatus();
}

// Each entry is "left right", split at the first space behind the first byte.
absl::Status ListedMerges(const GgufHeader& header, TokenizerParts& parts) {
  ASSIGN_OR_RETURN(const GgufStrings* merges, RequireArray<GgufStrings>(header, kMerges));
  if (merges->size() > kMaxMerges) {
    return Invalid(header.name(), ": ", kMerges, " has ", merges->size(), " entries, limit ",
                   kMaxMerges);
  }
  for (size_t i = 0; i < merges->size(); ++i) {
    const std::string_view both = (*merges)[i];
    const size_t space = both.find(' ', 1);
    const std::string where = Concat(header.name(), ": ", kMerges, "[", i, "]");
    if (space == std::string_view::npos) {
      return Invalid(where, " is ", Quoted(both), ", not two pieces");
    }
    absl::StatusOr<Merge> merge =
        ResolveMerge(parts.vocabulary, both.substr(0, space), both.substr(space + 1));
    if (!merge.ok()) return Annotate(merge.status(), where);
    parts.merges.push_back(*merge);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromGguf(std::string_view header_bytes,
                                                               std::string_view name) {
  ASSIGN_OR_RETURN(const GgufHeader header, GgufHeader::Parse(header_bytes, name));
  ASSIGN_OR_RETURN(const auto model, header.GetString("tokenizer.ggml.model"));
  RETURN_IF_ERROR(CheckFeatures(header));
  TokenizerParts parts;
  RETURN_IF_ERROR(ReadVocabulary(header, parts.vocabulary));
  if (model == "llama") {
    RETURN_IF_ERROR(MergesByScore(header, parts));
  } else if (model == "gemma4" || model == "gpt2") {
    RETURN_IF_ERROR(ListedMerges(header, parts));
  } else {
    return Invalid(name, ": tokenizer.ggml.model is ", Quoted(model.value_or("")),
                   "; only \"llama\", \"gemma4\" and \"gpt2\" are supported");
  }
  ASSIGN_OR_RETURN(const auto bos_id, header.GetInt("tokenizer.ggml.bos_token_id"));
  if (bos_id.has_value() && (*bos_id < 0 || *bos_id >= parts.vocabulary.size())) {
    return Invalid(name, ": tokenizer.ggml.bos_token_id is ", *bos_id, ", not in [0, ",
                   parts.vocabulary.size(), ")");
  }
  parts.bos_id =
      bos_id.has_value() ? static_cast<int32_t>(*bos_id) : parts.vocabulary.Find("<bos>");
  return MakeTokenizer(std::move(parts), name);
}

}  // namespace weightless::model
