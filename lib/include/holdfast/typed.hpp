// Structs as payloads, through cereal (uscilab.github.io/cereal): give a struct a serialize
// function and it can be emitted and read back.
//
//   struct Reading {
//     double celsius = 0;
//     std::vector<int> raw;
//     template <class Archive>
//     void serialize(Archive& archive) { archive(CEREAL_NVP(celsius), CEREAL_NVP(raw)); }
//   };
//
//   holdfast::emit_typed(outbox, "sensor.reading.v1", "sensor", "boiler-1", reading,
//                        holdfast::Encoding::json);
//   …
//   Reading reading;
//   Status status = holdfast::decode(record, reading);
//
// Include the cereal/types/… headers your members need. Shared and polymorphic pointers are not
// supported: their bytes would decide what is allocated.
//
// No exception leaves these functions, neither cereal's nor one of yours. What decode() is given
// came from a stranger: lengths are checked against what is there before anything is allocated, so
// it allocates at most the payload's size times the size of the largest element type in T (G10).
// Only this header needs exceptions and RTTI; keep it to files that are built with them.
//
// json: the members of the struct are the members of one object, in compact UTF-8. Unknown members
// are skipped, missing ones are an error, numbers must fit their type. Not finite numbers and text
// that is not UTF-8 cannot be encoded. As cereal has it, a std::vector is an array, a std::array an
// object with the members value0, value1, …, and a std::map an array of {"key":…,"value":…}.
// portable_binary: the bytes of cereal::PortableBinaryOutputArchive, little-endian. Names are not
// in it, so the struct is frozen: give a changed one a new event_type.
#pragma once

#include <cereal/cereal.hpp>
#include <cereal/types/common.hpp>
#include <cereal/types/string.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "holdfast/event.hpp"
#include "holdfast/json.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/status.hpp"

namespace holdfast {

enum class Encoding { json, portable_binary };

constexpr std::size_t kMaxTypedDepth = 16;  // structs and containers within each other

// The content type an encoding is marked with.
inline std::string_view content_type_of(Encoding encoding) {
  return encoding == Encoding::json ? kContentTypeJson : kContentTypeCereal;
}

// Replaces `payload`. Errors: invalid (the text says what cannot be encoded, or that it is larger
// than kMaxPayloadBytes).
template <typename T>
Status encode(const T& value, Encoding encoding, std::string& payload);

// `content_type` tells the encoding; its parameters ("; charset=utf-8") do not matter. Errors:
// invalid (another content type, or bytes that are not a T). Then `value` is as it was.
template <typename T>
Status decode(std::string_view payload, std::string_view content_type, T& value);

template <typename T>
Status decode(const EventRecord& record, T& value) {
  return decode(std::string_view(record.payload), record.content_type, value);
}

// Fills an Event whose payload is in `payload`, which must live until it is emitted. Set what else
// you need (trace, headers, lane, …) before Outbox::emit().
template <typename T>
Status typed_event(std::string_view event_type, std::string_view aggregate_type,
                   std::string_view aggregate_id, const T& value, Encoding encoding,
                   std::string& payload, Event& event) {
  const Status status = encode(value, encoding, payload);
  if (!status.ok()) return status;
  event = Event();
  event.event_type = event_type;
  event.aggregate_type = aggregate_type;
  event.aggregate_id = aggregate_id;
  event.payload = payload;
  event.payload_is_text = encoding == Encoding::json;
  event.content_type = content_type_of(encoding);
  return {};
}

// Outbox::emit() of a struct: the same errors and effects, and those of encode().
template <typename T>
Status emit_typed(Outbox& outbox, std::string_view event_type, std::string_view aggregate_type,
                  std::string_view aggregate_id, const T& value, Encoding encoding,
                  Emitted* emitted = nullptr) {
  std::string payload;
  Event event;
  const Status status =
      typed_event(event_type, aggregate_type, aggregate_id, value, encoding, payload, event);
  return status.ok() ? outbox.emit(event, emitted) : status;
}

// --- what follows is how it is done ---

namespace typed_detail {

[[noreturn]] inline void fail(const std::string& what) { throw cereal::Exception(what); }

// --- JSON ---
//
// cereal's own JSON archives would not do: reading, they cut a number that does not fit and a text
// with a NUL without a word, and build a tree many times the size of the text; writing, they emit
// NaN, which is not JSON.

class JsonWriter : public cereal::OutputArchive<JsonWriter>, public cereal::traits::TextArchive {
 public:
  explicit JsonWriter(std::string& out) : OutputArchive(this), out_(out) {}

