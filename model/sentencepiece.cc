// Tokenizer::FromSentencePiece: a tokenizer.model, which is a protobuf ModelProto. The few fields
// that matter are read straight from the wire format.
#include <bit>
#include <boost/json/value.hpp>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "common/concat.h"
#include "common/json.h"
#include "common/status.h"
#include "model/json_fields.h"
#include "model/piece_merges.h"
#include "model/tokenizer_parts.h"

namespace weightless::model {
namespace {

namespace json = boost::json;

struct WireField {
  enum Type { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  uint32_t number = 0;
  Type type = kVarint;
  uint64_t value = 0;      // of the other types
  std::string_view bytes;  // of kBytes
};

// Splits one protobuf message into its fields.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes), size_(bytes.size()) {}

  bool done() const { return rest_.empty(); }
  absl::StatusOr<WireField> Next() {
    ASSIGN_OR_RETURN(const uint64_t tag, Varint());
    WireField field;
    field.number = static_cast<uint32_t>(tag >> 3);
    field.type = static_cast<WireField::Type>(tag & 7);
    if (tag >> 3 == 0 || tag >> 32 != 0) return Invalid("field number ", tag >> 3, Where());
    switch (tag & 7) {
      case WireField::kVarint: {
        ASSIGN_OR_RETURN(field.value, Varint());
        return field;
      }
      case WireField::kFixed64: {
        ASSIGN_OR_RETURN(field.value, Fixed(8));
        return field;
      }
      case WireField::kFixed32: {
        ASSIGN_OR_RETURN(field.value, Fixed(4));
        return field;
      }
      case WireField::kBytes: {
        ASSIGN_OR_RETURN(const uint64_t length, Varint());
        if (length > rest_.size()) {
          return Invalid("field ", field.number, " of ", length, " bytes", Where(), ", ",
                         rest_.size(), " left");
        }
        field.bytes = rest_.substr(0, length);
        rest_.remove_prefix(length);
        return field;
      }
      default:
        return Invalid("wire type ", tag & 7, Where());
    }
  }

 private:
  std::string Where() const { return Concat(" at byte ", size_ - rest_.size()); }

  absl::StatusOr<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return Invalid("ends inside a number");
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return Invalid("number longer than 64 bits", Where());
  }

