#include "tests/router/test_certificate.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>

#include "common/check.h"
#include "common/concat.h"

namespace weightless::router {
namespace {

template <typename Write>
void WriteFile(const std::string& path, const Write& write) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  CHECK(file != nullptr);
  CHECK(write(file) == 1);
  std::fclose(file);
}

}  // namespace

TestCertificate::TestCertificate(const std::string& common_name, absl::Duration valid_from,
                                 absl::Duration valid_to) {
  static std::atomic<int> num_made = 0;
  const std::string stem =
      Concat(testing::TempDir(), "weightless_", getpid(), "_", ++num_made, "_");
  certificate_file_ = Concat(stem, "cert.pem");
  key_file_ = Concat(stem, "key.pem");
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), num_made);
  X509_gmtime_adj(X509_getm_notBefore(certificate), absl::ToInt64Seconds(valid_from));
  X509_gmtime_adj(X509_getm_notAfter(certificate), absl::ToInt64Seconds(valid_to));
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(certificate, name);
  CHECK(X509_sign(certificate, key, EVP_sha256()) > 0);
  WriteFile(certificate_file_, [&](std::FILE* file) { return PEM_write_X509(file, certificate); });
  WriteFile(key_file_, [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
  X509_free(certificate);
  EVP_PKEY_free(key);
}

TestCertificate::~TestCertificate() {
  std::remove(certificate_file_.c_str());
  std::remove(key_file_.c_str());
}

void TestCertificate::ReplaceBy(const TestCertificate& other) {
  constexpr auto kOverwrite = std::filesystem::copy_options::overwrite_existing;
  std::filesystem::copy_file(other.certificate_file_, certificate_file_, kOverwrite);
  std::filesystem::copy_file(other.key_file_, key_file_, kOverwrite);
}

}  // namespace weightless::router
