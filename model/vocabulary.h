// The pieces of a tokenizer, by id and by text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace weightless::model {

// Filled by one loader, then immutable and thread-safe. Flat: one string arena, one record for each
// id, one open-addressing table from text to id; about 40 bytes and twice the text for each piece.
class Vocabulary {
 public:
  static constexpr int32_t kMaxTokens = 1 << 22;
  static constexpr size_t kMaxPieceBytes = 256;

  struct Flags {
    bool added = false;    // matched in the raw text, before any merge
    bool special = false;  // a control token: inert in user text, dropped from output
    bool unused = false;   // never produced from text
  };

  Vocabulary();

  // The piece as the tokenizer's file spells it, U+2581 for a space. kInvalidArgument for an id
  // outside [0, kMaxTokens), an empty or too long piece or one that is not UTF-8, a second use of
  // an id or of a piece.
  absl::Status Add(int32_t id, std::string_view piece, Flags flags);
  // Replaces the flags of a piece that is there.
  void SetFlags(int32_t id, Flags flags);
  // kInvalidArgument unless any text can be spelled: all 256 byte tokens <0x00> .. <0xFF> and a
  // piece for the space are there, and none is special or unused.
  absl::Status CheckSpellsAnyText() const;

  // One more than the largest id.
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  bool Has(int32_t id) const { return id >= 0 && id < size() && Record(id).piece_len > 0; }
  // The id of a piece, or -1.
  int32_t Find(std::string_view piece) const;
  // Empty for an id that has no piece.
  std::string_view Piece(int32_t id) const;
  // The bytes it stands for in running text: U+2581 is a space, a byte token is its byte.
  std::string_view Text(int32_t id) const;
  Flags flags(int32_t id) const { return Has(id) ? Record(id).flags : Flags{}; }
  bool IsByteToken(int32_t id) const { return Has(id) && Record(id).is_byte; }
  int32_t byte_token(unsigned char byte) const { return byte_tokens_[byte]; }

 private:
  struct Token {
    uint64_t piece_offset = 0;  // into arena_
    uint64_t text_offset = 0;
    uint16_t piece_len = 0;
    uint16_t text_len = 0;
    Flags flags;
    bool is_byte = false;
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;  // -1: free
  };

  const Token& Record(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  void AppendText(Token& token, std::string_view piece);
  void Insert(uint32_t hash, int32_t id);
  void Grow();

  std::string arena_;
  std::vector<Token> tokens_;
  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t num_pieces_ = 0;
  std::array<int32_t, 256> byte_tokens_;
};

}  // namespace weightless::model
