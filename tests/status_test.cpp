// The one error model: frozen codes, a text that is always one line and always terminated.
#include "holdfast/status.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <string>

#include "holdfast/event.hpp"
#include "support/allocations.hpp"

using namespace holdfast;

TEST_CASE("a default status is ok and has no text") {
  const Status status;
  CHECK(status.ok());
  CHECK(static_cast<bool>(status));
  CHECK(status.code() == Code::ok);
  CHECK(status.native() == 0);
  CHECK(std::string(status.text()).empty());
}

TEST_CASE("an error carries its code, the native code and a formatted text") {
  const Status status = Status::native_error(Code::io, 522, "read of %s failed (%d)", "outbox", 7);
  CHECK_FALSE(status.ok());
  CHECK(status.code() == Code::io);
  CHECK(status.native() == 522);
  CHECK(std::string(status.text()) == "read of outbox failed (7)");
}

TEST_CASE("code numbers and names are frozen: other languages depend on them") {
  const char* const names[] = {
      "ok",      "no_transaction", "not_durable",  "invalid",     "full",       "busy",
      "unknown", "not_found",      "newer_schema", "no_schema",   "io",         "read_only",
      "corrupt", "no_space",       "misuse",       "unavailable", "lease_lost", "permission",
      "exists",  "refused",        "internal"};
  int number = 0;
  for (const char* name : names) CHECK(std::string(code_name(static_cast<Code>(number++))) == name);
  CHECK(number == static_cast<int>(Code::internal) + 1);
  CHECK(std::string(code_name(static_cast<Code>(999))) == "unnamed");
}

TEST_CASE("a long text is cut, never overrun (G8)") {
  const std::string text(5000, 'x');
  const Status status = Status::error(Code::invalid, "%s", text.c_str());
  CHECK(std::strlen(status.text()) == Status::kTextBytes - 1);
}

TEST_CASE("a text is not cut within a UTF-8 character") {
  const std::string characters[] = {"\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x94\xA5"};
  for (const std::string& character : characters) {
    for (std::size_t before = 0; before < 4; ++before) {
      std::string text(before, 'x');
      while (text.size() < 1000) text += character;
      const Status status = Status::error(Code::invalid, "%s", text.c_str());
      CHECK(is_utf8(status.text()));
      CHECK(std::strlen(status.text()) + character.size() >= Status::kTextBytes);
    }
  }
}

TEST_CASE("a text is one line, whatever was put into it (G10)") {
  const Status status = Status::error(Code::refused, "%s", "no\nway\r\x1B[2J\x7F");
  CHECK(std::string(status.text()) == "no way  [2J ");
}

TEST_CASE("an error can be made and copied without memory") {
  const test::AllocationFailure none_left(0);
  const Status status = Status::error(Code::no_space, "the disk is full");
  const Status copy = status;
  CHECK(std::strcmp(copy.text(), "the disk is full") == 0);
  CHECK_FALSE(none_left.happened());
}
