// The C interface of the store: translation only, no decisions.
#include <vector>

#include "c_api.hpp"
#include "holdfast/store.hpp"

using namespace holdfast;
using namespace holdfast::c_api;

struct holdfast_store {
  Store store;
};

namespace {

Status store_missing(const holdfast_store* store) {
  return store != nullptr ? Status() : missing("store");
}

}  // namespace

// --- open --------------------------------------------------------------------------------------

extern "C" {

holdfast_code holdfast_store_init(const char* path, const holdfast_init_options* options,
                                  holdfast_init_result* result, holdfast_status* status) {
  if (path == nullptr) return finish(missing("path"), status);
  holdfast_init_options given;
  Status done = take_optional(options, "holdfast_init_options", given);
  if (done.ok()) done = check_result(result, "holdfast_init_result");
  if (!done.ok()) return finish(done, status);
  InitOptions own;
  own.create = given.must_exist == 0;
  own.destination = text(given.destination, kDefaultDestination);
  own.device = text(given.device);
  own.busy_timeout_ms = busy_timeout(given.busy_timeout_ms);
  own.page_size = given.page_size;
  InitResult made;
  done = Store::init(path, own, &made);
  if (done.ok()) {
    holdfast_init_result filled = empty<holdfast_init_result>();
    filled.created = made.created ? 1 : 0;
    filled.from_version = made.from_version;
    filled.to_version = made.to_version;
    filled.stream = id_of(made.stream);
    give(filled, result);
  }
  return finish(done, status);
}

holdfast_code holdfast_store_open(const char* path, holdfast_access access,
                                  const holdfast_store_options* options, holdfast_store** store,
                                  holdfast_status* status) {
  if (store == nullptr) return finish(missing("store"), status);
  *store = nullptr;
  if (path == nullptr) return finish(missing("path"), status);
  holdfast_store_options given;
  Status result = take_optional(options, "holdfast_store_options", given);
  if (!result.ok()) return finish(result, status);
  StoreOptions own;
  own.busy_timeout_ms = busy_timeout(given.busy_timeout_ms);
  auto made = std::make_unique<holdfast_store>();
  result = Store::open(
      path, access == HOLDFAST_ACCESS_READ_WRITE ? Access::read_write : Access::read_only, own,
      made->store);
  if (result.ok()) *store = made.release();
  return finish(result, status);
}

void holdfast_store_close(holdfast_store* store) { delete store; }

holdfast_code holdfast_store_begin(holdfast_store* store, holdfast_status* status) {
  return finish(store != nullptr ? store->store.begin() : missing("store"), status);
}

holdfast_code holdfast_store_commit(holdfast_store* store, holdfast_status* status) {
  return finish(store != nullptr ? store->store.commit() : missing("store"), status);
}

holdfast_code holdfast_store_rollback(holdfast_store* store, holdfast_status* status) {
  return finish(store != nullptr ? store->store.rollback() : missing("store"), status);
}

sqlite3* holdfast_store_connection(holdfast_store* store) {
  return store != nullptr ? store->store.connection() : nullptr;
}

}  // extern "C"

// --- store: look -------------------------------------------------------------------------------

