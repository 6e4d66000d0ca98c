#include "model/identity.h"

#include <openssl/evp.h>

#include <array>
#include <memory>
#include <span>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/concat.h"

namespace weightless::model {
namespace {

constexpr size_t kWindowBytes = 16 << 10;
constexpr size_t kNumWindows = 256;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void Add(std::span<const std::byte> bytes) {
    CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text.data(), text.size()))); }

  std::string Hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
    unsigned int size = 0;
    CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1);
    return absl::BytesToHexString(
        absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
  }

 private:
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

// Everything that changes a token, in one unambiguous text: numbers exactly (%a), fields in order.
std::string Describe(const ModelConfig& config) {
  std::string text = absl::StrFormat(
      "%s vocab %d hidden %d context %d window %d eps %a scale %a tied %d norm_minus_one %d bos %d "
      "pad %d eos %s\n",
      config.architecture, config.vocab_size, config.hidden_size, config.max_context,
      config.sliding_window, config.norm_eps, config.attention_scale, config.tied_head,
      config.stores_norm_minus_one, config.bos_token_id, config.pad_token_id,
      absl::StrJoin(config.eos_token_ids, ","));
  for (const LayerConfig& layer : config.layers) {
    absl::StrAppendFormat(&text, "%d heads %d/%d dim %d inner %d rope %a/%a\n",
                          static_cast<int>(layer.type), layer.num_heads, layer.num_kv_heads,
                          layer.head_dim, layer.intermediate_size, layer.rope_theta,
                          layer.rope_factor);
  }
  return text;
}

}  // namespace

std::string DigestModel(const ModelConfig& config, const TensorMap& tensors) {
  Sha256 sha;
  sha.Add(Describe(config));
  for (const auto& [name, tensor] : tensors) {
    sha.Add(
        Concat(name, " ", FormatOf(tensor.type).name, " ", absl::StrJoin(tensor.shape, "x"), "\n"));
  }
  for (const auto& [name, tensor] : tensors) {
    const std::span<const std::byte> data = tensor.data;
    if (data.size() <= kNumWindows * kWindowBytes) {
      sha.Add(data);
      continue;
    }
    const size_t room = data.size() - kWindowBytes;
    for (size_t i = 0; i < kNumWindows; ++i) {
      // room * i could only overflow beyond 2^56 bytes.
      sha.Add(data.subspan(room * i / (kNumWindows - 1), kWindowBytes));
    }
  }
  return sha.Hex();
}

}  // namespace weightless::model
