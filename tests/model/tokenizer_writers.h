// Writes the vocabulary of a tokenizer.json as a SentencePiece model or as GGUF metadata, the way
// converters do, to test that all sources encode alike.
#pragma once

#include <bit>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"

namespace weightless::model {

struct WrittenPiece {
  std::string text;
  float score = 0;
  int type = 1;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  bool special = false;
};

// By id. Ids beyond the model's vocabulary are left out.
inline std::vector<WrittenPiece> PiecesOf(const std::string& tokenizer_json) {
  const boost::json::value root = ParseJson(tokenizer_json).value();
  const auto& vocab = root.at("model").at("vocab").as_object();
  std::vector<WrittenPiece> pieces(vocab.size());
  for (const auto& entry : vocab) {
    WrittenPiece& piece = pieces.at(static_cast<size_t>(entry.value().as_int64()));
    piece.text.assign(entry.key().data(), entry.key().size());
    if (piece.text.size() == 6 && piece.text.starts_with("<0x")) piece.type = 6;
  }
  for (const auto& token : root.at("added_tokens").as_array()) {
    const auto id = static_cast<size_t>(token.at("id").as_int64());
    if (id >= pieces.size()) continue;
    pieces[id].special = token.at("special").as_bool();
    pieces[id].type = pieces[id].special && id < 4 ? 3 : 4;
  }
  float score = 0;
  for (WrittenPiece& piece : pieces) {
    if (piece.type == 1) piece.score = score--;
  }
  return pieces;
}

inline std::string LittleEndian(uint64_t value, int num_bytes) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i) bytes += static_cast<char>(value >> 8 * i & 0xFF);
  return bytes;
}

inline std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}

// Wire type 2.
inline std::string BytesField(uint32_t number, std::string_view bytes) {
  return Varint(number << 3 | 2) + Varint(bytes.size()) + std::string(bytes);
}

inline std::string VarintField(uint32_t number, uint64_t value) {
  return Varint(number << 3) + Varint(value);
}

inline std::string SentencePieceField(const WrittenPiece& piece) {
  return BytesField(1, BytesField(1, piece.text) + Varint(2 << 3 | 5) +
                           LittleEndian(std::bit_cast<uint32_t>(piece.score), 4) +
                           VarintField(3, static_cast<uint64_t>(piece.type)));
}

// Trainer and normalizer specs as Gemma has them: BPE, identity.
inline std::string SpecFields() {
  return BytesField(2, VarintField(3, 2)) +
         BytesField(3, BytesField(1, "identity") + VarintField(3, 0) + VarintField(4, 0));
}

inline std::string WriteSentencePiece(const std::vector<WrittenPiece>& pieces) {
  std::string model;
  for (const WrittenPiece& piece : pieces) model += SentencePieceField(piece);
  return model + SpecFields();
}

inline std::string GgufString(std::string_view text) {
  return LittleEndian(text.size(), 8) + std::string(text);
}

inline std::string GgufStringField(std::string_view key, std::string_view value) {
  return GgufString(key) + LittleEndian(8, 4) + GgufString(value);
}

// An array field up to its elements, which follow.
inline std::string GgufArrayField(std::string_view key, uint32_t type, size_t size) {
  return GgufString(key) + LittleEndian(9, 4) + LittleEndian(type, 4) + LittleEndian(size, 8);
}

// model: "llama", or a name that takes listed merges, each "left right".
inline std::string WriteGguf(const std::vector<WrittenPiece>& pieces,
                             const std::string& model = "llama",
                             const std::vector<std::string>& listed = {}) {
  std::string tokens = GgufArrayField("tokenizer.ggml.tokens", 8, pieces.size());
  std::string scores = GgufArrayField("tokenizer.ggml.scores", 6, pieces.size());
  std::string types = GgufArrayField("tokenizer.ggml.token_type", 5, pieces.size());
  for (const WrittenPiece& piece : pieces) {
    const bool control =
        piece.special || piece.text == "<mask>" || piece.text.starts_with("<unused");
    const int type = control ? 3 : piece.type;
    std::string text = piece.text;
    if (type == 4) {
      for (size_t i; (i = text.find("\xE2\x96\x81")) != std::string::npos;) text.replace(i, 3, " ");
    }
    const float score = type == 3 || type == 4 ? -1000.0f : piece.score;
    tokens += GgufString(text);
    scores += LittleEndian(std::bit_cast<uint32_t>(score), 4);
    types += LittleEndian(static_cast<uint64_t>(type), 4);
  }
  std::string merges = GgufArrayField("tokenizer.ggml.merges", 8, listed.size());
  for (const std::string& merge : listed) merges += GgufString(merge);
  return "GGUF" + LittleEndian(3, 4) + LittleEndian(0, 8) + LittleEndian(5, 8) +
         GgufStringField("tokenizer.ggml.model", model) + tokens + scores + types + merges;
}

}  // namespace weightless::model