  void set_next_name(const char* name) { next_name_ = name; }

  // An object, unless make_array() follows before its first member.
  void start_node() {
    begin_value();
    if (nodes_.size() == kMaxTypedDepth) fail("nested too deeply");
    nodes_.push_back(Node());
  }
  void make_array() {
    if (!nodes_.empty()) nodes_.back().array = true;
  }
  void finish_node() {
    open_node();
    out_.push_back(nodes_.back().array ? ']' : '}');
    nodes_.pop_back();
  }

  // Before each value: the comma and the name that its place needs.
  void begin_value() {
    if (out_.size() > kMaxPayloadBytes) fail("larger than a payload may be");
    if (nodes_.empty()) {
      if (!out_.empty()) fail("more than one value");
      return;
    }
    open_node();
    Node& node = nodes_.back();
    if (node.count++ > 0) out_.push_back(',');
    if (!node.array) write_name(node.count - 1);
  }

  void write(std::nullptr_t) { out_.append("null"); }
  void write(bool value) { out_.append(value ? "true" : "false"); }
  void write(const std::string& text) {
    if (!json::append_string(text, out_)) fail("a text is not UTF-8");
  }
  template <typename Number>
  void write_number(Number value) {
    char text[128];
    const std::to_chars_result result = std::to_chars(text, text + sizeof text, value);
    if (result.ec != std::errc()) fail("a number cannot be written");
    out_.append(text, result.ptr);
  }

 private:
  struct Node {
    bool array = false;
    bool open = false;
    std::size_t count = 0;
  };

  void open_node() {
    Node& node = nodes_.back();
    if (!node.open) out_.push_back(node.array ? '[' : '{');
    node.open = true;
  }

  // Values without a name get cereal's: value0, value1, …
  void write_name(std::size_t index) {
    const char* const given = std::exchange(next_name_, nullptr);
    write(given != nullptr ? std::string(given) : "value" + std::to_string(index));
    out_.push_back(':');
  }

  std::string& out_;
  const char* next_name_ = nullptr;
  std::vector<Node> nodes_;
};

class JsonReader : public cereal::InputArchive<JsonReader>, public cereal::traits::TextArchive {
 public:
  // A text that json::valid() accepted.
  explicit JsonReader(std::string_view text) : InputArchive(this), root_(text) {}

  void set_next_name(const char* name) { next_name_ = name; }

  void start_node() {
    const std::string_view value = take();
    const json::Type type = json::type_of(value);
    if (type != json::Type::object && type != json::Type::array) {
      fail_at("neither an object nor an array");
    }
    nodes_.push_back(Node{value, json::Members(value), type == json::Type::array});
  }
  void finish_node() { nodes_.pop_back(); }

  cereal::size_type element_count() const {
    if (nodes_.empty() || !nodes_.back().array) fail_at("not an array");
    cereal::size_type count = 0;
    for (json::Members members(nodes_.back().value); members.next();) ++count;
    return count;
  }

  void read(std::nullptr_t&) { take_as(json::Type::null, "not null"); }
  void read(bool& value) { value = take_as(json::Type::boolean, "not a boolean")[0] == 't'; }
  void read(std::string& text) {
    text = json::unescape(take_as(json::Type::string, "not a string"));
  }

  template <typename Number>
  void read_number(Number& value) {
    std::string_view text = take();
    // Some writers quote 64-bit integers, because some readers know doubles only.
    const bool may_be_quoted = std::is_integral_v<Number> && sizeof(Number) >= 8;
    if (may_be_quoted && json::type_of(text) == json::Type::string) {
      text = text.substr(1, text.size() - 2);
    }
    const char* const end = text.data() + text.size();
    const std::from_chars_result result = std::from_chars(text.data(), end, value);
    if (result.ec == std::errc::result_out_of_range) fail_at("a number out of range");
    if (result.ec != std::errc() || result.ptr != end) fail_at("not a number of its type");
    if constexpr (std::is_floating_point_v<Number>) {
      if (!std::isfinite(value)) fail_at("not a finite number");
    }
  }

