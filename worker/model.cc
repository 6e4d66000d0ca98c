#include "worker/model.h"

namespace weightless::worker {

// Gemma normalises before and after both halves of a layer. What a Linear reads is rounded to the
// activation type by the op that writes it; the residual stream x stays float32.
void Model::Forward(const StepInputs& in) {
  kernels::Backend& ops = backend_;
  const float eps = weights_.norm_eps();
  num_tokens_ = in.num_tokens;
  ops.Embed(in.token_ids, weights_.embedding(), weights_.embedding_scale(),
            activations_.x(in.num_tokens));
  for (size_t layer = 0; layer < weights_.layers().size(); ++layer) {
    const LayerWeights& w = weights_.layers()[layer];
    const LayerActivations a = activations_.ForLayer(w, in.num_tokens);
    const kernels::KvLayer& kv = kv_cache_.layer(layer);
    const kernels::PoolBatch& batch = w.sliding ? in.sliding : in.full;

    ops.RmsNorm(a.x, w.attention_norm, eps, a.normed);
    ops.Linear(a.normed, *w.qkv, a.qkv);
    ops.NormRopeStoreKv(a.qkv, w.norm_rope, w.attention, batch, kv, a.q);
    ops.Attention(a.q, w.attention, batch, kv, a.attended);
    ops.Linear(a.attended, *w.attention_out, a.projected);
    ops.RmsNormAdd(a.projected, w.post_attention_norm, eps, a.x);  // x += norm(projected)

    ops.RmsNorm(a.x, w.mlp_norm, eps, a.normed);
    ops.LinearGeglu(a.normed, *w.gate_up, a.hidden);
    ops.Linear(a.hidden, *w.down, a.projected);
    ops.RmsNormAdd(a.projected, w.post_mlp_norm, eps, a.x);
  }
}

kernels::TensorView Model::Logits(const int32_t* rows, int num_rows) {
  kernels::Backend& ops = backend_;
  const HeadActivations a = activations_.ForHead(num_rows);
  ops.GatherRows(activations_.x(num_tokens_), rows, a.x);
  ops.RmsNorm(a.x, weights_.final_norm(), weights_.norm_eps(), a.normed);
  ops.Linear(a.normed, weights_.head(), a.logits);
  return a.logits;
}

}  // namespace weightless::worker
