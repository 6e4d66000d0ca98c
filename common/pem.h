// Certificates and private keys as PEM text.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct bio_st;
struct evp_pkey_st;
struct x509_st;

namespace weightless {

struct PemFree {
  void operator()(bio_st* bio) const;
  void operator()(x509_st* certificate) const;
  void operator()(evp_pkey_st* key) const;
};
template <typename T>
using PemOwned = std::unique_ptr<T, PemFree>;

// Reads `text`, which outlives it.
PemOwned<bio_st> PemReader(const std::string& text);
// The next certificate; null at the end, or at one that is broken: OpenSSL's error says which.
// LeafCertificate takes it in OpenSSL's form with trust settings (TRUSTED CERTIFICATE), too.
PemOwned<x509_st> LeafCertificate(bio_st* reader);
PemOwned<x509_st> NextCertificate(bio_st* reader);
// kInvalidArgument when there is none, or one with a passphrase. Leaves no error of OpenSSL.
absl::StatusOr<PemOwned<evp_pkey_st>> ParsePrivateKey(const std::string& text);

// When it expires. kInvalidArgument when `now` is too early or too late for it.
absl::StatusOr<absl::Time> CheckDates(const x509_st* certificate, absl::Time now);

}  // namespace weightless
