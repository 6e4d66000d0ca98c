// Encoding, decoding and chat rendering of arbitrary text by a small tokenizer.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "model/chat_template.h"
#include "model/detokenizer.h"
#include "model/tokenizer_parts.h"
#include "tests/fuzz/check_tokenizer.h"

using namespace weightless::model;

namespace {

std::unique_ptr<Tokenizer> MakeSmall() {
  TokenizerParts parts;
  const auto add = [&](std::string_view piece, Vocabulary::Flags flags) {
    CHECK(parts.vocabulary.Add(parts.vocabulary.size(), piece, flags).ok());
  };
  const char digits[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    add(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">", {});
  }
  for (const char* control : {"<bos>", "<start_of_turn>", "<end_of_turn>"}) {
    add(control, {.added = true, .special = true});
  }
  for (const char* run : {"\n", "\n\n", "\n\n\n"}) add(run, {.added = true});
  for (const char* piece :
       {"a", "b", "e", "h", "l", "o", "r", "t", "\xC3\xA9", "\xE2\x96\x81", "th", "he", "the",
        "\xE2\x96\x81the", "ab", "abab", "\xE2\x96\x81\xE2\x96\x81"}) {
    add(piece, {});
  }
  for (const auto& [left, right] :
       std::vector<std::pair<const char*, const char*>>{{"\xE2\x96\x81", "\xE2\x96\x81"},
                                                        {"h", "e"},
                                                        {"t", "he"},
                                                        {"t", "h"},
                                                        {"th", "e"},
                                                        {"\xE2\x96\x81", "the"},
                                                        {"a", "b"},
                                                        {"ab", "ab"}}) {
    parts.merges.push_back(ResolveMerge(parts.vocabulary, left, right).value());
  }
  parts.bos_id = parts.vocabulary.Find("<bos>");
  return MakeTokenizer(std::move(parts), "small").value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizer = MakeSmall();
  const std::string text(reinterpret_cast<const char*>(data), size);
  CheckSpelling(*tokenizer, text);

  // However the text is cut into stretches, it is one text.
  const size_t cut = text.empty() ? 0 : static_cast<unsigned char>(text[0]) % text.size();
  const std::vector<TextPiece> stretches = {{text.substr(0, cut)}, {text.substr(cut)}};
  const std::vector<int32_t> ids = tokenizer->Encode(text);
  CHECK(tokenizer->Encode(stretches) == ids);

  std::string decoded;
  Detokenizer detokenizer(*tokenizer, false);
  for (const int32_t id : ids) {
    decoded += detokenizer.Push(id);
    CHECK(decoded.empty() || DecodeUtf8(decoded).kind == Utf8Kind::kValid);
  }
  CHECK(decoded + detokenizer.Finish() == tokenizer->Decode(ids, false));

  // A user cannot open or close a turn.
  const auto chat = RenderGemma3Chat({{.role = "user", .parts = {text}}}, {});
  CHECK(chat.ok());
  const std::vector<int32_t> prompt = tokenizer->Encode(*chat);
  CHECK(std::count_if(prompt.begin(), prompt.end(),
                      [&](int32_t id) { return tokenizer->IsSpecial(id); }) == 4);
  return 0;
}
