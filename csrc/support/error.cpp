#include "support/error.hpp"

#include <system_error>

namespace prismem {

std::string describe_errno(int code) { return std::generic_category().message(code); }

}  // namespace prismem
