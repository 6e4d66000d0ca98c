// Text <-> token ids of the Gemma family (byte-fallback BPE over whole segments), from any of three
// sources with identical results.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weightless::model {

// A stretch of text to encode. Stretches are scanned as one text: added tokens and merges may span
// their borders, but a token flagged special is recognised only where every byte of it lies in
// stretches with parse_special.
struct TextPiece {
  std::string text;
  bool parse_special = true;
};

// Immutable after construction; thread-safe.
class Tokenizer {
 public:
  // All input is untrusted; `name` is the file's name for messages. kInvalidArgument names file,
  // field, value and limit.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromTokenizerJson(std::string_view json,
                                                                      std::string_view name);
  // A SentencePiece model; control and added tokens beyond its pieces are those of
  // `tokenizer_config` (may be empty).
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromSentencePiece(
      std::string_view model, std::string_view tokenizer_config, std::string_view name);
  // The metadata of a GGUF file: the file up to its tensor data.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromGguf(std::string_view header,
                                                             std::string_view name);
  // The best of a worker's model files: tokenizer.json, else tokenizer.model, else gguf_header.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromModelFiles(
      const std::map<std::string, std::string>& files);

  virtual ~Tokenizer() = default;

  // Any bytes are accepted: invalid UTF-8 is encoded by byte tokens. Prepends nothing; the caller
  // adds bos_id(). O(n log n) in the text's length.
  virtual std::vector<int32_t> Encode(std::span<const TextPiece> pieces) const = 0;
  std::vector<int32_t> Encode(std::string_view text, bool parse_special = true) const;

  // One more than the largest id.
  virtual int vocab_size() const = 0;
  virtual int32_t bos_id() const = 0;
  // The id of an exact piece or added token, or -1.
  virtual int32_t FindToken(std::string_view piece) const = 0;
  // Flagged special: dropped from text unless it is asked for.
  virtual bool IsSpecial(int32_t id) const = 0;
  // The bytes a token stands for in running text (byte tokens: one byte; U+2581 already a space;
  // special tokens: their name). Empty for an id outside the vocabulary. May be part of a
  // character.
  virtual std::string_view TokenBytes(int32_t id) const = 0;
  // True for <0xNN>.
  virtual bool IsByteToken(int32_t id) const = 0;

  // Whole-sequence decoding, with the result of feeding the ids to a Detokenizer.
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const;
};

}  // namespace weightless::model
