// The part of Store that looks at events and inbox rows, page by page, so that no read transaction
// stays open while the caller works.

#include <algorithm>
#include <cctype>

#include "event_row.hpp"
#include "event_time.hpp"
#include "schema.hpp"
#include "store_impl.hpp"

namespace holdfast {

namespace {

constexpr std::int64_t kPageRows = 256;
constexpr std::size_t kPageBytes = 4 * 1024 * 1024;  // of payloads; one row may exceed it

const char* const kStateNames[] = {"PENDING", "PROCESSING", "SENT", "RETRY",
                                   "HELD",    "DEAD",       "GONE"};

}  // namespace

const char* state_name(EventState state) { return kStateNames[static_cast<int>(state)]; }

bool parse_state(std::string_view name, EventState& state) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (int i = 0; i <= static_cast<int>(EventState::gone); ++i) {
    if (upper != kStateNames[i]) continue;
    state = static_cast<EventState>(i);
    return true;
  }
  return false;
}

Status derive_state(sqlite3* db, const DestinationRow& row, bool lease_is_live,
                    std::string_view exception_status, EventView& view) {
  view.destination = row.name;
  if (!exception_status.empty()) {
    if (!parse_state(exception_status, view.state)) view.state = EventState::retry;
    return Status();
  }
  const LaneCursor& cursor = row.lanes[view.event.lane];
  Statement gap;
  Status status = gap.prepare(db, sql::kGapAt);
  if (!status.ok()) return status;
  gap.bind(1, row.id).bind(2, static_cast<std::int64_t>(view.event.lane)).bind(3, view.event.seq);
  if (gap.step(status, "gap")) {
    view.state = EventState::gone;
    view.gone_reason = std::string(gap.column_text(0));
    if (!gap.column_is_null(1)) view.gone_reason += ": " + std::string(gap.column_text(1));
  } else if (view.event.seq <= cursor.acked_seq) {
    view.state = EventState::sent;
  } else if (lease_is_live && view.event.seq <= cursor.claimed_seq) {
    view.state = EventState::processing;
  } else {
    view.state = EventState::pending;
  }
  return status;
}

namespace {

void read_exception_columns(const Statement& row, const DestinationRow& destination,
                            const Clock& clock, EventView& view) {
  if (row.column_is_null(kEventColumns)) return;
  view.attempts = static_cast<int>(row.column_int(kEventColumns + 1));
  if (row.column_text(kEventColumns) == "RETRY") {
    const bool same_boot = destination.times_boot_id == clock.boot_id();
    view.next_attempt_in_ms =
        same_boot ? std::max<std::int64_t>(0, row.column_int(kEventColumns + 2) - clock.boot_ms())
                  : 0;
  }
  view.last_error = std::string(row.column_text(kEventColumns + 3));
}

void bind_filter(Statement& page, std::int64_t destination, std::int64_t after,
                 const ListFilter& filter, std::int64_t rows) {
  page.bind(1, destination)
      .bind(2, after)
      .bind_text_or_null(3, filter.event_type)
      .bind_text_or_null(4, filter.aggregate_type)
      .bind_text_or_null(5, filter.aggregate_id)
      .bind(6, rows);
}

bool wanted(const ListFilter& filter, EventState state) {
  if (filter.all_states) return true;
  if (filter.states.empty()) return state != EventState::sent && state != EventState::gone;
  return std::find(filter.states.begin(), filter.states.end(), state) != filter.states.end();
}

bool wants_settled(const ListFilter& filter) {
  return wanted(filter, EventState::sent) || wanted(filter, EventState::gone);
}

bool wants_only_exceptions(const ListFilter& filter) {
  return !wants_settled(filter) && !wanted(filter, EventState::pending) &&
         !wanted(filter, EventState::processing);
}

// Below this, a destination has nothing but sent and gone events, and exceptions.
Status first_unsettled(sqlite3* db, const DestinationRow& row, std::int64_t& seq) {
  std::int64_t normal = 0, urgent = 0;
  LaneCounts counts;
  Status status = count_lane(db, row, kLaneNormal, counts);
  if (status.ok() && counts.beyond_cursor_max > 0)  // else it would walk past all urgent ones
    status = query_bound(db, sql::kFirstNormalAfter, row.lanes[kLaneNormal].acked_seq, normal);
  if (status.ok())
    status = query_bound(db, sql::kFirstUrgentAfter, row.lanes[kLaneUrgent].acked_seq, urgent);
  seq = INT64_MAX;
  if (normal > 0) seq = normal;
  if (urgent > 0) seq = std::min(seq, urgent);
  return status;
}

class Lister {
 public:
  Lister(sqlite3* db, const Clock& clock, const ListFilter& filter,
         const std::function<bool(const EventView&)>& fn)
      : db_(db),
        clock_(clock),
        filter_(filter),
        fn_(fn),
        left_(filter.limit < 0 ? INT64_MAX : filter.limit) {}