 private:
  struct Node {
    std::string_view value;
    json::Members members;
    bool array;
  };

  // The value that is next: by name if there is one, else by its place.
  std::string_view take() {
    name_ = std::exchange(next_name_, nullptr);
    if (nodes_.empty()) {
      if (root_.empty()) fail("more than one value");
      const std::string_view text = std::exchange(root_, std::string_view());
      const std::size_t first = text.find_first_not_of(" \t\r\n");
      return text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first);
    }
    Node& node = nodes_.back();
    const bool more = node.members.next();
    if (name_ == nullptr || node.array) {
      if (!more) fail_at("missing");
      return node.members.value();
    }
    if (more && json::name_is(node.members.name(), name_)) return node.members.value();
    return take_out_of_order(node);
  }

  std::string_view take_out_of_order(Node& node) {
    for (json::Members members(node.value); members.next();) {
      if (!json::name_is(members.name(), name_)) continue;
      node.members = members;
      return members.value();
    }
    fail_at("missing");
  }

  std::string_view take_as(json::Type type, const char* otherwise) {
    const std::string_view value = take();
    if (json::type_of(value) != type) fail_at(otherwise);
    return value;
  }

  [[noreturn]] void fail_at(const char* what) const {
    fail((name_ != nullptr ? "\"" + std::string(name_) + "\" is " : "a value is ") +
         std::string(what));
  }

