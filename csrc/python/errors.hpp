// Errors of the core become the exceptions of the same names in prismem_core.errors.
#pragma once

namespace prismem::python {

// For the whole extension module.
void translate_errors();

}  // namespace prismem::python