  Status run() {
    std::vector<DestinationRow> rows;
    Status status = list_destinations(db_, rows);
    bool any = false;
    for (const DestinationRow& row : rows) {
      if (!filter_.destination.empty() && row.name != filter_.destination) continue;
      any = true;
      if (status.ok() && !stopped_) status = list_destination(row);
    }
    if (!status.ok() || any) return status;
    if (!filter_.destination.empty())
      return Status::error(Code::not_found, "no destination named %s", filter_.destination.c_str());
    DestinationRow none;  // a log that goes nowhere: nothing waits
    none.lanes[kLaneNormal].acked_seq = none.lanes[kLaneUrgent].acked_seq = INT64_MAX;
    return list_destination(none);
  }

 private:
  Status list_destination(const DestinationRow& row) {
    std::int64_t after = filter_.after_seq;
    if (wants_only_exceptions(filter_)) return pages(row, sql::kListExceptions, after, INT64_MAX);
    if (!wants_settled(filter_)) {
      // The exceptions may lie far below the pending events: no walk over what is sent between.
      std::int64_t first = 0;
      Status status = first_unsettled(db_, row, first);
      if (status.ok()) status = pages(row, sql::kListExceptions, after, first);
      if (!status.ok() || stopped_ || first == INT64_MAX) return status;
      after = std::max(after, first - 1);
    }
    return pages(row, sql::kListPage, after, INT64_MAX);
  }

  // Rows of one statement, up to but without `end`.
  Status pages(const DestinationRow& row, const char* sql, std::int64_t after, std::int64_t end) {
    const bool live = lease_live(row, clock_);
    for (;;) {
      stopped_ = stopped_ || left_ <= 0;
      if (stopped_) return Status();
      std::vector<EventView> page;
      bool last = false;
      Status status = read_page(row, live, sql, after, page, last);
      if (!status.ok()) return status;
      for (const EventView& view : page) {
        after = view.event.seq;
        if (view.event.seq >= end) return Status();
        if (!wanted(filter_, view.state)) continue;
        stopped_ = left_-- <= 0 || !fn_(view);
        if (stopped_) return Status();
      }
      if (last) return Status();
    }
  }

  // `last`: there is nothing after this page.
  Status read_page(const DestinationRow& row, bool live, const char* sql, std::int64_t after,
                   std::vector<EventView>& page, bool& last) {
    Statement statement;
    Status status = statement.prepare(db_, sql);
    if (!status.ok()) return status;
    const std::int64_t rows_max = rows_of_page();
    bind_filter(statement, row.id, after, filter_, rows_max);
    EventTimes times(db_, clock_);
    std::size_t bytes = 0;
    last = false;
    while (bytes < kPageBytes && statement.step(status, "events")) {
      EventView view;
      // A damaged row is shown as far as it can be read; the relay calls it dead with the reason.
      const Status bad = read_event(statement, view.event);
      if (!bad.ok()) view.last_error = bad.text();
      const Status dated = bad.ok() ? times.correct(view.event) : Status();
      if (!dated.ok()) return dated;
      if (!filter_.with_payload) view.event.payload.clear();
      read_exception_columns(statement, row, clock_, view);
      const Status derived =
          derive_state(db_, row, live, statement.column_text(kEventColumns), view);
      if (!derived.ok()) return derived;
      bytes += view.event.payload.size();
      page.push_back(std::move(view));
    }
    last = bytes < kPageBytes && static_cast<std::int64_t>(page.size()) < rows_max;
    return status;
  }

  // No more than will be shown, unless some of them are passed over.
  std::int64_t rows_of_page() const {
    return filter_.all_states ? std::clamp<std::int64_t>(left_, 1, kPageRows) : kPageRows;
  }

  sqlite3* db_;
  const Clock& clock_;
  const ListFilter& filter_;
  const std::function<bool(const EventView&)>& fn_;
  std::int64_t left_;
  bool stopped_ = false;
};

}  // namespace

Status Store::list(const ListFilter& filter, const std::function<bool(const EventView&)>& fn) {
  if (!impl_) return not_open("list");
  return Lister(impl_->db.handle(), impl_->clock(), filter, fn).run();
}

Status Store::find(std::int64_t seq, std::vector<EventView>& views) {
  views.clear();
  if (!impl_) return not_open("find");
  ListFilter filter;
  filter.all_states = true;
  filter.after_seq = seq - 1;
  filter.limit = 1;
  // One row for each destination: the listing of each begins at seq and is stopped after it.
  std::vector<DestinationRow> rows;
  Status status = list_destinations(impl_->db.handle(), rows);
  if (!status.ok()) return status;
  if (rows.empty()) rows.emplace_back();
  for (const DestinationRow& row : rows) {
    filter.destination = row.name;
    status = list(filter, [&](const EventView& view) {
      if (view.event.seq == seq) views.push_back(view);
      return false;
    });
    if (!status.ok()) return status;
  }
  if (views.empty())
    return Status::error(Code::not_found, "no event with seq %lld in %s",
                         static_cast<long long>(seq), impl_->db.path().c_str());
  return Status();
}