  std::string_view root_;
  const char* next_name_ = nullptr;
  const char* name_ = nullptr;  // of the value taken last, for error texts
  std::vector<Node> nodes_;
};

// Types that are objects or arrays: all but numbers, texts and those that save as one of them.
template <typename T>
constexpr bool kIsNode =
    !std::is_arithmetic_v<T> &&
    !cereal::traits::has_minimal_output_serialization<T, JsonWriter>::value &&
    !cereal::traits::has_minimal_base_class_serialization<
        T, cereal::traits::has_minimal_output_serialization, JsonWriter>::value;

template <typename T>
using if_arithmetic = std::enable_if_t<std::is_arithmetic_v<T>, int>;
template <typename T>
using if_node = std::enable_if_t<kIsNode<T>, int>;

// cereal calls prologue and epilogue around each value it processes. Where reading, the value may
// not be set yet: inlined, so that compilers see that it is not used, and do not warn.
#define HOLDFAST_TYPED_INLINE inline __attribute__((always_inline))

template <typename T, if_node<T> = 0>
void prologue(JsonWriter& out, const T&) {
  out.start_node();
}
template <typename T, if_node<T> = 0>
void epilogue(JsonWriter& out, const T&) {
  out.finish_node();
}
template <typename T, if_node<T> = 0>
HOLDFAST_TYPED_INLINE void prologue(JsonReader& in, const T&) {
  in.start_node();
}
template <typename T, if_node<T> = 0>
void epilogue(JsonReader& in, const T&) {
  in.finish_node();
}

template <typename T, if_arithmetic<T> = 0>
void prologue(JsonWriter& out, const T&) {
  out.begin_value();
}
template <typename T, if_arithmetic<T> = 0>
void epilogue(JsonWriter&, const T&) {}
template <typename T, if_arithmetic<T> = 0>
HOLDFAST_TYPED_INLINE void prologue(JsonReader&, const T&) {}
template <typename T, if_arithmetic<T> = 0>
void epilogue(JsonReader&, const T&) {}

inline void prologue(JsonWriter& out, const std::string&) { out.begin_value(); }
inline void epilogue(JsonWriter&, const std::string&) {}
inline void prologue(JsonReader&, const std::string&) {}
inline void epilogue(JsonReader&, const std::string&) {}

inline void prologue(JsonWriter& out, const std::nullptr_t&) { out.begin_value(); }
inline void epilogue(JsonWriter&, const std::nullptr_t&) {}
inline void prologue(JsonReader&, const std::nullptr_t&) {}
inline void epilogue(JsonReader&, const std::nullptr_t&) {}

// Names, sizes and deferred members are not values: they only say how the next one is written.
template <typename T>
void prologue(JsonWriter&, const cereal::NameValuePair<T>&) {}
template <typename T>
void epilogue(JsonWriter&, const cereal::NameValuePair<T>&) {}
template <typename T>
void prologue(JsonReader&, const cereal::NameValuePair<T>&) {}
template <typename T>
void epilogue(JsonReader&, const cereal::NameValuePair<T>&) {}
template <typename T>
void prologue(JsonWriter& out, const cereal::SizeTag<T>&) {
  out.make_array();
}
template <typename T>
void epilogue(JsonWriter&, const cereal::SizeTag<T>&) {}
template <typename T>
void prologue(JsonReader&, const cereal::SizeTag<T>&) {}
template <typename T>
void epilogue(JsonReader&, const cereal::SizeTag<T>&) {}
template <typename T>
void prologue(JsonWriter&, const cereal::DeferredData<T>&) {}
template <typename T>
void epilogue(JsonWriter&, const cereal::DeferredData<T>&) {}
template <typename T>
void prologue(JsonReader&, const cereal::DeferredData<T>&) {}
template <typename T>
void epilogue(JsonReader&, const cereal::DeferredData<T>&) {}

template <typename T>
void save(JsonWriter& out, const cereal::NameValuePair<T>& pair) {
  out.set_next_name(pair.name);
  out(pair.value);
}
template <typename T>
void load(JsonReader& in, cereal::NameValuePair<T>& pair) {
  in.set_next_name(pair.name);
  in(pair.value);
}
template <typename T>
void save(JsonWriter&, const cereal::SizeTag<T>&) {}
template <typename T>
void load(JsonReader& in, cereal::SizeTag<T>& tag) {
  tag.size = in.element_count();
}
inline void save(JsonWriter& out, const std::nullptr_t& value) { out.write(value); }
inline void load(JsonReader& in, std::nullptr_t& value) { in.read(value); }
inline void save(JsonWriter& out, const std::string& text) { out.write(text); }
inline void load(JsonReader& in, std::string& text) { in.read(text); }

template <typename T, if_arithmetic<T> = 0>
void save(JsonWriter& out, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    out.write(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) fail("a number is not finite");
    out.write_number(value);
  } else if constexpr (std::is_signed_v<T>) {
    out.write_number(static_cast<long long>(value));  // also char, which is a number here
  } else {
    out.write_number(static_cast<unsigned long long>(value));
  }
}

template <typename T, if_arithmetic<T> = 0>
void load(JsonReader& in, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    in.read(value);
  } else if constexpr (std::is_same_v<T, char>) {
    std::conditional_t<std::is_signed_v<char>, signed char, unsigned char> number{};
    in.read_number(number);
    value = static_cast<char>(number);
  } else {
    in.read_number(value);
  }
}

// --- portable binary ---
//
// As cereal/archives/portable_binary.hpp: a byte that says whether little-endian, then numbers as
// they are in memory, sizes as u64, no names. The reader differs in what it believes.

// The levels cereal processes for one struct or container: itself, its name, its element.
constexpr std::size_t kMaxProcessDepth = 3 * kMaxTypedDepth;

inline bool host_is_little_endian() {
  const std::uint16_t one = 1;
  unsigned char first = 0;
  std::memcpy(&first, &one, 1);
  return first == 1;
}

inline void swap_elements(void* data, std::size_t bytes, std::size_t element_bytes) {
  auto* const at = static_cast<unsigned char*>(data);
  for (std::size_t start = 0; start < bytes; start += element_bytes) {
    for (std::size_t i = 0; i < element_bytes / 2; ++i) {
      std::swap(at[start + i], at[start + element_bytes - 1 - i]);
    }
  }
}

class ProcessDepth {
 public:
  void enter() {
    if (++depth_ > kMaxProcessDepth) fail("nested too deeply");
  }
  void leave() { --depth_; }

 private:
  std::size_t depth_ = 0;
};

