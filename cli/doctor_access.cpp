// The checks of `holdfast doctor` of who uses the database, and who can.
#include "doctor_checks.hpp"
#include "output.hpp"
#include "platform.hpp"

namespace holdfast::cli {
namespace {

// The packaged relay and gateway run as this user.
constexpr const char* kServiceUser = "holdfast";

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& each : parts) out += (out.empty() ? "" : ", ") + each;
  return out;
}

// Whether a connection checkpoints by itself (SQLite's default) is known to its own process alone,
// so every program that may is named.
void check_users(const std::string& path, const DatabaseFacts& database, Findings& out) {
  const platform::FileUsers users = platform::file_users(path);
  std::vector<std::string> ours, others;
  for (const platform::FileUser& each : users.list)
    (each.same_program ? ours : others)
        .push_back(each.name + " (pid " + std::to_string(each.pid) + ")");
  const std::string partly =
      users.complete ? "" : "; processes of other users cannot be seen, run this as root";
  if (!ours.empty()) out.add(Level::ok, "open by", joined(ours));
  if (others.empty()) {
    if (ours.empty() || !users.complete) out.add(Level::ok, "open by", "no other program" + partly);
    return;
  }
  if (database.wal_reset_fixed) {
    out.add(Level::ok, "open by", joined(others) + partly);
    return;
  }
  out.add(Level::note, "open by",
          joined(others) +
              ": may checkpoint, which this SQLite does not do safely beside a writer" + partly,
          "attach it with Outbox::attach, or let it run `PRAGMA wal_autocheckpoint=0` on each "
          "connection");
}

void check_permissions(const std::string& path, const std::string& wanted, Findings& out) {
  const std::string user = wanted.empty() ? kServiceUser : wanted;
  bool known = false;
  std::vector<std::string> barred;
  const Status status = platform::files_barred_to(path, user, known, barred);
  if (!status.ok()) {
    out.add(Level::warn, "permissions", status.text(), "see that the path is right");
  } else if (!known) {
    if (!wanted.empty())
      out.add(Level::fail, "permissions", "/etc/passwd has no user " + wanted,
              "name the user that the relay runs as");
  } else if (barred.empty()) {
    out.add(Level::ok, "permissions", user + " can use the database");
  } else {
    // Without --user nobody has said that this user needs it.
    out.add(wanted.empty() ? Level::note : Level::fail, "permissions",
            user + " has no access to " + joined(barred),
            "give its group read and write access to the folder and the files in it: "
            "chgrp, chmod g+rw, g+rwxs for the folder");
  }
}

}  // namespace

void check_access(const std::string& path, const DatabaseFacts& database, const std::string& user,
                  Findings& out) {
  if (!database.exists) return;
  check_users(path, database, out);
  check_permissions(path, user, out);
}

}  // namespace holdfast::cli
