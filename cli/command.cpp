#include "command.hpp"

#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <map>

#include "json.hpp"
#include "output.hpp"

namespace holdfast::cli {
namespace {

constexpr const char* kDatabaseVariable = "HOLDFAST_DB";
constexpr std::size_t kHelpColumns = 34;

std::string default_database() {
  const char* path = ::getenv(kDatabaseVariable);
  return path != nullptr ? path : "";
}

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(const char* usage) : usage_(usage) { column_width(kHelpColumns); }

  std::string make_usage(const CLI::App*, std::string name) const override {
    return "\nUsage: " + name + (usage_.empty() ? "" : " ") + usage_ + "\n";
  }
  std::string make_description(const CLI::App* app) const override {
    return app->get_description() + "\n";
  }
  // CLI11 leaves two blank lines between groups.
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return CLI::detail::find_and_replace(CLI::Formatter::make_help(app, std::move(name), mode),
                                         "\n\n\n", "\n\n");
  }
  // Only what we say ourselves: CLI11 would add which options exclude which.
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string& text = option->get_option_text();
    return text.empty() || text.front() == '[' ? text : " " + text;
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    const std::string name = CLI::Formatter::make_option_name(option, is_positional);
    return name.substr(0, name.find('{'));  // without a flag's default
  }

 private:
  std::string usage_;
};

}  // namespace

void set_help(CLI::App& program, const char* usage, const char* details) {
  program.formatter(std::make_shared<HelpFormatter>(usage));
  program.get_formatter()->label("Positionals", "Arguments");
  program.footer(details);
  program.set_help_flag("-h,--help", "Print this and exit");
}

CLI::App* declare(CLI::App& parent, const CommandText& text) {
  CLI::App* command = parent.add_subcommand(text.name, text.description);
  command->group(text.group != nullptr ? text.group : "Commands");
  set_help(*command, text.usage, text.details);
  return command;
}

void DatabaseArgument::add(CLI::App& command) {
  command.add_option("DB", first, "The database; $HOLDFAST_DB if left out")->type_name("");
}

void DatabaseArgument::add_with_rest(CLI::App& command, const char* rest_name,
                                     const char* rest_description) {
  add(command);
  command.add_option(rest_name, rest, rest_description)->type_name("");
}

std::string DatabaseArgument::path() const {
  const std::string path = first.empty() ? default_database() : first;
  if (path.empty()) {
    throw CLI::ValidationError("DB", "no database given; name one, or set HOLDFAST_DB");
  }
  return path;
}

DatabaseArgument::Named DatabaseArgument::path_and_name() const {
  if (rest.size() > 1) throw CLI::ExtrasError(std::vector<std::string>{rest.back()});
  const std::string from_environment = default_database();
  if (rest.empty() && !first.empty() && !from_environment.empty()) {
    return {from_environment, first};
  }
  return {path(), rest.empty() ? "" : rest.front()};
}

DatabaseArgument::WithIds DatabaseArgument::path_and_ids() const {
  EventName ignored;
  WithIds out;
  const std::string from_environment = default_database();
  if (!from_environment.empty() && parse_event_name(first, ignored)) {
    out.path = from_environment;
    out.ids.push_back(first);
  } else {
    out.path = path();
  }
  out.ids.insert(out.ids.end(), rest.begin(), rest.end());
  return out;
}

bool parse_event_name(const std::string& text, EventName& name) {
  name = EventName{};
  if (EventId::parse(text, name.id)) return !name.id.nil();
  return parse_integer(text, name.seq) && name.seq > 0;
}

Status find_event(Store& store, const EventName& name, std::vector<EventView>& views) {
  views.clear();
  const Status status = name.seq > 0 ? store.find(name.seq, views) : store.find(name.id, views);
  if (!status.ok() || !views.empty()) return status;
  return Status::error(Code::not_found, "there is no event %s",
                       name.seq > 0 ? std::to_string(name.seq).c_str() : name.id.text().c_str());
}

bool split_aggregate(const std::string& text, std::string& type, std::string& id) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size()) return false;
  type = text.substr(0, slash);
  id = text.substr(slash + 1);
  return true;
}

int finish(const Where& where, Output& out, int exit_status) {
  const Status status = out.finish();
  if (status.ok()) return exit_status;
  return fail({where.command, ""}, status);
}

}  // namespace holdfast::cli