class PortableWriter : public cereal::OutputArchive<PortableWriter, cereal::AllowEmptyClassElision>,
                       public ProcessDepth {
 public:
  explicit PortableWriter(std::string& out) : OutputArchive(this), out_(out) {
    out_.push_back('\1');  // little-endian
  }

  void write(const void* data, std::size_t bytes, std::size_t element_bytes) {
    if (bytes > kMaxPayloadBytes || out_.size() > kMaxPayloadBytes - bytes) {
      fail("larger than a payload may be");
    }
    const std::size_t start = out_.size();
    out_.append(static_cast<const char*>(data), bytes);
    if (!host_is_little_endian()) swap_elements(&out_[start], bytes, element_bytes);
  }

 private:
  std::string& out_;
};

class BoundedPortableReader
    : public cereal::InputArchive<BoundedPortableReader, cereal::AllowEmptyClassElision>,
      public ProcessDepth {
 public:
  explicit BoundedPortableReader(std::string_view bytes)
      : InputArchive(this), rest_(bytes), elements_left_(bytes.size()) {
    unsigned char little_endian = 0;
    read(&little_endian, 1, 1);
    if (little_endian > 1) fail("not a portable binary");
    swap_ = (little_endian == 1) != host_is_little_endian();
  }

  std::size_t left() const { return rest_.size(); }

  void read(void* data, std::size_t bytes, std::size_t element_bytes) {
    if (bytes > rest_.size()) fail("shorter than its fields");
    if (bytes > 0) std::memcpy(data, rest_.data(), bytes);
    rest_.remove_prefix(bytes);
    if (swap_) swap_elements(data, bytes, element_bytes);
  }

  // Containers allocate what this returns. An element takes a byte at least, so all sizes in a
  // payload together cannot be more than its bytes; lists of empty structs are refused by this.
  cereal::size_type read_size() {
    cereal::size_type size = 0;
    read(&size, sizeof size, sizeof size);
    if (size > rest_.size() || size > elements_left_) fail("a size is beyond the end");
    elements_left_ -= static_cast<std::size_t>(size);
    return size;
  }

 private:
  std::string_view rest_;
  std::size_t elements_left_;
  bool swap_ = false;
};

template <typename T>
void prologue(PortableWriter& out, const T&) {
  out.enter();
}
template <typename T>
void epilogue(PortableWriter& out, const T&) {
  out.leave();
}
template <typename T>
HOLDFAST_TYPED_INLINE void prologue(BoundedPortableReader& in, const T&) {
  in.enter();
}
template <typename T>
void epilogue(BoundedPortableReader& in, const T&) {
  in.leave();
}

#undef HOLDFAST_TYPED_INLINE

template <typename T>
constexpr bool kIsPortable = !std::is_floating_point_v<T> || std::numeric_limits<T>::is_iec559;

// A byte that is neither 0 nor 1 must not become a bool: that is undefined behaviour.
inline void read_bools(BoundedPortableReader& in, bool* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    unsigned char byte = 0;
    in.read(&byte, 1, 1);
    if (byte > 1) fail("a bool is neither 0 nor 1");
    values[i] = byte == 1;
  }
}

template <typename T, if_arithmetic<T> = 0>
void save(PortableWriter& out, const T& value) {
  static_assert(kIsPortable<T>, "only IEEE 754 floating point is portable");
  out.write(&value, sizeof value, sizeof value);
}
template <typename T, if_arithmetic<T> = 0>
void load(BoundedPortableReader& in, T& value) {
  static_assert(kIsPortable<T>, "only IEEE 754 floating point is portable");
  if constexpr (std::is_same_v<T, bool>) {
    read_bools(in, &value, 1);
  } else {
    in.read(&value, sizeof value, sizeof value);
  }
}

template <typename T>
void save(PortableWriter& out, const cereal::NameValuePair<T>& pair) {
  out(pair.value);
}
template <typename T>
void load(BoundedPortableReader& in, cereal::NameValuePair<T>& pair) {
  in(pair.value);
}

template <typename T>
void save(PortableWriter& out, const cereal::SizeTag<T>& tag) {
  out(static_cast<cereal::size_type>(tag.size));
}
template <typename T>
void load(BoundedPortableReader& in, cereal::SizeTag<T>& tag) {
  tag.size = in.read_size();
}

