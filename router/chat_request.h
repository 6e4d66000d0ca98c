// Reading the fields of a chat out of a body.
#pragma once

#include "router/openai_api.h"

namespace weightless::router {

class FieldReader;

// The messages and the fields that steer the template. Errors stick in `reader`.
void ReadChat(FieldReader& reader, ChatRequest& request);

}  // namespace weightless::router
