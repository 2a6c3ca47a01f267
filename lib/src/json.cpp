#include "holdfast/json.hpp"

#include <cstdint>

#include "holdfast/event.hpp"

namespace holdfast::json {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_high_surrogate(std::uint32_t unit) { return unit >= 0xD800 && unit <= 0xDBFF; }
bool is_low_surrogate(std::uint32_t unit) { return unit >= 0xDC00 && unit <= 0xDFFF; }

// Checks the grammar, left to right. Each function consumes what it names, or returns false.
class Checker {
 public:
  explicit Checker(std::string_view text) : next_(text.data()), end_(next_ + text.size()) {}

  bool document(std::size_t depth_max) {
    skip_space();
    if (!value(depth_max)) return false;
    skip_space();
    return next_ == end_;
  }

 private:
  // Recurses once for each level of nesting, at most depth_left times.
  bool value(std::size_t depth_left) {
    if (next_ == end_) return false;
    switch (*next_) {
      case '{':
      case '[':
        return depth_left > 0 && container(depth_left - 1);
      case '"':
        return string();
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  bool container(std::size_t depth_left) {
    const bool object = *next_++ == '{';
    const char closing = object ? '}' : ']';
    skip_space();
    if (take(closing)) return true;
    for (;;) {
      skip_space();
      if (object && !name()) return false;
      if (!value(depth_left)) return false;
      skip_space();
      if (take(closing)) return true;
      if (!take(',')) return false;
    }
  }

  bool name() {
    if (next_ == end_ || *next_ != '"' || !string()) return false;
    skip_space();
    if (!take(':')) return false;
    skip_space();
    return true;
  }

  bool string() {
    ++next_;
    while (next_ != end_) {
      const char c = *next_++;
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c == '\\' && !escape()) return false;
    }
    return false;
  }

  bool escape() {
    if (next_ == end_) return false;
    const char c = *next_++;
    if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    std::uint32_t unit = 0;
    if (!code_unit(unit) || is_low_surrogate(unit)) return false;
    if (!is_high_surrogate(unit)) return true;
    return take('\\') && take('u') && code_unit(unit) && is_low_surrogate(unit);
  }

  bool code_unit(std::uint32_t& unit) {
    unit = 0;
    for (int i = 0; i < 4; ++i) {
      const int digit = next_ == end_ ? -1 : hex_digit(*next_);
      if (digit < 0) return false;
      unit = unit << 4 | static_cast<std::uint32_t>(digit);
      ++next_;
    }
    return true;
  }

  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      return digits();
    }
    return true;
  }

  bool digits() {
    const char* const first = next_;
    while (next_ != end_ && is_digit(*next_)) ++next_;
    return next_ != first;
  }

  bool word(std::string_view text) {
    if (static_cast<std::size_t>(end_ - next_) < text.size()) return false;
    if (std::string_view(next_, text.size()) != text) return false;
    next_ += text.size();
    return true;
  }

  bool take(char c) {
    if (next_ == end_ || *next_ != c) return false;
    ++next_;
    return true;
  }

  void skip_space() {
    while (next_ != end_ && is_space(*next_)) ++next_;
  }

  const char* next_;
  const char* end_;
};

std::string_view without_space(std::string_view text) {
  std::size_t start = 0;
  while (start < text.size() && is_space(text[start])) ++start;
  return text.substr(start);
}

// The length of the string at the start of `text`, quotes included.
std::size_t string_length(std::string_view text) {
  std::size_t at = 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return at < text.size() ? at + 1 : text.size();
}

std::size_t container_length(std::string_view text) {
  std::size_t depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      at += string_length(text.substr(at)) - 1;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return at + 1;
    }
  }
  return text.size();
}

// The length of the value at the start of `text`, which goes on behind it.
std::size_t value_length(std::string_view text) {
  if (text.empty()) return 0;
  if (text[0] == '"') return string_length(text);
  if (text[0] == '{' || text[0] == '[') return container_length(text);
  std::size_t at = 0;
  while (at < text.size() && !is_space(text[at]) && text[at] != ',' && text[at] != '}' &&
         text[at] != ']') {
    ++at;
  }
  return at;
}

