// holdfast: the command line. Data goes to stdout, everything else to stderr; the exit statuses are
// in exit_status.hpp.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "command.hpp"
#include "holdfast/version.hpp"
#include "output.hpp"
#include "signals.hpp"
#include "sinks.hpp"

namespace {

using namespace holdfast::cli;

constexpr std::size_t kCommandColumns = 16;
constexpr const char* kProgramDetails =
    "Every command has its own --help, with an example.\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 found something to worry\n"
    "about (doctor; events left behind by relay --drain), 75 temporarily unable (upstream\n"
    "unreachable, database locked).\n"
    "\n"
    "Environment: HOLDFAST_DB  the database, where none is given\n"
    "             NO_COLOR     no colours, also on a terminal";

// "inbox ls": the commands that were named, outermost first.
std::string command_path(const CLI::App& program) {
  std::string path;
  for (const CLI::App* app = &program; !app->get_subcommands().empty();) {
    app = app->get_subcommands().front();
    path += (path.empty() ? "" : " ") + app->get_name();
  }
  return path;
}

// CLI11 takes `--payload= --type x` as the payload "--type"; an empty value given by = is one.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> out;
  bool options_over = false;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--") options_over = true;
    if (!options_over && argument.size() > 3 && argument.compare(0, 2, "--") == 0 &&
        argument.find('=') == argument.size() - 1) {
      argument.pop_back();
      out.push_back(argument);
      out.emplace_back();
      continue;
    }
    out.push_back(std::move(argument));
  }
  return out;
}

void declare_commands(CLI::App& program, Run& run) {
  add_init(program, run);
  add_certs(program, run);
  add_emit(program, run);
  add_capture(program, run);
  add_relay(program, run);
  add_gateway(program, run);
  add_sink(program, run);
  add_ls(program, run);
  add_show(program, run);
  add_resolve(program, run);
  add_stats(program, run);
  add_inbox(program, run);
  add_doctor(program, run);
  add_version(program, run);
  add_retry(program, run);
  add_discard(program, run);
  add_purge(program, run);
  add_destination(program, run);
  add_backup(program, run);
#ifdef HOLDFAST_BENCH
  add_bench(program, run);
#endif
}

// Why the arguments were refused, in our own words where CLI11's do not help.
std::string usage_problem(const CLI::App& program, const CLI::ParseError& error,
                          const std::vector<std::string>& arguments) {
  std::string what = error.what();
  const bool no_command = program.get_subcommands().empty();
  if (no_command && !arguments.empty() && arguments.front().compare(0, 1, "-") != 0) {
    return "there is no command \"" + arguments.front() + "\"";
  }
  if (no_command && arguments.empty()) return "a command is missing";
  if (no_command) return "there is no option " + arguments.front() + " before a command";
  if (what == "A subcommand is required") {
    const std::string name = command_path(program);
    what = "a command is missing: ";
    for (const CLI::App* each : program.get_subcommand(name)->get_subcommands({})) {
      what += (what.back() == ' ' ? "" : ", ") + each->get_name();
    }
    return what;
  }
  // ValidationError puts a name in front; ours is said in the text where it matters.
  if (what.compare(0, 4, "DB: ") == 0) what.erase(0, 4);
  return what;
}

// A descriptor that was closed when we started (`holdfast … >&-`) would be given to the next file
// that is opened, and what is printed would go there. Opened the wrong way round, so that using it
// is still the error it should be.
void open_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    const int opened = ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened != fd && opened >= 0) ::close(opened);
  }
}

// Databases, backups and sockets hold what an application wrote: no file that is made here is open
// to others, whatever the umask that was inherited. Owner and group keep what that gives them.
void keep_others_out() { ::umask(::umask(S_IRWXO) | S_IRWXO); }

int parse_and_run(int argc, char** argv) {
  CLI::App program(
      "Events that survive: a transactional outbox, its relay and the gateway's inbox.",
      "holdfast");
  program.require_subcommand(1);
  set_help(program, "COMMAND [DB] ...", kProgramDetails);
  // Not library_versions(): that starts threads, before StopSignals has blocked the signals for
  // them.
  program.set_version_flag("--version", std::string("holdfast ") + holdfast::kVersion,
                           "Print the version and exit; more: `holdfast version`");
  program.get_formatter()->column_width(kCommandColumns);
  Run run;
  declare_commands(program, run);

  const std::vector<std::string> arguments = arguments_of(argc, argv);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    program.parse(reversed);
    return run();
  } catch (const CLI::CallForHelp&) {
    Output out;
    out.write(program.help());
    return finish({"help", ""}, out);
  } catch (const CLI::CallForVersion& version) {
    Output out;
    out.line(version.what());
    return finish({"version", ""}, out);
  } catch (const CLI::ParseError& error) {
    const std::string command = command_path(program);
    return fail({command, ""}, kExitUsage, usage_problem(program, error, arguments),
                "see `holdfast " + command + (command.empty() ? "" : " ") + "--help`");
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  end_quietly_on_broken_pipes();
  keep_others_out();
  try {
    const int done = hand_over_to_sinks(argc, argv);
    return done >= 0 ? done : parse_and_run(argc, argv);
  } catch (const std::bad_alloc&) {
    return fail({}, kExitFailed, "out of memory");
  } catch (const std::exception& error) {
    return fail({}, kExitFailed, std::string("internal error: ") + error.what(),
                "please report this");
  }
}
