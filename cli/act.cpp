#include "act.hpp"

#include "output.hpp"

namespace holdfast::cli {
namespace {

// "SENT at upstream, PENDING at cloud"
std::string states_of(const std::vector<EventView>& views, std::int64_t seq) {
  std::string out;
  for (const EventView& view : views) {
    if (view.event.seq != seq) continue;
    out += (out.empty() ? "" : ", ") + std::string(state_name(view.state));
    if (!view.destination.empty()) out += " at " + view.destination;
  }
  return out;
}

bool goes_on_after(const Status& status) {
  return status.code() == Code::not_found || status.code() == Code::misuse ||
         status.code() == Code::refused;
}

}  // namespace

int act_on_each(const Where& where, const std::vector<std::string>& ids, const char* did,
                const Action& action) {
  std::vector<EventName> names(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (parse_event_name(ids[i], names[i])) continue;
    return fail(where, kExitUsage, "\"" + ids[i] + "\" is neither a UUID nor a seq",
                "nothing was changed");
  }
  Store store;
  Status status = Store::open(where.subject, Access::read_write, {}, store);
  if (!status.ok()) return fail(where, status);
  Output out;
  int exit_status = kExitDone;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::vector<EventView> views;
    std::int64_t changed = 0;
    status = find_event(store, names[i], views);
    const std::int64_t seq = views.empty() ? 0 : views.front().event.seq;
    if (status.ok()) status = action(store, seq, changed);
    if (!status.ok()) {
      exit_status = fail(where, status);
      if (goes_on_after(status)) continue;
      break;
    }
    if (changed == 0) {
      exit_status = fail(where, kExitFailed,
                         "event " + ids[i] + " is " + states_of(views, seq) + "; nothing to do");
      continue;
    }
    out.line("event " + std::to_string(seq) + " " + did);
    out.flush();
  }
  return exit_status == kExitDone ? finish(where, out) : exit_status;
}

}  // namespace holdfast::cli
