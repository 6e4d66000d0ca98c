// Linear and LinearGeglu over one group of panels, for any engine.
#pragma once

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/engine.h"
#include "kernels/cpu/vector_math.h"

namespace weightless::kernels {
namespace {

template <typename Engine>
Product RowsTimesPanels(const PreparedRows& x, const PackedWeight& w, int64_t first_row,
                        int64_t rows) {
  Product m;
  m.a = static_cast<const typename Engine::Element*>(x.data) + first_row * x.stride;
  m.lda = x.stride;
  m.rows = rows;
  m.steps = w.steps();
  m.prefetch = true;
  return m;
}

template <typename Simd, typename Engine>
void LinearGroup(const PreparedRows& x, const PackedWeight& w, float* out, int64_t group,
                 int64_t first_row, int64_t rows) {
  const int64_t first = group * kGroupPanels;
  const int64_t left = w.num_panels() - first;
  Product m = RowsTimesPanels<Engine>(x, w, first_row, rows);
  m.num_panels = static_cast<int>(left < kGroupPanels ? left : kGroupPanels);
  int64_t columns = 0;
  for (int p = 0; p < m.num_panels; ++p) {
    m.panels[p] = w.panel(first + p);
    columns += w.num_rows(first + p);
  }
  for (int p = 0; p < kGroupPanels && kGroupPanels + p < left; ++p) {
    m.next[p] = w.panel(first + kGroupPanels + p);
  }
  if (columns == m.num_panels * kPanelRows) {
    m.c = out + first_row * w.n() + w.first_row(first);
    m.ldc = w.n();
    Engine::Multiply(m);
    return;
  }
  // Some panel is not full: by way of a buffer.
  alignas(64) float buffer[Engine::kRowBlock * kGroupPanels * kPanelRows];
  m.c = buffer;
  m.ldc = kGroupPanels * kPanelRows;
  for (int64_t done = 0; done < rows; done += Engine::kRowBlock) {
    m.rows = rows - done < Engine::kRowBlock ? rows - done : Engine::kRowBlock;
    Engine::Multiply(m);
    m.a = static_cast<const typename Engine::Element*>(m.a) + m.rows * m.lda;
    for (int64_t r = 0; r < m.rows; ++r) {
      for (int p = 0; p < m.num_panels; ++p) {
        Simd::StoreFirst(out + (first_row + done + r) * w.n() + w.first_row(first + p),
                         Simd::Load(buffer + r * m.ldc + p * kPanelRows), w.num_rows(first + p));
      }
    }
  }
}

template <typename Simd, typename Engine, typename Act>
void GegluGroup(const PreparedRows& x, const PackedWeight& w, Act* out, int64_t group,
                int64_t first_row, int64_t rows) {
  const int64_t half = w.num_panels() / 2;
  const int64_t first = group * 2;
  const int num_gates = half - first < 2 ? 1 : 2;
  Product m = RowsTimesPanels<Engine>(x, w, first_row, rows);
  m.num_panels = 2 * num_gates;
  for (int p = 0; p < num_gates; ++p) {
    m.panels[p] = w.panel(first + p);
    m.panels[num_gates + p] = w.panel(half + first + p);
    if (first + num_gates + p < half) {
      m.next[p] = w.panel(first + num_gates + p);
      m.next[num_gates + p] = w.panel(half + first + num_gates + p);
    }
  }
  alignas(64) float buffer[Engine::kRowBlock * kGroupPanels * kPanelRows];
  m.c = buffer;
  m.ldc = kGroupPanels * kPanelRows;
  const int64_t columns = w.n() / 2;
  for (int64_t done = 0; done < rows; done += Engine::kRowBlock) {
    m.rows = rows - done < Engine::kRowBlock ? rows - done : Engine::kRowBlock;
    Engine::Multiply(m);
    m.a = static_cast<const typename Engine::Element*>(m.a) + m.rows * m.lda;
    for (int64_t r = 0; r < m.rows; ++r) {
      for (int p = 0; p < num_gates; ++p) {
        const float* gate = buffer + r * m.ldc + p * kPanelRows;
        const auto up = Simd::Load(gate + num_gates * kPanelRows);
        Simd::StoreFirst(out + (first_row + done + r) * columns + w.first_row(first + p),
                         Simd::Mul(GeluTanh<Simd>(Simd::Load(gate)), up), w.num_rows(first + p));
      }
    }
  }
}

}  // namespace
}  // namespace weightless::kernels
