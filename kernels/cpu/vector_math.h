// exp and GELU over 16 lanes of any Simd.
#pragma once

namespace weightless::kernels {
namespace {

// e^x, relative error below 2e-7 for x in [-87, 88]; 0 below, e^88 above.
// x = n ln 2 + r with |r| <= ln 2 / 2; a polynomial of degree 6 in r; times 2^n.
template <typename Simd>
typename Simd::F Exp(typename Simd::F x) {
  using F = typename Simd::F;
  const F clamped = Simd::Max(Simd::Min(x, Simd::Set1(88.0f)), Simd::Set1(-87.0f));
  const F n = Simd::RoundToInt(Simd::Mul(clamped, Simd::Set1(1.44269504f)));
  F r = Simd::NegMulAdd(n, Simd::Set1(0.693145752f), clamped);
  r = Simd::NegMulAdd(n, Simd::Set1(1.42860677e-6f), r);
  F p = Simd::Set1(1.0f / 720);
  p = Simd::MulAdd(p, r, Simd::Set1(1.0f / 120));
  p = Simd::MulAdd(p, r, Simd::Set1(1.0f / 24));
  p = Simd::MulAdd(p, r, Simd::Set1(1.0f / 6));
  p = Simd::MulAdd(p, r, Simd::Set1(0.5f));
  p = Simd::MulAdd(p, r, Simd::Set1(1.0f));
  p = Simd::MulAdd(p, r, Simd::Set1(1.0f));
  return Simd::KeepIfAtLeast(x, -87.0f, Simd::ScaleByPowerOf2(p, n));
}

template <typename Simd>
float Exp1(float x) {
  alignas(64) float lanes[16];
  Simd::Store(lanes, Exp<Simd>(Simd::Set1(x)));
  return lanes[0];
}

// gelu_tanh(x) = x / (1 + e^(-2 sqrt(2 / pi) (x + 0.044715 x^3)))
template <typename Simd>
typename Simd::F GeluTanh(typename Simd::F x) {
  using F = typename Simd::F;
  constexpr float kScale = -2 * 0.7978845608f;
  const F factor =
      Simd::MulAdd(Simd::Mul(x, x), Simd::Set1(kScale * 0.044715f), Simd::Set1(kScale));
  return Simd::Div(x, Simd::Add(Simd::Set1(1.0f), Exp<Simd>(Simd::Mul(x, factor))));
}

}  // namespace
}  // namespace weightless::kernels
