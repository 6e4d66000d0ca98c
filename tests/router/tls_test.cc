// The certificate and key of the HTTP listener, and handshakes that are no good. What is answered
// over TLS is in http_stream_test.cc.
#include "router/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "tests/router/http_client.h"
#include "tests/router/test_certificate.h"

namespace weightless::router {
namespace {

using testing::HasSubstr;

std::string Refusal(const std::string& certificate_file, const std::string& key_file) {
  return std::string(TlsContext::Load(certificate_file, key_file, absl::Now()).status().message());
}

RouterConfig Config(const TestCertificate& certificate) {
  RouterConfig config;
  config.tls_cert_file = certificate.certificate_file();
  config.tls_key_file = certificate.key_file();
  return config;
}

TEST(TlsContextTest, NamesTheFileAndWhatIsWrongWithIt) {
  const TestCertificate good, other;
  EXPECT_EQ(Refusal("/no/cert", good.key_file()),
            "--tls-cert-file /no/cert: cannot be read: No such file or directory");
  EXPECT_EQ(Refusal(good.certificate_file(), "/no/key"),
            "--tls-key-file /no/key: cannot be read: No such file or directory");
  EXPECT_THAT(Refusal(testing::TempDir(), good.key_file()), HasSubstr("Is a directory"));
  EXPECT_THAT(Refusal("/dev/zero", good.key_file()), HasSubstr("is larger than 1048576 bytes"));
  EXPECT_THAT(Refusal(good.key_file(), good.key_file()), HasSubstr("holds no PEM certificate"));
  EXPECT_THAT(Refusal(good.certificate_file(), good.certificate_file()),
              HasSubstr("holds no PEM private key, or one with a passphrase"));
  EXPECT_THAT(Refusal(good.certificate_file(), other.key_file()),
              HasSubstr("the key does not belong to the certificate: key values mismatch"));
}

TEST(TlsContextTest, RefusesACertificateOutsideItsTime) {
  const TestCertificate old("old", -absl::Hours(2), -absl::Hours(1));
  const TestCertificate early("early", absl::Hours(1), absl::Hours(2));
  EXPECT_THAT(Refusal(old.certificate_file(), old.key_file()),
              HasSubstr(old.certificate_file() + ": the certificate expired at 20"));
  EXPECT_THAT(Refusal(early.certificate_file(), early.key_file()),
              HasSubstr("the certificate is not valid before 20"));
}

TEST(TlsContextTest, ReadsAChainAndKnowsTheEnd) {
  const TestCertificate good, issuer;
  std::ofstream(good.certificate_file(), std::ios::app)
      << std::ifstream(issuer.certificate_file()).rdbuf();
  const auto context = TlsContext::Load(good.certificate_file(), good.key_file(), absl::Now());
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_GT((*context)->expires_at(), absl::Now() + absl::Minutes(59));
  std::ofstream(good.certificate_file(), std::ios::app)
      << "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  EXPECT_THAT(Refusal(good.certificate_file(), good.key_file()),
              HasSubstr("a certificate of its chain is broken"));
}

TEST(TlsContextTest, NewConnectionsGetTheReloadedCertificateAndOpenOnesLiveOn) {
  TestCertificate certificate("first");
  const TestCertificate second("second"), old("old", -absl::Hours(2), -absl::Hours(1));
  TestServer server(Config(certificate));
  HttpClient before(server);
  EXPECT_EQ(before.CertificateName(), "first");
  EXPECT_EQ(before.Protocol(), "TLSv1.3");
  EXPECT_EQ(before.Get("/health").status, 200);

  certificate.ReplaceBy(second);
  ASSERT_TRUE(server.tls->Reload(absl::Now()).ok());
  HttpClient after(server);
  EXPECT_EQ(after.CertificateName(), "second");
  EXPECT_EQ(before.Get("/health").status, 200);

  certificate.ReplaceBy(old);
  EXPECT_THAT(std::string(server.tls->Reload(absl::Now()).message()), HasSubstr("expired"));
  EXPECT_EQ(HttpClient(server).CertificateName(), "second");
}

// What a handshake of a client with these settings ends with: its version and protocol, or "".
std::string Negotiate(const TestServer& server, const std::function<void(SSL_CTX*)>& change) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_security_level(context, 0);
  change(context);
  BIO* bio = BIO_new_ssl_connect(context);
  const std::string port = std::to_string(server.server.port());
  BIO_set_conn_hostname(bio, "127.0.0.1");
  BIO_set_conn_port(bio, port.c_str());
  std::string found;
  if (BIO_do_handshake(bio) == 1) {
    SSL* session = nullptr;
    BIO_get_ssl(bio, &session);
    const unsigned char* name = nullptr;
    unsigned int size = 0;
    SSL_get0_alpn_selected(session, &name, &size);
    found = SSL_get_version(session) + std::string(" ") +
            std::string(reinterpret_cast<const char*>(name), size);
  }
  BIO_free_all(bio);
  SSL_CTX_free(context);
  return found;
}