Status Store::find(const EventId& id, std::vector<EventView>& views) {
  views.clear();
  if (!impl_) return not_open("find");
  Statement statement;
  Status status = statement.prepare(impl_->db.handle(), sql::kFindId);
  if (!status.ok()) return status;
  const std::string text = id.text();
  statement.bind_text(1, text).bind(2, INT64_MAX);
  const std::int64_t seq = statement.step(status, "find") ? statement.column_int(0) : 0;
  statement.reset();
  if (!status.ok()) return status;
  if (seq == 0)
    return Status::error(Code::not_found, "no event %s in %s", text.c_str(),
                         impl_->db.path().c_str());
  return find(seq, views);
}

Status Store::audit(std::int64_t limit, std::vector<AuditRow>& rows) {
  rows.clear();
  if (!impl_) return not_open("audit");
  Statement statement;
  Status status = statement.prepare(impl_->db.handle(), sql::kAuditList);
  if (!status.ok()) return status;
  statement.bind(1, limit);
  while (statement.step(status, "audit"))
    rows.push_back({statement.column_int(0), std::string(statement.column_text(1)),
                    std::string(statement.column_text(2))});
  return status;
}

// --- inbox ---------------------------------------------------------------------------------------

namespace {

InboxRow read_inbox_row(const Statement& row) {
  InboxRow out;
  if (!row.column_id(0, out.id)) out.id = EventId();
  out.consumer = std::string(row.column_text(1));
  out.status = std::string(row.column_text(2));
  out.attempts = static_cast<int>(row.column_int(3));
  out.received_at_ms = row.column_int(4);
  out.last_error = std::string(row.column_text(5));
  return out;
}

}  // namespace

Status Store::list_inbox(const InboxFilter& filter,
                         const std::function<bool(const InboxRow&)>& fn) {
  if (!impl_) return not_open("inbox");
  std::int64_t left = filter.limit < 0 ? INT64_MAX : filter.limit;
  InboxRow last;
  for (;;) {
    Statement statement;
    Status status = statement.prepare(impl_->db.handle(), sql::kInboxPage);
    if (!status.ok()) return status;
    statement.bind_id(1, last.id)
        .bind_text(2, last.consumer)
        .bind_text_or_null(3, filter.status)
        .bind_text_or_null(4, filter.consumer)
        .bind(5, kPageRows);
    std::vector<InboxRow> page;
    while (statement.step(status, "inbox")) page.push_back(read_inbox_row(statement));
    statement.finalize();
    if (!status.ok()) return status;
    for (const InboxRow& row : page)
      if (left-- <= 0 || !fn(row)) return Status();
    if (static_cast<std::int64_t>(page.size()) < kPageRows) return Status();
    last = page.back();
  }
}

Status Store::find_inbox(const EventId& id, std::vector<InboxRow>& rows) {
  rows.clear();
  if (!impl_) return not_open("inbox");
  Statement statement;
  Status status = statement.prepare(impl_->db.handle(), sql::kInboxFind);
  if (!status.ok()) return status;
  statement.bind_id(1, id);
  while (statement.step(status, "inbox")) rows.push_back(read_inbox_row(statement));
  if (status.ok() && rows.empty())
    return Status::error(Code::not_found, "no inbox row of event %s in %s", id.text().c_str(),
                         impl_->db.path().c_str());
  return status;
}

Status Store::list_streams(const std::function<bool(const InboxStreamRow&)>& fn) {
  if (!impl_) return not_open("inbox");
  Statement statement;
  Status status = statement.prepare(impl_->db.handle(), sql::kStreamAll);
  if (!status.ok()) return status;
  std::vector<InboxStreamRow> rows;
  while (statement.step(status, "inbox_stream")) {
    InboxStreamRow row;
    if (!statement.column_id(0, row.stream)) row.stream = EventId();
    row.lane = static_cast<int>(statement.column_int(1));
    row.consumer = std::string(statement.column_text(2));
    row.device = std::string(statement.column_text(3));
    row.mark_seq = statement.column_int(4);
    if (!statement.column_id(5, row.mark_id)) row.mark_id = EventId();
    row.last_seen_at_ms = statement.column_int(6);
    row.open_gaps = statement.column_int(7);
    rows.push_back(std::move(row));
  }
  statement.finalize();
  for (const InboxStreamRow& row : rows)
    if (status.ok() && !fn(row)) break;
  return status;
}

Status Store::list_gaps(const std::function<bool(const InboxGapRow&)>& fn) {
  if (!impl_) return not_open("inbox");
  Statement statement;
  Status status = statement.prepare(impl_->db.handle(), sql::kInboxGapAll);
  if (!status.ok()) return status;
  std::vector<InboxGapRow> rows;
  while (statement.step(status, "inbox_gap")) {
    InboxGapRow row;
    if (!statement.column_id(0, row.stream)) row.stream = EventId();
    row.lane = static_cast<int>(statement.column_int(1));
    row.consumer = std::string(statement.column_text(2));
    row.first_seq = statement.column_int(3);
    row.last_seq = statement.column_int(4);
    row.count = statement.column_int(5);
    row.state = std::string(statement.column_text(6));
    row.reason = std::string(statement.column_text(7));
    rows.push_back(std::move(row));
  }
  statement.finalize();
  for (const InboxGapRow& row : rows)
    if (status.ok() && !fn(row)) break;
  return status;
}

}  // namespace holdfast
