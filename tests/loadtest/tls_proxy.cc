#include "tests/loadtest/tls_proxy.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <thread>

namespace weightless::loadtest {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using asio::ip::tcp;

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);

template <typename Write>
std::string Pem(const Write& write) {
  BIO* bio = BIO_new(BIO_s_mem());
  write(bio);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

struct Identity {
  std::string certificate;
  std::string key;
};

Identity MakeIdentity() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("mock"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name,
                                              "DNS:elsewhere.example,IP:127.0.0.1");
  X509_add_ext(certificate, names, -1);
  X509_EXTENSION_free(names);
  X509_sign(certificate, key, EVP_sha256());
  Identity identity{Pem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); }),
                    Pem([&](BIO* bio) {
                      PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
                    })};
  X509_free(certificate);
  EVP_PKEY_free(key);
  return identity;
}

}  // namespace

struct TlsProxy::Impl {
  using TlsStream = ssl::stream<tcp::socket>;

  struct Link {
    TlsStream front;
    tcp::socket back;
  };

  explicit Impl(uint16_t plain_port)
      : target(asio::ip::address_v4::loopback(), plain_port),
        acceptor(io, {asio::ip::address_v4::loopback(), 0}) {
    context.use_certificate_chain(asio::buffer(identity.certificate));
    context.use_private_key(asio::buffer(identity.key), ssl::context::pem);
    asio::co_spawn(io, Accept(), asio::detached);
    thread = std::thread([this] { io.run(); });
  }

  asio::awaitable<void> Accept() {
    while (true) {
      auto [ec, socket] = co_await acceptor.async_accept(kToken);
      if (ec) co_return;
      auto link =
          std::make_shared<Link>(Link{TlsStream(std::move(socket), context), tcp::socket(io)});
      asio::co_spawn(io, Open(link), asio::detached);
    }
  }

  asio::awaitable<void> Open(std::shared_ptr<Link> link) {
    auto [tls_error] = co_await link->front.async_handshake(ssl::stream_base::server, kToken);
    if (tls_error) co_return;
    auto [ec] = co_await link->back.async_connect(target, kToken);
    if (ec) co_return;
    asio::co_spawn(io, Forward(link, link->front, link->back), asio::detached);
    asio::co_spawn(io, Forward(link, link->back, link->front), asio::detached);
  }

  // `link` keeps both streams alive.
  template <typename From, typename To>
  asio::awaitable<void> Forward(std::shared_ptr<Link> link, From& from, To& to) {
    std::array<char, 4096> buffer;
    while (true) {
      auto [ec, size] = co_await from.async_read_some(asio::buffer(buffer), kToken);
      if (ec) break;
      auto [write_error, written] =
          co_await asio::async_write(to, asio::buffer(buffer.data(), size), kToken);
      if (write_error) break;
    }
    link->back.close();
    link->front.lowest_layer().close();
  }

  const Identity identity = MakeIdentity();
  asio::io_context io{1};
  ssl::context context{ssl::context::tls_server};
  const tcp::endpoint target;
  tcp::acceptor acceptor;
  std::thread thread;
};

TlsProxy::TlsProxy(uint16_t plain_port) : impl_(std::make_unique<Impl>(plain_port)) {}

TlsProxy::~TlsProxy() {
  impl_->io.stop();
  impl_->thread.join();
}

uint16_t TlsProxy::port() const { return impl_->acceptor.local_endpoint().port(); }
const std::string& TlsProxy::certificate_pem() const { return impl_->identity.certificate; }

}  // namespace weightless::loadtest
