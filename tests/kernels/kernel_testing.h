// What kernel tests share: the backends to test, data, guarded buffers, comparisons.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace weightless::kernels {

struct BackendCase {
  const char* name;
  KernelFamily family;
  DType type;
  int num_threads;
};

// For the name of a test in ctest.
inline void PrintTo(const BackendCase& c, std::ostream* out) { *out << c.name; }

inline const BackendCase kBackendCases[] = {
    {"Reference", KernelFamily::kReference, DType::kBF16, 1},
    {"ReferenceF32", KernelFamily::kReference, DType::kF32, 1},
    {"Avx2", KernelFamily::kAvx2, DType::kBF16, 1},
    {"Avx2F32Threads2", KernelFamily::kAvx2, DType::kF32, 2},
    {"Avx512Bf16", KernelFamily::kAvx512Bf16, DType::kBF16, 1},
    {"Avx512Bf16Threads3", KernelFamily::kAvx512Bf16, DType::kBF16, 3},
    {"Avx512F32", KernelFamily::kAvx512Bf16, DType::kF32, 1},
    {"Amx", KernelFamily::kAmx, DType::kBF16, 1},
    {"AmxThreads2", KernelFamily::kAmx, DType::kBF16, 2},
};

// Each test runs on every backend; those this processor lacks are reported as skipped.
class KernelTest : public testing::TestWithParam<BackendCase> {
 protected:
  void SetUp() override {
    const BackendCase& c = GetParam();
    backend_ = MakeCpuBackend(
        {.activation_type = c.type, .family = c.family, .num_threads = c.num_threads});
    if (backend_ == nullptr) GTEST_SKIP() << "this processor does not have " << c.name;
    reference_ = MakeReferenceBackend(c.type);
  }
  bool is_bf16() const { return GetParam().type == DType::kBF16; }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> reference_;
};

inline std::string CaseName(const testing::TestParamInfo<BackendCase>& info) {
  return info.param.name;
}

// A matrix poisoned with NaNs and surrounded by guard bytes.
class Matrix {
 public:
  Matrix(DType type, int64_t rows, int64_t cols)
      : type_(type), rows_(rows), cols_(cols), bytes_(SizeBytes() + 2 * kGuard, kPoison) {}

  static Matrix Random(DType type, int64_t rows, int64_t cols, uint32_t seed, float scale = 1) {
    Matrix m(type, rows, cols);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, scale);
    for (int64_t i = 0; i < rows * cols; ++i) m.Set(i, normal(random));
    return m;
  }

  TensorView view() { return {Data(), type_, rows_, cols_}; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  float At(int64_t i) const {
    const char* p = bytes_.data() + kGuard + i * static_cast<int64_t>(SizeOf(type_));
    if (type_ == DType::kF32) {
      float value;
      std::memcpy(&value, p, sizeof(value));
      return value;
    }
    BF16 value;
    std::memcpy(&value, p, sizeof(value));
    return ToFloat(value);
  }
  void Set(int64_t i, float value) {
    char* p = bytes_.data() + kGuard + i * static_cast<int64_t>(SizeOf(type_));
    const BF16 rounded = ToBF16(value);
    type_ == DType::kF32 ? std::memcpy(p, &value, 4) : std::memcpy(p, &rounded, 2);
  }
  // Rows [first, first + count) as a matrix of their own.
  Matrix Slice(int64_t first, int64_t count) const {
    Matrix m(type_, count, cols_);
    const auto row_bytes = static_cast<size_t>(cols_) * SizeOf(type_);
    std::memcpy(m.Data(), bytes_.data() + kGuard + static_cast<size_t>(first) * row_bytes,
                static_cast<size_t>(count) * row_bytes);
    return m;
  }
  void ExpectGuardsIntact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(bytes_[i], kPoison) << "written before the start";
      ASSERT_EQ(bytes_[bytes_.size() - 1 - i], kPoison) << "written past the end";
    }
  }
  bool SameBits(const Matrix& other) const { return bytes_ == other.bytes_; }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr char kPoison = '\xff';  // 0xffff and 0xffffffff are NaNs
  size_t SizeBytes() const { return static_cast<size_t>(rows_ * cols_) * SizeOf(type_); }
  char* Data() { return bytes_.data() + kGuard; }

  DType type_;
  int64_t rows_;
  int64_t cols_;
  std::vector<char> bytes_;
};

// ||a - b|| / ||b||; infinite when a holds a NaN.
inline double RelativeError(const Matrix& a, const Matrix& b) {
  double difference = 0;
  double norm = 0;
  for (int64_t i = 0; i < a.rows() * a.cols(); ++i) {
    const double x = static_cast<double>(a.At(i));
    const double y = static_cast<double>(b.At(i));
    if (std::isnan(x)) return HUGE_VAL;
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

// Weight rows by a formula, so both backends can read the same without a copy.
inline DenseRows RandomRows(int64_t n, int64_t k, uint32_t seed, float scale = 1) {
  DenseRows rows{.n = n, .k = k, .read = {}};
  rows.read = [k, seed, scale](int64_t first, int64_t count, float* out) {
    for (int64_t i = 0; i < count * k; ++i) {
      uint64_t x = static_cast<uint64_t>(first * k + i) * 0x9E3779B97F4A7C15ull + seed;
      x = (x ^ (x >> 31)) * 0xBF58476D1CE4E5B9ull;
      x = (x ^ (x >> 29)) * 0x94D049BB133111EBull;
      out[i] = scale * (static_cast<float>(x >> 40) * 0x1p-23f - 1);
    }
  };
  return rows;
}

}  // namespace weightless::kernels
