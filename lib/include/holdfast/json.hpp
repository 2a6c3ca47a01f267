// JSON texts (RFC 8259): checked once, then read in place. Nothing here builds a tree or recurses
// deeper than the limit it is given, so a hostile text costs time in proportion to its size and no
// memory (G10).
//
//   if (!json::valid(text, 16)) return …;
//   for (json::Members members(text); members.next();) use(members.name(), members.value());
//
// A "value" below is the part of a valid text that is one JSON value. Functions that take one do
// not check it again: give them only what valid() accepted, or parts of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace holdfast::json {

enum class Type { null, boolean, number, string, array, object };

// True if the text is one JSON value in UTF-8, with white space around it at most, and its arrays
// and objects are nested at most depth_max deep (0: a scalar). Stricter than the RFC in one point:
// an escape that is half a surrogate pair is refused, because it stands for no character.
bool valid(std::string_view text, std::size_t depth_max);

Type type_of(std::string_view value);

// Walks the members of an object or the elements of an array, in the order of the text.
class Members {
 public:
  explicit Members(std::string_view value);
  bool next();  // false at the end
  // Of the current member. The name keeps its quotes and escapes; it is empty in an array.
  std::string_view name() const { return name_; }
  std::string_view value() const { return value_; }

 private:
  std::string_view rest_;
  bool object_ = false;
  std::string_view name_;
  std::string_view value_;
};

// A string value (or a name of Members) as UTF-8, without quotes and escapes. U+0000 is possible.
std::string unescape(std::string_view string_value);
bool name_is(std::string_view string_value, std::string_view name);

// Appends a UTF-8 text as a JSON string. False, and nothing appended, if it is not UTF-8.
bool append_string(std::string_view text, std::string& out);

}  // namespace holdfast::json