TEST(TlsContextTest, NegotiatesHttp11OverTls12AndLater) {
  const TestCertificate certificate;
  TestServer server(Config(certificate));
  const auto offer = [](const std::string& protocols) {
    return [protocols](SSL_CTX* context) {
      SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(protocols.data()),
                              static_cast<unsigned int>(protocols.size()));
    };
  };
  EXPECT_EQ(Negotiate(server, offer("\x02h2\x08http/1.1")), "TLSv1.3 http/1.1");
  EXPECT_EQ(Negotiate(server, offer("\x02h2")), "");
  EXPECT_EQ(Negotiate(server, [](SSL_CTX*) {}), "TLSv1.3 ");
  const auto at_most = [](int version) {
    return [version](SSL_CTX* context) { SSL_CTX_set_max_proto_version(context, version); };
  };
  EXPECT_EQ(Negotiate(server, at_most(TLS1_2_VERSION)), "TLSv1.2 ");
  EXPECT_EQ(Negotiate(server, at_most(TLS1_1_VERSION)), "");
  EXPECT_EQ(Negotiate(server,
                      [](SSL_CTX* context) {
                        SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
                        SSL_CTX_set_cipher_list(context, "ECDHE-ECDSA-AES128-SHA");  // CBC
                      }),
            "");
}

TEST(TlsHandshakeTest, PlainHttpIsToldSoAndClosed) {
  const TestCertificate certificate;
  TestServer server(Config(certificate));
  HttpClient client(server, 0, HttpClient::Speaks::kInTheClear);
  testing::internal::CaptureStderr();
  const ClientResponse response =
      client.Post("/v1/completions", R"({"prompt":"a"})", "Authorization: Bearer sk-secret\r\n");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(Member(response.body, "message"), "this port speaks HTTPS only");
  EXPECT_TRUE(client.IsClosed());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("event=tls_handshake_failed peer=127.0.0.1 reason=\"http request\""));
  EXPECT_THAT(log, testing::Not(HasSubstr("secret")));
  EXPECT_EQ(server.dispatcher.num_submitted(), 0u);
}

TEST(TlsHandshakeTest, NoiseIsCutOff) {
  const TestCertificate certificate;
  TestServer server(Config(certificate));
  HttpClient client(server, 0, HttpClient::Speaks::kInTheClear);
  client.Send(std::string(64, '\x01'));
  client.ReceiveAll();  // an alert, perhaps
  EXPECT_TRUE(client.IsClosed());
}

TEST(TlsHandshakeTest, AClientThatDoesNotFinishIsCutOffAndCountsUntilThen) {
  const TestCertificate certificate;
  RouterConfig config = Config(certificate);
  config.http.max_connections = 1;
  TestServer server(config);
  HttpClient silent(server, 0, HttpClient::Speaks::kInTheClear);
  silent.Send("\x16\x03\x01\x02");  // the beginning of a client's first message
  HttpClient second(server, 0, HttpClient::Speaks::kInTheClear);
  EXPECT_TRUE(second.IsClosed());
  silent.PassTimeUntilReadable(server);
  EXPECT_TRUE(silent.IsClosed());
  while (server.metrics.connections_open.value() != 0) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(HttpClient(server).Get("/health").status, 200);
}

TEST(TlsHandshakeTest, AStopEndsIt) {
  const TestCertificate certificate;
  TestServer server(Config(certificate));
  HttpClient silent(server, 0, HttpClient::Speaks::kInTheClear);
  silent.Send("\x16");
  server.server.Stop();
  EXPECT_TRUE(silent.IsClosed());
}

}  // namespace
}  // namespace weightless::router
