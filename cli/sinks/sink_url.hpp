// [NAME=]URL of a sink, taken apart. Nothing secret can be in it, for a command line is visible to
// every user of the machine: secrets come from files or the environment, which the URL names.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/status.hpp"

namespace holdfast::cli {

struct SinkUrl {
  std::string name;    // of the destination: what was given, else the scheme
  std::string text;    // the URL as given, without the name
  std::string scheme;  // lower case
  std::string user;    // decoded, as are host, path and the values of options
  std::string host;
  int port = 0;      // 0: not given
  std::string path;  // without the slash before it
  std::string rest;  // what follows the scheme, as it stands
  std::vector<std::pair<std::string, std::string>> options;

  // Takes the option out and says whether it was there.
  bool take(std::string_view option, std::string& value);
  // All were taken? The error names one that was not.
  Status none_left() const;
};

// Each byte that `kept` does not take becomes %XX.
std::string percent_encode(std::string_view text, const std::function<bool(char)>& kept);

// Refuses a password in the URL.
Status parse_sink_url(std::string_view given, SinkUrl& out);

// `password` from the file or the environment variable that NAME_file= or NAME_env= names; "" if
// neither does. The first line of the file counts, and others must not be able to read it.
Status take_secret(SinkUrl& url, const std::string& name, std::string& secret);

// A number from min to max, if the option is there.
Status take_number(SinkUrl& url, std::string_view option, long min, long max, long& value);

}  // namespace holdfast::cli
