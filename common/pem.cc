#include "common/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>

#include "common/concat.h"

namespace weightless {
namespace {

// Instead of asking a terminal for a passphrase.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

}  // namespace

void PemFree::operator()(BIO* bio) const { BIO_free(bio); }
void PemFree::operator()(X509* certificate) const { X509_free(certificate); }
void PemFree::operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }

PemOwned<BIO> PemReader(const std::string& text) {
  return PemOwned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

PemOwned<X509> LeafCertificate(BIO* reader) {
  return PemOwned<X509>(PEM_read_bio_X509_AUX(reader, nullptr, NoPassphrase, nullptr));
}

PemOwned<X509> NextCertificate(BIO* reader) {
  return PemOwned<X509>(PEM_read_bio_X509(reader, nullptr, NoPassphrase, nullptr));
}

absl::StatusOr<PemOwned<EVP_PKEY>> ParsePrivateKey(const std::string& text) {
  PemOwned<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(PemReader(text).get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError("holds no PEM private key, or one with a passphrase");
}

absl::StatusOr<absl::Time> CheckDates(const X509* certificate, absl::Time now) {
  const absl::Time from = ToTime(X509_get0_notBefore(certificate));
  const absl::Time to = ToTime(X509_get0_notAfter(certificate));
  if (now >= from && now < to) return to;
  return absl::InvalidArgumentError(
      Concat(now >= to ? "the certificate expired at " : "the certificate is not valid before ",
             absl::FormatTime(now >= to ? to : from, absl::UTCTimeZone())));
}

}  // namespace weightless