  absl::StatusOr<uint64_t> Fixed(size_t num_bytes) {
    if (rest_.size() < num_bytes) return Invalid("ends inside a number");
    uint64_t value = 0;
    for (size_t i = num_bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(rest_[i]);
    rest_.remove_prefix(num_bytes);
    return value;
  }

  std::string_view rest_;
  size_t size_;
};

// ModelProto, its SentencePiece, TrainerSpec and NormalizerSpec.
constexpr uint32_t kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3;
constexpr uint32_t kPiece = 1, kScore = 2, kType = 3;
constexpr uint32_t kModelType = 3, kSpaceAsSuffix = 24;
constexpr uint64_t kBpe = 2;
constexpr uint32_t kCharsMap = 2, kDummyPrefix = 3, kRemoveExtraSpaces = 4, kEscapeSpaces = 5;
enum PieceType : uint64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// Gemma's models hold these as user-defined pieces; its tokenizer.json flags them special.
bool IsControlName(std::string_view piece) {
  return piece == "<start_of_turn>" || piece == "<end_of_turn>" || piece == "<start_of_image>" ||
         piece == "<end_of_image>";
}

struct Model {
  Vocabulary vocabulary;
  std::vector<float> scores;
};

absl::Status ReadPiece(std::string_view message, Model& model) {
  std::string_view piece;
  float score = 0;
  uint64_t type = kNormal;
  for (WireReader reader(message); !reader.done();) {
    ASSIGN_OR_RETURN(const WireField field, reader.Next());
    if (field.number == kPiece && field.type == WireField::kBytes) piece = field.bytes;
    if (field.number == kScore && field.type == WireField::kFixed32) {
      score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    }
    if (field.number == kType && field.type == WireField::kVarint) type = field.value;
  }
  if (!std::isfinite(score)) return Invalid("score is not finite");
  if (type < kNormal || type > kByte) return Invalid("type ", type, " is not in [1, 6]");
  const bool control = type == kUnknown || type == kControl;
  const Vocabulary::Flags flags = {
      .added = control || type == kUserDefined,
      .special = control || (type == kUserDefined && IsControlName(piece)),
      .unused = type == kUnused};
  if (model.scores.size() >= static_cast<size_t>(Vocabulary::kMaxTokens)) {
    return Invalid("more than ", Vocabulary::kMaxTokens, " pieces");
  }
  RETURN_IF_ERROR(model.vocabulary.Add(static_cast<int32_t>(model.scores.size()), piece, flags));
  model.scores.push_back(score);
  return absl::OkStatus();
}

absl::Status CheckTrainerSpec(std::string_view message) {
  uint64_t model_type = 1;
  for (WireReader reader(message); !reader.done();) {
    ASSIGN_OR_RETURN(const WireField field, reader.Next());
    if (field.number == kModelType) model_type = field.value;
    if (field.number == kSpaceAsSuffix && field.value != 0) {
      return Invalid("treat_whitespace_as_suffix is true; only false is supported");
    }
  }
  if (model_type != kBpe) {
    return Invalid("model_type is ", model_type, "; only 2 (BPE) is supported");
  }
  return absl::OkStatus();
}

absl::Status CheckNormalizerSpec(std::string_view message) {
  uint64_t dummy_prefix = 1, remove_extra_spaces = 1, escape_spaces = 1;
  for (WireReader reader(message); !reader.done();) {
    ASSIGN_OR_RETURN(const WireField field, reader.Next());
    if (field.number == kCharsMap && !field.bytes.empty()) {
      return Invalid("precompiled_charsmap has ", field.bytes.size(),
                     " bytes; only identity is supported");
    }
    if (field.number == kDummyPrefix) dummy_prefix = field.value;
    if (field.number == kRemoveExtraSpaces) remove_extra_spaces = field.value;
    if (field.number == kEscapeSpaces) escape_spaces = field.value;
  }
  if (dummy_prefix != 0) return Invalid("add_dummy_prefix is true; only false is supported");
  if (remove_extra_spaces != 0) {
    return Invalid("remove_extra_whitespaces is true; only false is supported");
  }
  if (escape_spaces == 0) return Invalid("escape_whitespaces is false; only true is supported");
  return absl::OkStatus();
}

absl::StatusOr<Model> ReadModel(std::string_view bytes) {
  Model model;
  // Absent specs mean their defaults, which are not supported.
  std::string_view trainer_spec, normalizer_spec;
  for (WireReader reader(bytes); !reader.done();) {
    ASSIGN_OR_RETURN(const WireField field, reader.Next());
    if (field.type != WireField::kBytes) continue;
    if (field.number == kTrainerSpec) trainer_spec = field.bytes;
    if (field.number == kNormalizerSpec) normalizer_spec = field.bytes;
    if (field.number != kPieces) continue;
    const absl::Status status = ReadPiece(field.bytes, model);
    if (!status.ok()) return Annotate(status, Concat("pieces[", model.scores.size(), "]"));
  }
  absl::Status status = CheckTrainerSpec(trainer_spec);
  if (!status.ok()) return Annotate(status, "trainer_spec");
  status = CheckNormalizerSpec(normalizer_spec);
  if (!status.ok()) return Annotate(status, "normalizer_spec");
  return model;
}

// The flags and the extra tokens of a tokenizer_config.json.
absl::Status ReadConfig(std::string_view text, Vocabulary& vocabulary) {
  ASSIGN_OR_RETURN(const json::value root, ParseJson(text));
  if (!root.is_object()) return Invalid("is ", ShowJson(root), ", not an object");
  const json::value* decoder = FindSet(root.get_object(), "added_tokens_decoder");
  if (decoder == nullptr) return absl::OkStatus();
  if (!decoder->is_object()) {
    return Invalid("added_tokens_decoder is ", ShowJson(*decoder), ", not an object");
  }
  for (const json::key_value_pair& entry : decoder->get_object()) {
    const std::string_view key(entry.key().data(), entry.key().size());
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      return Invalid("added_tokens_decoder: ", Quoted(key), " is not a token id");
    }
    const std::string where = Concat("added_tokens_decoder[", id, "]");
    if (!entry.value().is_object()) {
      return Invalid(where, " is ", ShowJson(entry.value()), ", not an object");
    }
    const absl::Status status = ReadAddedToken(id, entry.value().get_object(), vocabulary);
    if (!status.ok()) return Annotate(status, where);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromSentencePiece(
    std::string_view model_bytes, std::string_view tokenizer_config, std::string_view name) {
  absl::StatusOr<Model> model = ReadModel(model_bytes);
  if (!model.ok()) return Annotate(model.status(), name);
  if (!tokenizer_config.empty()) {
    const absl::Status status = ReadConfig(tokenizer_config, model->vocabulary);
    if (!status.ok()) return Annotate(status, "tokenizer_config.json");
  }
  TokenizerParts parts;
  parts.vocabulary = std::move(model->vocabulary);
  model->scores.resize(static_cast<size_t>(parts.vocabulary.size()), 0);
  absl::StatusOr<std::vector<Merge>> merges = MergesFromScores(parts.vocabulary, model->scores);
  if (!merges.ok()) return Annotate(merges.status(), name);
  parts.merges = *std::move(merges);
  parts.bos_id = parts.vocabulary.Find("<bos>");
  return MakeTokenizer(std::move(parts), name);
}

}  // namespace weightless::model
