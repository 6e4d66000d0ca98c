#include "model/tokenizer.h"

#include <utility>

#include "absl/status/status.h"
#include "common/concat.h"
#include "common/status.h"
#include "model/added_tokens.h"
#include "model/bpe.h"
#include "model/detokenizer.h"
#include "model/tokenizer_parts.h"
#include "model/utf8.h"

namespace weightless::model {
namespace {

// A stretch [begin, end) of the whole text in which special tokens are recognised.
struct Range {
  size_t begin;
  size_t end;
};

// The text of all pieces, and where special tokens are allowed; neighbouring stretches are joined.
std::string Join(std::span<const TextPiece> pieces, std::vector<Range>& special_ranges) {
  std::string text;
  for (const TextPiece& piece : pieces) {
    const size_t begin = text.size();
    text += piece.text;
    if (!piece.parse_special || piece.text.empty()) continue;
    if (!special_ranges.empty() && special_ranges.back().end == begin) {
      special_ranges.back().end = text.size();
    } else {
      special_ranges.push_back({begin, text.size()});
    }
  }
  return text;
}

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerParts parts)
      : vocabulary_(std::move(parts.vocabulary)),
        added_tokens_(vocabulary_),
        encoder_(vocabulary_, parts.merges),
        bos_id_(parts.bos_id) {}

  std::vector<int32_t> Encode(std::span<const TextPiece> pieces) const override;

  int vocab_size() const override { return vocabulary_.size(); }
  int32_t bos_id() const override { return bos_id_; }
  int32_t FindToken(std::string_view piece) const override { return vocabulary_.Find(piece); }
  bool IsSpecial(int32_t id) const override { return vocabulary_.flags(id).special; }
  std::string_view TokenBytes(int32_t id) const override { return vocabulary_.Text(id); }
  bool IsByteToken(int32_t id) const override { return vocabulary_.IsByteToken(id); }

 private:
  const Vocabulary vocabulary_;
  const AddedTokens added_tokens_;
  const BpeEncoder encoder_;
  const int32_t bos_id_;
};

std::vector<int32_t> BpeTokenizer::Encode(std::span<const TextPiece> pieces) const {
  std::vector<Range> special_ranges;
  const std::string joined = Join(pieces, special_ranges);
  const std::string_view text = joined;
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 4);
  BpeEncoder::Scratch scratch;
  std::string normalized;  // of the segment since the last added token
  auto range = special_ranges.begin();
  for (size_t i = 0; i < text.size();) {
    std::optional<AddedTokens::Match> match;
    if (added_tokens_.MayStart(text[i])) {
      while (range != special_ranges.end() && range->end <= i) ++range;
      const bool inside = range != special_ranges.end() && range->begin <= i;
      match = added_tokens_.Longest(text.substr(i), inside ? range->end - i : 0);
    }
    if (!match.has_value()) {
      if (text[i] == ' ') {
        normalized += kSpaceMark;
      } else {
        normalized += text[i];
      }
      ++i;
      continue;
    }
    encoder_.Encode(normalized, scratch, ids);
    normalized.clear();
    ids.push_back(match->id);
    i += match->length;
  }
  encoder_.Encode(normalized, scratch, ids);
  return ids;
}

}  // namespace

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool parse_special) const {
  const TextPiece piece = {.text = std::string(text), .parse_special = parse_special};
  return Encode(std::span(&piece, 1));
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.Push(id);
  return text + detokenizer.Finish();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromModelFiles(
    const std::map<std::string, std::string>& files) {
  if (const auto file = files.find("tokenizer.json"); file != files.end()) {
    return FromTokenizerJson(file->second, file->first);
  }
  if (const auto file = files.find("tokenizer.model"); file != files.end()) {
    const auto config = files.find("tokenizer_config.json");
    return FromSentencePiece(file->second, config == files.end() ? "" : config->second,
                             file->first);
  }
  if (const auto file = files.find("gguf_header"); file != files.end()) {
    return FromGguf(file->second, file->first);
  }
  return absl::NotFoundError(
      "the model has no tokenizer: none of tokenizer.json, tokenizer.model, gguf_header");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(TokenizerParts parts,
                                                         std::string_view name) {
  if (const absl::Status status = parts.vocabulary.CheckSpellsAnyText(); !status.ok()) {
    return Annotate(status, name);
  }
  if (!parts.vocabulary.Has(parts.bos_id)) {
    return absl::InvalidArgumentError(Concat(name, ": no <bos> token"));
  }
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

absl::StatusOr<Merge> ResolveMerge(const Vocabulary& vocabulary, std::string_view left,
                                   std::string_view right) {
  const Merge merge = {.left = vocabulary.Find(left),
                       .right = vocabulary.Find(right),
                       .result = vocabulary.Find(std::string(left).append(right))};
  if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
    const bool result = merge.left >= 0 && merge.right >= 0;
    return absl::InvalidArgumentError(Concat("merge of ", Quoted(left), " and ", Quoted(right),
                                             ": no such piece: ",
                                             result           ? Quoted(Concat(left, right))
                                             : merge.left < 0 ? Quoted(left)
                                                              : Quoted(right)));
  }
  if (vocabulary.IsByteToken(merge.left) || vocabulary.IsByteToken(merge.right)) {
    return absl::InvalidArgumentError(Concat("merge of ", Quoted(left), " and ", Quoted(right),
                                             ": byte tokens cannot be merged"));
  }
  return merge;
}

absl::Status Annotate(const absl::Status& status, std::string_view prefix) {
  return absl::Status(
      status.code(),
      Concat(prefix, ": ", std::string_view(status.message().data(), status.message().size())));
}

}  // namespace weightless::model