namespace {

bool show(const EventView& view, holdfast_view_fn visit, void* context) {
  const holdfast_record record = c_api::record_of(view.event);
  holdfast_view out = empty<holdfast_view>();
  out.event = &record;
  out.destination = view.destination.c_str();
  out.state = static_cast<int>(view.state);
  out.attempts = view.attempts;
  out.next_attempt_in_ms = view.next_attempt_in_ms;
  out.last_error = view.last_error.c_str();
  out.gone_reason = view.gone_reason.c_str();
  return visit(context, &out) != 0;
}

void show_all(const std::vector<EventView>& views, holdfast_view_fn visit, void* context) {
  for (const EventView& view : views)
    if (!show(view, visit, context)) return;
}

bool show(const InboxRow& row, holdfast_inbox_fn visit, void* context) {
  holdfast_inbox_row out = empty<holdfast_inbox_row>();
  out.id = id_of(row.id);
  out.consumer = row.consumer.c_str();
  out.status = row.status.c_str();
  out.attempts = row.attempts;
  out.received_at_ms = row.received_at_ms;
  out.last_error = row.last_error.c_str();
  return visit(context, &out) != 0;
}

bool show(const DestinationStats& row, holdfast_destination_fn visit, void* context) {
  holdfast_destination out = empty<holdfast_destination>();
  out.name = row.name.c_str();
  for (int lane = 0; lane < kLaneCount; ++lane) {
    out.acked_seq[lane] = row.lanes[lane].acked_seq;
    out.claimed_seq[lane] = row.lanes[lane].claimed_seq;
  }
  out.pending = row.pending;
  out.oldest_pending_age_ms = row.oldest_pending_age_ms;
  out.retry = row.retry;
  out.held = row.held;
  out.dead = row.dead;
  out.sent = row.sent;
  out.duplicates = row.duplicates;
  out.rejected = row.rejected;
  out.retries = row.retries;
  out.gone = row.gone;
  out.rewinds = row.rewinds;
  out.capped = row.capped;
  out.leased = row.leased ? 1 : 0;
  out.lease_owner = row.lease_owner.c_str();
  out.link_failures = row.link_failures;
  out.last_error = row.last_error.c_str();
  out.last_error_at_ms = row.last_error_at_ms;
  out.url = row.url.c_str();
  return visit(context, &out) != 0;
}

holdfast_stats stats_of(const StoreStats& from) {
  holdfast_stats out = empty<holdfast_stats>();
  copy_text(from.device, out.device, sizeof(out.device));
  out.stream = id_of(from.stream);
  out.store = id_of(from.store);
  out.schema_version = from.schema_version;
  out.newest_seq = from.newest_seq;
  out.oldest_seq = from.oldest_seq;
  out.db_bytes = from.db_bytes;
  out.wal_bytes = from.wal_bytes;
  out.forks = from.forks;
  out.gaps_unreported = from.gaps_unreported;
  out.oldest_pending_age_ms = -1;
  for (const DestinationStats& destination : from.destinations) {
    out.pending += destination.pending;
    out.retry += destination.retry;
    out.held += destination.held;
    out.dead += destination.dead;
    out.capped += destination.capped;
    if (destination.oldest_pending_age_ms > out.oldest_pending_age_ms)
      out.oldest_pending_age_ms = destination.oldest_pending_age_ms;
  }
  out.inbox_applied = from.inbox.applied;
  out.inbox_duplicates = from.inbox.duplicates;
  out.inbox_stale = from.inbox.stale;
  out.inbox_rejected = from.inbox.rejected;
  out.inbox_later = from.inbox.later;
  out.inbox_held = from.inbox.held;
  out.inbox_handler_failures = from.inbox.handler_failures;
  out.inbox_streams = from.inbox.streams;
  out.inbox_open_gaps = from.inbox.open_gaps;
  out.inbox_gone = from.inbox.gone;
  if (!from.inbox.handler_seconds.empty())
    out.handler_calls = from.inbox.handler_seconds.back().count;
  out.handler_seconds_sum = from.inbox.handler_seconds_sum;
  out.expired = from.expired;
  out.inbox_replaced_streams = from.inbox.replaced_streams;
  out.inbox_not_your_stream = from.inbox.not_your_stream;
  out.relay_certificate_ends_at = from.relay_certificate_ends_at_ms;
  out.gateway_certificate_ends_at = from.gateway_certificate_ends_at_ms;
  return out;
}

Status filter_of(const holdfast_filter* filter, ListFilter& out) {
  holdfast_filter given;
  const Status status = take_optional(filter, "holdfast_filter", given);
  if (!status.ok()) return status;
  for (int state = HOLDFAST_STATE_PENDING; state <= HOLDFAST_STATE_GONE; ++state)
    if ((given.states & HOLDFAST_STATE_BIT(state)) != 0)
      out.states.push_back(static_cast<EventState>(state));
  out.event_type = text(given.event_type);
  out.aggregate_type = text(given.aggregate_type);
  out.aggregate_id = text(given.aggregate_id);
  out.destination = text(given.destination);
  out.limit = or_default<std::int64_t>(given.limit, 100);
  out.after_seq = given.after_seq;
  out.with_payload = given.without_payload == 0;
  return status;
}

}  // namespace

