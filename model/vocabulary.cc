#include "model/vocabulary.h"

#include <optional>

#include "absl/hash/hash.h"
#include "common/check.h"
#include "common/concat.h"
#include "model/utf8.h"

namespace weightless::model {
namespace {

uint32_t HashOf(std::string_view text) {
  return static_cast<uint32_t>(absl::HashOf(absl::string_view(text.data(), text.size())));
}

std::optional<unsigned char> ParseByteToken(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  unsigned value = 0;
  for (const char digit : piece.substr(3, 2)) {
    if (digit >= '0' && digit <= '9') {
      value = value * 16 + static_cast<unsigned>(digit - '0');
    } else if (digit >= 'A' && digit <= 'F') {
      value = value * 16 + static_cast<unsigned>(digit - 'A') + 10;
    } else {
      return std::nullopt;
    }
  }
  return static_cast<unsigned char>(value);
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = DecodeUtf8(text);
    if (step.kind != Utf8Kind::kValid) return false;
    text.remove_prefix(static_cast<size_t>(step.length));
  }
  return true;
}

}  // namespace

Vocabulary::Vocabulary() : slots_(1024) { byte_tokens_.fill(-1); }

absl::Status Vocabulary::Add(int32_t id, std::string_view piece, Flags flags) {
  if (id < 0 || id >= kMaxTokens) {
    return absl::InvalidArgumentError(
        Concat("piece ", Quoted(piece), " has id ", id, ", limit ", kMaxTokens - 1));
  }
  if (piece.empty()) return absl::InvalidArgumentError(Concat("id ", id, " has an empty piece"));
  if (piece.size() > kMaxPieceBytes) {
    return absl::InvalidArgumentError(Concat("id ", id, " has a piece of ", piece.size(),
                                             " bytes, limit ", kMaxPieceBytes, ": ",
                                             Quoted(piece)));
  }
  if (!IsUtf8(piece)) {
    return absl::InvalidArgumentError(
        Concat("id ", id, " has a piece that is not valid UTF-8: ", Quoted(piece)));
  }
  if (Has(id)) {
    return absl::InvalidArgumentError(
        Concat("id ", id, " is given to ", Quoted(Piece(id)), " and to ", Quoted(piece)));
  }
  if (const int32_t other = Find(piece); other >= 0) {
    return absl::InvalidArgumentError(
        Concat("piece ", Quoted(piece), " has the ids ", other, " and ", id));
  }
  if (id >= size()) tokens_.resize(static_cast<size_t>(id) + 1);
  Token& token = tokens_[static_cast<size_t>(id)];
  token.flags = flags;
  token.piece_offset = arena_.size();
  token.piece_len = static_cast<uint16_t>(piece.size());
  arena_ += piece;
  AppendText(token, piece);
  if (token.is_byte) byte_tokens_[static_cast<unsigned char>(Text(id)[0])] = id;
  if (++num_pieces_ * 2 > slots_.size()) Grow();
  Insert(HashOf(piece), id);
  return absl::OkStatus();
}

void Vocabulary::SetFlags(int32_t id, Flags flags) {
  CHECK(Has(id));
  tokens_[static_cast<size_t>(id)].flags = flags;
}

absl::Status Vocabulary::CheckSpellsAnyText() const {
  for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    const int32_t id = byte_tokens_[byte];
    if (id < 0 || flags(id).special || flags(id).unused) {
      return absl::InvalidArgumentError(
          Concat("byte token <0x", absl::Hex(byte, absl::kZeroPad2),
                 id < 0 ? "> is missing; byte fallback needs all 256" : "> is not a plain piece"));
    }
  }
  const int32_t space = Find(kSpaceMark);
  if (space < 0 || flags(space).special || flags(space).unused) {
    return absl::InvalidArgumentError("no piece stands for a space (U+2581)");
  }
  return absl::OkStatus();
}

int32_t Vocabulary::Find(std::string_view piece) const {
  const uint32_t hash = HashOf(piece);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i].id >= 0; i = (i + 1) & mask) {
    if (slots_[i].hash == hash && Piece(slots_[i].id) == piece) return slots_[i].id;
  }
  return -1;
}

std::string_view Vocabulary::Piece(int32_t id) const {
  if (!Has(id)) return {};
  return std::string_view(arena_).substr(Record(id).piece_offset, Record(id).piece_len);
}

std::string_view Vocabulary::Text(int32_t id) const {
  if (!Has(id)) return {};
  return std::string_view(arena_).substr(Record(id).text_offset, Record(id).text_len);
}

// The text of most pieces is the piece itself and takes no space of its own.
void Vocabulary::AppendText(Token& token, std::string_view piece) {
  if (const std::optional<unsigned char> byte = ParseByteToken(piece)) {
    token.is_byte = true;
    token.text_offset = arena_.size();
    arena_ += static_cast<char>(*byte);
  } else if (piece.find(kSpaceMark) == std::string_view::npos) {
    token.text_offset = token.piece_offset;
  } else {
    token.text_offset = arena_.size();
    for (size_t i = 0; i < piece.size();) {
      const bool is_space = piece.substr(i).starts_with(kSpaceMark);
      arena_ += is_space ? ' ' : piece[i];
      i += is_space ? kSpaceMark.size() : 1;
    }
  }
  const size_t end =
      token.text_offset == token.piece_offset ? token.text_offset + token.piece_len : arena_.size();
  token.text_len = static_cast<uint16_t>(end - token.text_offset);
}

void Vocabulary::Insert(uint32_t hash, int32_t id) {
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  while (slots_[i].id >= 0) i = (i + 1) & mask;
  slots_[i] = {hash, id};
}

void Vocabulary::Grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id >= 0) Insert(slot.hash, slot.id);
  }
}

}  // namespace weightless::model
