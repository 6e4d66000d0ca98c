#include "worker/activations.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/check.h"
#include "common/concat.h"

namespace weightless::worker {

using kernels::DType;
using kernels::TensorView;

namespace {

// The first rows of a buffer, read as rows of another width.
TensorView Shaped(const TensorView& buffer, int64_t rows, int64_t cols) {
  CHECK(rows <= buffer.rows && cols <= buffer.cols);
  return {buffer.data, buffer.type, rows, cols};
}

int64_t QueryWidth(const LayerWeights& layer) {
  return int64_t{layer.attention.num_heads} * layer.attention.head_dim;
}

}  // namespace

absl::StatusOr<Activations> Activations::Create(const Weights& weights, int max_step_tokens,
                                                kernels::Backend& backend) {
  const int64_t hidden_size = weights.embedding().k();
  const int64_t vocab_size = weights.head().n();
  int64_t qkv_width = 0, query_width = 0, intermediate_size = 0;
  for (const LayerWeights& layer : weights.layers()) {
    qkv_width = std::max(qkv_width, layer.qkv->n());
    query_width = std::max(query_width, QueryWidth(layer));
    intermediate_size = std::max(intermediate_size, layer.down->k());
  }
  const DType act = backend.activation_type();
  const int64_t num_tokens = max_step_tokens;

  Activations a;
  a.largest_ = {.x = {nullptr, DType::kF32, num_tokens, hidden_size},
                .normed = {nullptr, act, num_tokens, hidden_size},
                .qkv = {nullptr, DType::kF32, num_tokens, qkv_width},
                .q = {nullptr, act, num_tokens, query_width},
                .attended = {nullptr, act, num_tokens, query_width},
                .projected = {nullptr, DType::kF32, num_tokens, hidden_size},
                .hidden = {nullptr, act, num_tokens, intermediate_size}};
  a.head_ = {.x = {nullptr, DType::kF32, kLogitRows, hidden_size},
             .normed = {nullptr, act, kLogitRows, hidden_size},
             .logits = {nullptr, DType::kF32, kLogitRows, vocab_size}};
  for (TensorView* view :
       {&a.largest_.x, &a.largest_.normed, &a.largest_.qkv, &a.largest_.q, &a.largest_.attended,
        &a.largest_.projected, &a.largest_.hidden, &a.head_.x, &a.head_.normed, &a.head_.logits}) {
    const size_t needed = static_cast<size_t>(view->rows * view->cols) * SizeOf(view->type);
    std::unique_ptr<kernels::Buffer> buffer = backend.Allocate(needed);
    if (buffer == nullptr) {
      return absl::ResourceExhaustedError(
          Concat("no device memory for the activations of ", max_step_tokens, " tokens"));
    }
    view->data = buffer->data();
    (view == &a.head_.logits ? a.logit_bytes_ : a.layer_bytes_) += buffer->size_bytes();
    a.buffers_.push_back(std::move(buffer));
  }
  return a;
}

LayerActivations Activations::ForLayer(const LayerWeights& layer, int num_tokens) const {
  return {.x = largest_.x.Rows(num_tokens),
          .normed = largest_.normed.Rows(num_tokens),
          .qkv = Shaped(largest_.qkv, num_tokens, layer.qkv->n()),
          .q = Shaped(largest_.q, num_tokens, QueryWidth(layer)),
          .attended = Shaped(largest_.attended, num_tokens, QueryWidth(layer)),
          .projected = largest_.projected.Rows(num_tokens),
          .hidden = Shaped(largest_.hidden, num_tokens, layer.down->k())};
}

HeadActivations Activations::ForHead(int num_rows) const {
  return {.x = head_.x.Rows(num_rows),
          .normed = head_.normed.Rows(num_rows),
          .logits = head_.logits.Rows(num_rows)};
}

}  // namespace weightless::worker
