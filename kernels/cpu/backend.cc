#include "kernels/backend.h"

namespace weightless::kernels {

std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options) {
  if (options.family != KernelFamily::kAuto && options.family != KernelFamily::kReference) {
    return nullptr;
  }
  return MakeReferenceBackend(options.activation_type);
}

}  // namespace weightless::kernels
