// An event as a message of a broker: its body and what is said beside it, in one of three formats.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "holdfast/event.hpp"
#include "sink_url.hpp"

namespace holdfast::cli {

enum class MessageFormat {
  json,                // the JSON object of `holdfast ls --json`
  cloudevents,         // CloudEvents 1.0, structured: one JSON object
  cloudevents_binary,  // CloudEvents 1.0, binary: the body is the payload, attributes beside it
};

struct Message {
  std::string content_type;
  std::vector<std::pair<std::string, std::string>> attributes;  // binary format alone
  std::string body;
};

// format=json|cloudevents|cloudevents-binary
Status take_format(SinkUrl& url, MessageFormat& format);
Message message_of(const EventRecord& event, MessageFormat format);

// {event_type} and so on in a subject or topic. What the broker gives a meaning to, in a value that
// an event brings, becomes %XX: an event cannot choose a place that the template does not give it.
class NameTemplate {
 public:
  // `reserved`: characters to be encoded beside %, white space and control characters.
  Status parse(const std::string& text, const char* reserved, const char* reserved_in_type,
               const std::string& sink);
  std::string fill(const EventRecord& event) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::string reserved_;
  std::string reserved_in_type_;
};

}  // namespace holdfast::cli
