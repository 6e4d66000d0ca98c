// Certificates made for a test, so that no private key lies in the repository.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace weightless::router {

// PEM files in the test's temporary folder, gone with this.
class TestCertificate {
 public:
  // For localhost and 127.0.0.1, signed by itself, under `common_name`.
  explicit TestCertificate(const std::string& common_name = "test",
                           absl::Duration valid_from = -absl::Hours(1),
                           absl::Duration valid_to = absl::Hours(1));
  ~TestCertificate();
  TestCertificate(const TestCertificate&) = delete;
  TestCertificate& operator=(const TestCertificate&) = delete;

  const std::string& certificate_file() const { return certificate_file_; }
  const std::string& key_file() const { return key_file_; }
  // Puts another's contents into these files.
  void ReplaceBy(const TestCertificate& other);

 private:
  std::string certificate_file_, key_file_;
};

}  // namespace weightless::router
