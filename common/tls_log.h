// What is logged of TLS handshakes that fail.
#pragma once

#include <string_view>

namespace weightless {

//   WARNING event=tls_handshake_failed peer=10.0.0.7 reason="http request"
//
// `peer` may be empty, and is left out then. Lines that strangers can cause must not fill a disk:
// at most 20 in 10 s are written, event=tls_lines_left_out says how many more there were.
// Thread-safe.
void LogTlsFailure(std::string_view peer, std::string_view reason);

}  // namespace weightless
