#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "support/programs.hpp"

int main(int argc, char** argv) {
  int code = 0;
  if (holdfast::test::run_program(argc, argv, code)) return code;
  return doctest::Context(argc, argv).run();
}