void append_utf8(std::uint32_t code_point, std::string& out) {
  const auto byte = [&out](std::uint32_t bits) { out.push_back(static_cast<char>(bits)); };
  if (code_point < 0x80) {
    byte(code_point);
  } else if (code_point < 0x800) {
    byte(0xC0 | code_point >> 6);
    byte(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    byte(0xE0 | code_point >> 12);
    byte(0x80 | (code_point >> 6 & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  } else {
    byte(0xF0 | code_point >> 18);
    byte(0x80 | (code_point >> 12 & 0x3F));
    byte(0x80 | (code_point >> 6 & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  }
}

std::uint32_t code_unit_at(std::string_view text, std::size_t at) {
  std::uint32_t unit = 0;
  for (std::size_t i = at; i < at + 4 && i < text.size(); ++i) {
    unit = unit << 4 | static_cast<std::uint32_t>(hex_digit(text[i]));
  }
  return unit;
}

// Appends what the escape at `at` (behind its backslash) stands for; returns where it ends.
std::size_t append_escaped(std::string_view text, std::size_t at, std::string& out) {
  constexpr std::string_view kLetters = "bfnrt";
  constexpr std::string_view kMeanings = "\b\f\n\r\t";
  if (text[at] != 'u') {
    const std::size_t letter = kLetters.find(text[at]);
    out.push_back(letter == std::string_view::npos ? text[at] : kMeanings[letter]);
    return at + 1;
  }
  std::uint32_t code_point = code_unit_at(text, at + 1);
  if (!is_high_surrogate(code_point)) {
    append_utf8(code_point, out);
    return at + 5;
  }
  const std::uint32_t low = code_unit_at(text, at + 7);
  code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
  append_utf8(code_point, out);
  return at + 11;
}

}  // namespace

bool valid(std::string_view text, std::size_t depth_max) {
  return is_utf8(text) && Checker(text).document(depth_max);
}

Type type_of(std::string_view value) {
  value = without_space(value);
  switch (value.empty() ? 'n' : value[0]) {
    case '{':
      return Type::object;
    case '[':
      return Type::array;
    case '"':
      return Type::string;
    case 't':
    case 'f':
      return Type::boolean;
    case 'n':
      return Type::null;
    default:
      return Type::number;
  }
}

Members::Members(std::string_view value) : rest_(without_space(value)) {
  object_ = !rest_.empty() && rest_[0] == '{';
  if (object_ || (!rest_.empty() && rest_[0] == '[')) {
    rest_.remove_prefix(1);
  } else {
    rest_ = {};  // a scalar has no members
  }
}

bool Members::next() {
  rest_ = without_space(rest_);
  if (!rest_.empty() && rest_[0] == ',') rest_ = without_space(rest_.substr(1));
  if (rest_.empty() || rest_[0] == '}' || rest_[0] == ']') {
    rest_ = name_ = value_ = {};
    return false;
  }
  if (object_) {
    name_ = rest_.substr(0, string_length(rest_));
    rest_ = without_space(rest_.substr(name_.size()));
    rest_ = without_space(rest_.substr(rest_.empty() ? 0 : 1));  // the colon
  }
  value_ = rest_.substr(0, value_length(rest_));
  rest_.remove_prefix(value_.size());
  return true;
}

std::string unescape(std::string_view string_value) {
  std::string out;
  if (string_value.size() < 2) return out;
  const std::string_view text = string_value.substr(1, string_value.size() - 2);
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t backslash = text.find('\\', at);
    out.append(text.substr(at, backslash - at));
    if (backslash == std::string_view::npos || backslash + 1 >= text.size()) break;
    at = append_escaped(text, backslash + 1, out);
  }
  return out;
}

bool name_is(std::string_view string_value, std::string_view name) {
  if (string_value.find('\\') != std::string_view::npos) return unescape(string_value) == name;
  return string_value.size() == name.size() + 2 && string_value.substr(1, name.size()) == name;
}

bool append_string(std::string_view text, std::string& out) {
  if (!is_utf8(text)) return false;
  constexpr char kHex[] = "0123456789abcdef";
  constexpr std::string_view kMeanings = "\b\f\n\r\t\"\\";
  constexpr std::string_view kLetters = "bfnrt\"\\";
  out.push_back('"');
  for (const char c : text) {
    const std::size_t letter = kMeanings.find(c);
    if (letter != std::string_view::npos) {
      out.push_back('\\');
      out.push_back(kLetters[letter]);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out.append("\\u00");
      out.push_back(kHex[c >> 4]);
      out.push_back(kHex[c & 0x0F]);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return true;
}

}  // namespace holdfast::json

namespace holdfast {

bool is_json_object(std::string_view text) {
  return json::valid(text, kMaxHeadersDepth) && json::type_of(text) == json::Type::object;
}

}  // namespace holdfast