extern "C" {

const char* holdfast_state_name(int state) {
  if (state < HOLDFAST_STATE_PENDING || state > HOLDFAST_STATE_GONE) return "?";
  return state_name(static_cast<EventState>(state));
}

holdfast_code holdfast_store_list(holdfast_store* store, const holdfast_filter* filter,
                                  holdfast_view_fn visit, void* context, holdfast_status* status) {
  if (store == nullptr || visit == nullptr) return finish(missing("store, visit"), status);
  ListFilter own;
  Status result = filter_of(filter, own);
  if (result.ok())
    result =
        store->store.list(own, [&](const EventView& view) { return show(view, visit, context); });
  return finish(result, status);
}

holdfast_code holdfast_store_find(holdfast_store* store, int64_t seq, holdfast_view_fn visit,
                                  void* context, holdfast_status* status) {
  if (store == nullptr || visit == nullptr) return finish(missing("store, visit"), status);
  std::vector<EventView> views;
  const Status result = store->store.find(seq, views);
  if (result.ok()) show_all(views, visit, context);
  return finish(result, status);
}

holdfast_code holdfast_store_find_id(holdfast_store* store, const holdfast_id* id,
                                     holdfast_view_fn visit, void* context,
                                     holdfast_status* status) {
  if (store == nullptr || visit == nullptr || id == nullptr)
    return finish(missing("store, id, visit"), status);
  std::vector<EventView> views;
  const Status result = store->store.find(id_of(*id), views);
  if (result.ok()) show_all(views, visit, context);
  return finish(result, status);
}

holdfast_code holdfast_store_stats(holdfast_store* store, holdfast_stats* stats,
                                   holdfast_status* status) {
  if (store == nullptr || stats == nullptr) return finish(missing("store, stats"), status);
  Status result = check_result(stats, "holdfast_stats");
  StoreStats found;
  if (result.ok()) result = store->store.stats(found);
  if (result.ok()) give(stats_of(found), stats);
  return finish(result, status);
}

holdfast_code holdfast_store_destinations(holdfast_store* store, holdfast_destination_fn visit,
                                          void* context, holdfast_status* status) {
  if (store == nullptr || visit == nullptr) return finish(missing("store, visit"), status);
  StoreStats found;
  const Status result = store->store.stats(found);
  if (result.ok()) {
    for (const DestinationStats& destination : found.destinations)
      if (!show(destination, visit, context)) break;
  }
  return finish(result, status);
}

holdfast_code holdfast_store_handler_seconds(holdfast_store* store, holdfast_bucket_fn visit,
                                             void* context, holdfast_status* status) {
  if (store == nullptr || visit == nullptr) return finish(missing("store, visit"), status);
  StoreStats found;
  const Status result = store->store.stats(found);
  if (result.ok()) {
    for (const HistogramBucket& bucket : found.inbox.handler_seconds) {
      holdfast_bucket out = empty<holdfast_bucket>();
      out.le_seconds = bucket.le_seconds;
      out.count = bucket.count;
      if (visit(context, &out) == 0) break;
    }
  }
  return finish(result, status);
}

holdfast_code holdfast_store_list_inbox(holdfast_store* store, const holdfast_inbox_filter* filter,
                                        holdfast_inbox_fn visit, void* context,
                                        holdfast_status* status) {
  if (store == nullptr || visit == nullptr) return finish(missing("store, visit"), status);
  holdfast_inbox_filter given;
  Status result = take_optional(filter, "holdfast_inbox_filter", given);
  if (!result.ok()) return finish(result, status);
  Store::InboxFilter own;
  own.status = text(given.status);
  own.consumer = text(given.consumer);
  own.limit = or_default<std::int64_t>(given.limit, 100);
  result =
      store->store.list_inbox(own, [&](const InboxRow& row) { return show(row, visit, context); });
  return finish(result, status);
}

holdfast_code holdfast_store_find_inbox(holdfast_store* store, const holdfast_id* id,
                                        holdfast_inbox_fn visit, void* context,
                                        holdfast_status* status) {
  if (store == nullptr || visit == nullptr || id == nullptr)
    return finish(missing("store, id, visit"), status);
  std::vector<InboxRow> rows;
  const Status result = store->store.find_inbox(id_of(*id), rows);
  if (result.ok()) {
    for (const InboxRow& row : rows)
      if (!show(row, visit, context)) break;
  }
  return finish(result, status);
}

holdfast_code holdfast_store_streams(holdfast_store* store, holdfast_stream_fn visit, void* context,
                                     holdfast_status* status) {
  if (store == nullptr || visit == nullptr) return finish(missing("store, visit"), status);
  const Status result = store->store.list_streams([&](const InboxStreamRow& row) {
    holdfast_stream out = empty<holdfast_stream>();
    out.stream = id_of(row.stream);
    out.lane = row.lane;
    out.consumer = row.consumer.c_str();
    out.device = row.device.c_str();
    out.mark_seq = row.mark_seq;
    out.mark_id = id_of(row.mark_id);
    out.open_gaps = row.open_gaps;
    out.last_seen_at_ms = row.last_seen_at_ms;
    return visit(context, &out) != 0;
  });
  return finish(result, status);
}

holdfast_code holdfast_store_gaps(holdfast_store* store, holdfast_gap_fn visit, void* context,
                                  holdfast_status* status) {
  if (store == nullptr || visit == nullptr) return finish(missing("store, visit"), status);
  const Status result = store->store.list_gaps([&](const InboxGapRow& row) {
    holdfast_gap out = empty<holdfast_gap>();
    out.stream = id_of(row.stream);
    out.lane = row.lane;
    out.consumer = row.consumer.c_str();
    out.first_seq = row.first_seq;
    out.last_seq = row.last_seq;
    out.count = row.count;
    out.state = row.state.c_str();
    out.reason = row.reason.c_str();
    return visit(context, &out) != 0;
  });
  return finish(result, status);
}

holdfast_code holdfast_store_audit(holdfast_store* store, int64_t limit, holdfast_audit_fn visit,
                                   void* context, holdfast_status* status) {
  if (store == nullptr || visit == nullptr) return finish(missing("store, visit"), status);
  std::vector<AuditRow> rows;
  const Status result = store->store.audit(limit, rows);
  if (result.ok()) {
    for (const AuditRow& row : rows) {
      holdfast_audit_row out = empty<holdfast_audit_row>();
      out.at_ms = row.at_ms;
      out.action = row.action.c_str();
      out.detail = row.detail.c_str();
      if (visit(context, &out) == 0) break;
    }
  }
  return finish(result, status);
}

holdfast_code holdfast_store_health(holdfast_store* store, int quick, holdfast_health* health,
                                    holdfast_text_fn visit, void* context,
                                    holdfast_status* status) {
  if (store == nullptr) return finish(missing("store"), status);
  Status result = check_result(health, "holdfast_health");
  Store::Health found;
  if (result.ok()) result = store->store.health(quick != 0, found);
  if (!result.ok()) return finish(result, status);
  holdfast_health out = empty<holdfast_health>();
  out.synchronous = found.synchronous;
  out.page_size = found.page_size;
  out.wal_reset_fixed = found.wal_reset_fixed ? 1 : 0;
  out.application_triggers_ok = found.application_triggers_ok ? 1 : 0;
  copy_text(found.sqlite_version, out.sqlite_version, sizeof(out.sqlite_version));
  copy_text(found.journal_mode, out.journal_mode, sizeof(out.journal_mode));
  copy_text(found.integrity, out.integrity, sizeof(out.integrity));
  out.findings = static_cast<int64_t>(found.findings.size());
  give(out, health);
  if (visit != nullptr) {
    for (const std::string& finding : found.findings)
      if (visit(context, finding.c_str()) == 0) break;
  }
  return finish(result, status);
}

// --- store: act --------------------------------------------------------------------------------

holdfast_code holdfast_store_retry(holdfast_store* store, int64_t seq, const char* destination,
                                   int64_t* changed, holdfast_status* status) {
  Status result = store_missing(store);
  std::int64_t count = 0;
  if (result.ok()) result = store->store.retry(seq, text(destination), count);
  if (changed != nullptr) *changed = count;
  return finish(result, status);
}

holdfast_code holdfast_store_retry_all_dead(holdfast_store* store, const char* destination,
                                            int64_t* changed, holdfast_status* status) {
  Status result = store_missing(store);
  std::int64_t count = 0;
  if (result.ok()) result = store->store.retry_all_dead(text(destination), count);
  if (changed != nullptr) *changed = count;
  return finish(result, status);
}

holdfast_code holdfast_store_discard(holdfast_store* store, int64_t seq, const char* destination,
                                     const char* reason, int64_t* changed,
                                     holdfast_status* status) {
  Status result = store_missing(store);
  std::int64_t count = 0;
  if (result.ok()) result = store->store.discard(seq, text(destination), text(reason), count);
  if (changed != nullptr) *changed = count;
  return finish(result, status);
}

holdfast_code holdfast_store_purge(holdfast_store* store, const holdfast_purge_options* options,
                                   holdfast_purge_result* result, holdfast_status* status) {
  Status done = store_missing(store);
  holdfast_purge_options given;
  if (done.ok()) done = take_optional(options, "holdfast_purge_options", given);
  if (done.ok()) done = check_result(result, "holdfast_purge_result");
  if (!done.ok()) return finish(done, status);
  PurgeOptions own;
  own.outbox_older_than_ms = or_default(given.outbox_older_than_ms, kOutboxRetentionMs);
  own.inbox_older_than_ms = or_default(given.inbox_older_than_ms, kInboxRetentionMs);
  own.step_rows = or_default(given.step_rows, kPurgeStepRows);
  PurgeResult removed;
  done = store->store.purge(own, removed);
  if (done.ok()) {
    holdfast_purge_result out = empty<holdfast_purge_result>();
    out.outbox_rows = removed.outbox_rows;
    out.inbox_rows = removed.inbox_rows;
    out.more = removed.more ? 1 : 0;
    give(out, result);
  }
  return finish(done, status);
}

holdfast_code holdfast_store_add_destination(holdfast_store* store, const char* name,
                                             holdfast_status* status) {
  Status result = store_missing(store);
  if (result.ok()) result = store->store.add_destination(text(name));
  return finish(result, status);
}

holdfast_code holdfast_store_remove_destination(holdfast_store* store, const char* name, int force,
                                                holdfast_status* status) {
  Status result = store_missing(store);
  if (result.ok()) result = store->store.remove_destination(text(name), force != 0);
  return finish(result, status);
}

holdfast_code holdfast_store_capture(holdfast_store* store, const holdfast_capture* capture,
                                     holdfast_status* status) {
  if (store == nullptr || capture == nullptr) return finish(missing("store, capture"), status);
  holdfast_capture given;
  const Status result = take(capture, "holdfast_capture", given);
  if (!result.ok()) return finish(result, status);
  CaptureSpec own;
  own.table = text(given.table);
  own.on_insert = given.on_insert != 0;
  own.on_update = given.on_update != 0;
  own.on_delete = given.on_delete != 0;
  own.event_type = text(given.event_type);
  own.aggregate_type = text(given.aggregate_type);
  own.aggregate_id = text(given.aggregate_id);
  own.payload = text(given.payload);
  own.aggregate_version = text(given.aggregate_version);
  own.lane = given.lane;
  return finish(store->store.capture(own), status);
}

holdfast_code holdfast_store_remove_capture(holdfast_store* store, const char* table, int* removed,
                                            holdfast_status* status) {
  Status result = store_missing(store);
  int count = 0;
  if (result.ok()) result = store->store.remove_capture(text(table), count);
  if (removed != nullptr) *removed = count;
  return finish(result, status);
}

holdfast_code holdfast_store_backup(holdfast_store* store, const char* new_path,
                                    void (*progress)(void* context, int64_t done, int64_t total),
                                    void* context, holdfast_status* status) {
  if (store == nullptr || new_path == nullptr) return finish(missing("store, new_path"), status);
  const Status result = store->store.backup(new_path, [&](std::int64_t done, std::int64_t total) {
    if (progress != nullptr) progress(context, done, total);
  });
  return finish(result, status);
}

holdfast_code holdfast_store_salvage(const char* path, const char* new_path,
                                     holdfast_salvage_report* report, holdfast_status* status) {
  if (path == nullptr || new_path == nullptr) return finish(missing("path, new_path"), status);
  Status result = check_result(report, "holdfast_salvage_report");
  SalvageReport found;
  if (result.ok()) result = Store::salvage(path, new_path, found);
  if (!result.ok()) return finish(result, status);
  holdfast_salvage_report out = empty<holdfast_salvage_report>();
  out.complete = found.complete() ? 1 : 0;
  out.damaged_pages = found.damaged_pages;
  out.header_damaged = found.header_damaged ? 1 : 0;
  out.wal_damaged = found.wal_damaged ? 1 : 0;
  out.identity_lost = found.identity_lost ? 1 : 0;
  out.newest_lost = found.newest_lost ? 1 : 0;
  for (const SalvagedTable& table : found.tables)
    if (table.name == "outbox_event") out.events = table.rows;
  out.lost_count = found.lost_count;
  out.lost_pending = found.lost_pending;
  out.stream = id_of(found.stream);
  give(out, report);
  return finish(result, status);
}

holdfast_code holdfast_store_limits(holdfast_store* store, holdfast_limits* limits,
                                    holdfast_status* status) {
  if (store == nullptr || limits == nullptr) return finish(missing("store, limits"), status);
  Status result = check_result(limits, "holdfast_limits");
  Limits found;
  if (result.ok()) result = store->store.limits(found);
  if (!result.ok()) return finish(result, status);
  holdfast_limits out = empty<holdfast_limits>();
  out.max_events = found.max_events;
  out.max_bytes = found.max_bytes;
  out.when_full = static_cast<int>(found.when_full);
  give(out, limits);
  return finish(result, status);
}

holdfast_code holdfast_store_set_limits(holdfast_store* store, const holdfast_limits* limits,
                                        holdfast_status* status) {
  if (store == nullptr || limits == nullptr) return finish(missing("store, limits"), status);
  holdfast_limits given;
  Status result = take(limits, "holdfast_limits", given);
  if (result.ok() && given.when_full != HOLDFAST_REFUSE && given.when_full != HOLDFAST_DROP_OLDEST)
    result = Status::error(Code::invalid, "when_full: not a holdfast_when_full");
  if (!result.ok()) return finish(result, status);
  Limits own;
  own.max_events = given.max_events;
  own.max_bytes = given.max_bytes;
  own.when_full = static_cast<WhenFull>(given.when_full);
  return finish(store->store.set_limits(own), status);
}

holdfast_code holdfast_store_allow_certificate(holdfast_store* store, const char* name,
                                               const holdfast_id* stream, holdfast_status* status) {
  bool changed = false;
  Status result = store_missing(store);
  if (result.ok())
    result = store->store.allow_certificate(
        text(name), stream != nullptr ? id_of(*stream) : EventId(), changed);
  return finish(result, status);
}

holdfast_code holdfast_store_deny_certificate(holdfast_store* store, const char* name,
                                              holdfast_status* status) {
  bool changed = false;
  Status result = store_missing(store);
  if (result.ok()) result = store->store.deny_certificate(text(name), changed);
  return finish(result, status);
}

holdfast_code holdfast_store_new_stream(holdfast_store* store, holdfast_status* status) {
  return finish(store != nullptr ? store->store.new_stream() : missing("store"), status);
}

}  // extern "C"
