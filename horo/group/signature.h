// What every member must agree on about an operation.
#pragma once

#include "horo/collective/operation.h"
#include "horo/transport/signature.h"

namespace horo::group {

transport::Signature signature_of(const collective::Operation& operation, uint8_t table_version);

}  // namespace horo::group
