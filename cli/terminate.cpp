// What the C++ library calls when nobody catches an exception. Its own one brings a demangler, 30
// kB of a static program, to print a type's name; this one prints what the exception says.
#include <cstdio>
#include <cstdlib>
#include <exception>

namespace __gnu_cxx {

void __verbose_terminate_handler();

void __verbose_terminate_handler() {
  std::fputs("holdfast: internal error", stderr);
  if (std::current_exception()) {
    try {
      std::rethrow_exception(std::current_exception());
    } catch (const std::exception& problem) {
      std::fprintf(stderr, ": %s", problem.what());
    } catch (...) {
      std::fputs(": an exception of unknown type", stderr);
    }
  }
  std::fputc('\n', stderr);
  std::abort();
}

}  // namespace __gnu_cxx
