// What the parts of the C interface share: structs that may grow, and texts.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "holdfast/event.hpp"
#include "holdfast/holdfast.h"
#include "holdfast/inbox.hpp"
#include "holdfast/outbox.hpp"
#include "holdfast/status.hpp"
#include "holdfast/store.hpp"
#include "holdfast/writer.hpp"

struct holdfast_outbox {
  holdfast::Outbox own;
  holdfast::Outbox* outbox = &own;  // or a writer's
};
struct holdfast_writer {
  holdfast::Writer writer;
  holdfast_outbox outbox;  // what its functions are given; they run one at a time
};

namespace holdfast::c_api {

// Fills the caller's status, if there is one, and gives the code to return.
holdfast_code finish(const Status& status, holdfast_status* out);

inline Status missing(const char* what) {
  return Status::error(Code::invalid, "%s: NULL where something is needed", what);
}

inline std::string text(const char* given) { return given != nullptr ? given : ""; }
inline std::string text(const char* given, const char* otherwise) {
  return given != nullptr ? given : otherwise;
}

// A field's default is zero, "none" or "never" is negative.
template <class T>
T or_default(T given, T otherwise) {
  return given == 0 ? otherwise : given;
}

inline int busy_timeout(int given) { return given < 0 ? 0 : or_default(given, kBusyTimeoutMs); }

inline std::string_view view_of(const char* text) {
  return text != nullptr ? text : std::string_view();
}

// Copies what the caller gave into the struct as this library knows it. What an older caller did
// not have is zero; what a newer one has in addition must be zero.
template <class T>
Status take(const T* given, const char* what, T& out) {
  static_assert(std::is_trivially_copyable<T>::value && offsetof(T, struct_size) == 0);
  std::memset(&out, 0, sizeof(out));
  out.struct_size = sizeof(out);
  const std::size_t size = given->struct_size;
  if (size <= sizeof(std::size_t) || size > 64 * 1024)
    return Status::error(Code::invalid, "%s: set struct_size to its sizeof", what);
  std::memcpy(&out, given, size < sizeof(out) ? size : sizeof(out));
  out.struct_size = sizeof(out);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(out); i < size; ++i)
    if (bytes[i] != 0)
      return Status::error(Code::invalid, "%s: has a field that this library (%s) does not know",
                           what, holdfast_version());
  return Status();
}

// As take, for options that may be left out.
template <class T>
Status take_optional(const T* given, const char* what, T& out) {
  if (given != nullptr) return take(given, what, out);
  std::memset(&out, 0, sizeof(out));
  out.struct_size = sizeof(out);
  return Status();
}

// Whether a result can be given later: to be asked before anything is done.
template <class T>
Status check_result(const T* out, const char* what) {
  if (out == nullptr || (out->struct_size > sizeof(std::size_t) && out->struct_size <= 64 * 1024))
    return Status();
  return Status::error(Code::invalid, "%s: set struct_size to its sizeof", what);
}

// As much of it as the caller's struct has room for.
template <class T>
void give(const T& filled, T* out) {
  if (out == nullptr) return;
  const std::size_t size = out->struct_size;
  std::memset(out, 0, size);
  std::memcpy(out, &filled, size < sizeof(filled) ? size : sizeof(filled));
  out->struct_size = size;
}

template <class T>
T empty() {
  T made;
  std::memset(&made, 0, sizeof(made));
  made.struct_size = sizeof(made);
  return made;
}

// Cut at the room there is, always with its zero byte, never within a UTF-8 character.
void copy_text(const std::string& from, char* to, std::size_t room);
std::string reason_text(const char (&reason)[HOLDFAST_REASON_BYTES]);

holdfast_id id_of(const EventId& id);
EventId id_of(const holdfast_id& id);
// Points into the record.
holdfast_record record_of(const EventRecord& record);
Handler handler_of(holdfast_handler handler, void* context);

}  // namespace holdfast::c_api