template <typename T>
void save(PortableWriter& out, const cereal::BinaryData<T>& data) {
  using Element = std::remove_cv_t<std::remove_pointer_t<T>>;
  static_assert(kIsPortable<Element>, "only IEEE 754 floating point is portable");
  out.write(data.data, static_cast<std::size_t>(data.size), sizeof(Element));
}
template <typename T>
void load(BoundedPortableReader& in, cereal::BinaryData<T>& data) {
  using Element = std::remove_cv_t<std::remove_pointer_t<T>>;
  static_assert(kIsPortable<Element>, "only IEEE 754 floating point is portable");
  const std::size_t bytes = static_cast<std::size_t>(data.size);
  if constexpr (std::is_same_v<Element, bool>) {
    read_bools(in, static_cast<bool*>(data.data), bytes);
  } else {
    in.read(data.data, bytes, sizeof(Element));
  }
}

// --- the two directions ---

template <typename T>
void write_payload(const T& value, Encoding encoding, std::string& payload) {
  payload.clear();
  if (encoding == Encoding::json) {
    JsonWriter writer(payload);
    writer(value);
    writer.serializeDeferments();
  } else {
    PortableWriter writer(payload);
    writer(value);
    writer.serializeDeferments();
  }
  if (payload.size() > kMaxPayloadBytes) fail("larger than a payload may be");
}

template <typename T>
void read_payload(std::string_view payload, Encoding encoding, T& value) {
  if (payload.size() > kMaxPayloadBytes) fail("larger than a payload may be");
  if (encoding == Encoding::json) {
    if (!json::valid(payload, kMaxTypedDepth)) fail("not JSON, or nested too deeply");
    JsonReader reader(payload);
    reader(value);
    reader.serializeDeferments();
  } else {
    BoundedPortableReader reader(payload);
    reader(value);
    reader.serializeDeferments();
    if (reader.left() > 0) fail("bytes are left over: another type, or another version of it");
  }
}

// Runs `work` and turns what it throws into a Status.
template <typename Work>
Status without_exceptions(const char* doing, Work&& work) {
  try {
    work();
    return {};
  } catch (const std::bad_alloc&) {
    return Status::error(Code::unavailable, "%s: out of memory", doing);
  } catch (const std::exception& error) {
    return Status::error(Code::invalid, "%s: %s", doing, error.what());
  } catch (...) {
    return Status::error(Code::invalid, "%s: an unknown exception", doing);
  }
}

// "Application/JSON; charset=utf-8" is "application/json".
inline bool media_type_is(std::string_view content_type, std::string_view expected) {
  content_type = content_type.substr(0, content_type.find(';'));
  while (!content_type.empty() && content_type.back() == ' ') content_type.remove_suffix(1);
  if (content_type.size() != expected.size()) return false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const char c = content_type[i];
    if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != expected[i]) return false;
  }
  return true;
}

}  // namespace typed_detail

template <typename T>
Status encode(const T& value, Encoding encoding, std::string& payload) {
  return typed_detail::without_exceptions(
      "encoding", [&] { typed_detail::write_payload(value, encoding, payload); });
}

template <typename T>
Status decode(std::string_view payload, std::string_view content_type, T& value) {
  const bool json = typed_detail::media_type_is(content_type, kContentTypeJson);
  if (!json && !typed_detail::media_type_is(content_type, kContentTypeCereal)) {
    return Status::error(Code::invalid, "decoding: content_type \"%.*s\" is not a typed payload",
                         static_cast<int>(content_type.size()), content_type.data());
  }
  return typed_detail::without_exceptions("decoding", [&] {
    T decoded{};
    typed_detail::read_payload(payload, json ? Encoding::json : Encoding::portable_binary, decoded);
    value = std::move(decoded);
  });
}

}  // namespace holdfast

CEREAL_SETUP_ARCHIVE_TRAITS(holdfast::typed_detail::JsonReader, holdfast::typed_detail::JsonWriter)
CEREAL_SETUP_ARCHIVE_TRAITS(holdfast::typed_detail::BoundedPortableReader,
                            holdfast::typed_detail::PortableWriter)
